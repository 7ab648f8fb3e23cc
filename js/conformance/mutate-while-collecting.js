// Old objects get new children while collections run.
const old = Array.from({ length: 2000 }, (_, i) => ({ i, kid: null })); let x = 1;
for (let i = 0; i < 60000; i++) { x = (x * 1103515245 + 12345) % 2147483648; const o = old[x % 2000]; o.kid = { i, prev: o.kid && { i: o.kid.i } }; if (i % 7 === 0) old[(x >> 8) % 2000].kid = null; }
let sum = 0; for (const o of old) if (o.kid) sum += o.kid.i + (o.kid.prev?.i ?? 0); console.log(String(sum));
