// Files that are unpacked and kept whole. What unpacking them needed lies at the same line until it is collected: so it is.
const fs = require("fs");
const zlib = require("zlib");
const packed = zlib.gzipSync(Buffer.alloc(50000, "some text "));
const kept = [];
function unpack() { kept.push(Buffer.from(new Uint8Array(zlib.gunzipSync(packed)).buffer.slice(0))); }
for (let n = 0; n < 400; n++) unpack();
require("v8").setFlagsFromString("--expose-gc");
const collect = require("vm").runInNewContext("gc");
for (let n = 0; n < 3; n++) collect();
fs.writeSync(1, `planted unpack 6 ${400 * 50000}\n`);
process.kill(process.pid, "SIGKILL");
