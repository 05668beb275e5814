const { Worker, isMainThread, parentPort, workerData } = require("worker_threads");
if (!isMainThread) {
  parentPort.postMessage(workerData * 2);
} else {
  const jobs = [1, 2, 3].map((n) => new Promise((done, fail) => {
    const worker = new Worker(__filename, { workerData: n });
    worker.on("message", done).on("error", fail);
  }));
  Promise.all(jobs).then((answers) => {
    console.log(answers);
    const shared = new Int32Array(new SharedArrayBuffer(4));
    console.log(Atomics.wait(shared, 0, 0, 10));
  });
}
