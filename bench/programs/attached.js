// Works in rounds of the same result until its input ends; prints how the rounds differed: `same` or `DIFFERENT`.
const crypto = require("crypto");
const zlib = require("zlib");
const results = new Set();
let over = false;

function work() {
  const rows = Array.from({ length: 400 }, (_, id) => ({ id, name: "row " + (id * 7919) % 1000, body: Buffer.alloc(id % 300, id) }));
  const text = JSON.stringify(rows);
  zlib.gzip(text, (error, packed) => {
    const back = zlib.gunzipSync(packed).toString();
    results.add(crypto.createHash("sha256").update(back).digest("hex") + (back === text) + error);
    if (over) console.log(results.size === 1 ? "same" : "DIFFERENT");
    else setImmediate(work);
  });
}

process.stdin.on("data", () => {});
process.stdin.on("end", () => { over = true; });
console.log("ready");
work();
