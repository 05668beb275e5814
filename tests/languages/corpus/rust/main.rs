use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{mpsc, Arc, Mutex};
use std::thread;

fn main() {
    let total = Arc::new(Mutex::new(0u64));
    let threads: Vec<_> = (0..8)
        .map(|n| {
            let total = Arc::clone(&total);
            thread::spawn(move || *total.lock().unwrap() += n)
        })
        .collect();
    for t in threads {
        t.join().unwrap();
    }
    println!("{}", total.lock().unwrap());
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || sender.send("message").unwrap());
    println!("{}", receiver.recv().unwrap());

    let mut words: BTreeMap<&str, usize> = BTreeMap::new();
    for word in "a b a c b a".split(' ') {
        *words.entry(word).or_default() += 1;
    }
    println!("{:?}", words);
    let set: HashSet<i32> = (1..5).collect();
    let map: HashMap<_, _> = set.iter().map(|n| (*n, n * n)).collect();
    println!("{} {}", set.len(), map[&3]);
    let mut queue: VecDeque<i32> = (0..3).collect();
    queue.rotate_left(1);
    println!("{:?}", queue);

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all("žluť".as_bytes()).unwrap();
    });
    let mut text = String::new();
    TcpStream::connect(address).unwrap().read_to_string(&mut text).unwrap();
    server.join().unwrap();
    println!("{}", text);
    std::fs::create_dir_all("a/b").unwrap();
    std::fs::write("a/b/c", "file").unwrap();
    println!("{}", std::fs::read_to_string("a/b/c").unwrap());
    let out = std::process::Command::new("echo").arg("child").output().unwrap();
    print!("{}", String::from_utf8_lossy(&out.stdout));
    println!("{}", std::panic::catch_unwind(|| panic!("inside")).is_err());
    std::process::exit(4);
}
