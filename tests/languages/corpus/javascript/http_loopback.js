const http = require("http");
const crypto = require("crypto");
const zlib = require("zlib");
const server = http.createServer((req, res) => res.end(JSON.stringify({ url: req.url })));
server.listen(0, "127.0.0.1", () => {
  http.get({ port: server.address().port, path: "/q?a=1" }, (res) => {
    let body = "";
    res.on("data", (d) => (body += d)).on("end", async () => {
      console.log(res.statusCode, body);
      server.close();
      console.log(crypto.createHash("sha256").update("x").digest("hex"));
      console.log(zlib.gunzipSync(zlib.gzipSync("zip")).toString());
      console.log(new Date(0).toISOString(), new Intl.NumberFormat("de-DE").format(1234.5));
      console.log(Intl.DateTimeFormat().resolvedOptions().timeZone);
      const { setTimeout: sleep } = require("timers/promises");
      await sleep(5);
      console.log(await require("fs").promises.readFile(__filename, "utf8").then((t) => t.length > 10));
    });
  });
});
