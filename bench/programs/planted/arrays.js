// Typed arrays of a class's instances, made in its constructor.
const fs = require("fs");
class Signal {
  constructor(n) {
    this.samples = new Float64Array(3000).fill(n);
  }
}
const kept = [];
for (let n = 0; n < 1000; n++) kept.push(new Signal(n));
fs.writeSync(1, `planted Signal 4 ${1000 * 24000}\n`);
process.kill(process.pid, "SIGKILL");
