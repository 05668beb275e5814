import threading
import queue
from concurrent.futures import ThreadPoolExecutor
total = 0
lock = threading.Lock()
def work(n):
    global total
    for _ in range(n):
        with lock:
            total += 1
threads = [threading.Thread(target=work, args=(1000,)) for _ in range(8)]
for t in threads: t.start()
for t in threads: t.join()
print(total)
q = queue.Queue()
threading.Timer(0.01, q.put, ["timer"]).start()
print(q.get(timeout=5))
with ThreadPoolExecutor(8) as executor:
    print(sum(executor.map(lambda n: n * n, range(100))))
event = threading.Event()
print(event.wait(0.01))
