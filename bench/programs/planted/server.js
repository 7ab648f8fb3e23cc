// A server that keeps the body of each request, and the client that sends them.
const fs = require("fs");
const http = require("http");
const sessions = [];
function remember(parts) { sessions.push(Buffer.concat(parts)); }
const server = http.createServer((request, response) => {
  const parts = [];
  request.on("data", (part) => parts.push(part));
  request.on("end", () => { remember(parts); response.end("kept"); });
});
function send(left) {
  if (left === 0) {
    fs.writeSync(1, `planted remember 5 ${400 * 40000}\n`);
    process.kill(process.pid, "SIGKILL");
  }
  const request = http.request({ port: server.address().port, method: "POST" }, (response) => {
    response.resume();
    response.on("end", () => send(left - 1));
  });
  request.end(Buffer.alloc(40000, left));
}
server.listen(0, "127.0.0.1", () => send(400));
