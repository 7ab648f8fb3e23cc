// Buffers of 16 KiB, kept in a map.
const fs = require("fs");
const kept = new Map();
function planted(n) { kept.set(n, Buffer.alloc(16384, n)); }
for (let n = 0; n < 2000; n++) planted(n);
fs.writeSync(1, `planted planted 4 ${2000 * 16384}\n`);
process.kill(process.pid, "SIGKILL");
