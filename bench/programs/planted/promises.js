// Pages of a cache, made by an asynchronous function behind timers.
const fs = require("fs");
const cache = [];
function page(n) { return new Uint8Array(20000).fill(n); }
async function load(n) {
  await new Promise((done) => setTimeout(done, n % 3));
  cache.push(page(n));
}
async function all() {
  for (let n = 0; n < 50; n++) await Promise.all(Array.from({ length: 20 }, (_, k) => load(n * 20 + k)));
  fs.writeSync(1, `planted page 4 ${1000 * 20000}\n`);
  process.kill(process.pid, "SIGKILL");
}
all();
