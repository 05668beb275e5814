const { execFileSync, spawn, fork, spawnSync } = require("child_process");
const fs = require("fs");
const path = require("path");
if (process.argv[2] === "child") {
  process.on("message", (m) => { process.send({ got: m.n + 1 }); process.disconnect(); });
} else {
  console.log(execFileSync("echo", ["from a child"]).toString());
  console.log(spawnSync("sh", ["-c", "echo err >&2; exit 4"]).status);
  fs.mkdirSync("a/b", { recursive: true });
  fs.writeFileSync("a/b/ü.txt", "text");
  console.log(fs.readdirSync("a/b"), fs.statSync("a/b/ü.txt").size, path.resolve("x") !== "x");
  const child = fork(__filename, ["child"]);
  child.on("message", (m) => console.log(m)).on("exit", (code) => {
    console.log(code);
    const cat = spawn("cat");
    cat.stdout.on("data", (d) => console.log(d.toString()));
    cat.on("close", (c) => console.log("closed", c));
    cat.stdin.end("piped");
  });
  child.send({ n: 41 });
}
