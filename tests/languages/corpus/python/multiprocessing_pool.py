import multiprocessing as mp
from concurrent.futures import ProcessPoolExecutor

def square(n):
    return n * n

if __name__ == "__main__":
    with mp.Pool(3) as pool:
        print(pool.map(square, range(10)))
    queue = mp.Queue()
    process = mp.Process(target=queue.put, args=({"a": 1},))
    process.start()
    print(queue.get())
    process.join()
    print(process.exitcode)
    value = mp.Value("i", 0)
    with value.get_lock():
        value.value += 5
    with mp.Manager() as manager:
        shared = manager.dict()
        shared["k"] = value.value
        print(dict(shared))
    with ProcessPoolExecutor(2) as executor:
        print(list(executor.map(square, [7, 8])))
    for method in ("spawn", "forkserver"):
        with mp.get_context(method).Pool(1) as pool:
            print(method, pool.apply(square, (9,)))
