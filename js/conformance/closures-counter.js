// Closures share and keep their variables.
function counter() { let n = 0; return { up: () => ++n, down: () => --n, get: () => n }; }
const a = counter(), b = counter();
a.up(); a.up(); b.down();
console.log(`${a.get()} ${b.get()}`);
const fs = []; for (let i = 0; i < 5; i++) fs.push(() => i);
console.log(fs.map(f => f()).join());
var gs = []; for (var j = 0; j < 5; j++) gs.push(() => j);
console.log(gs.map(f => f()).join());
