const out = []; outer: for (let i = 0; i < 4; i++) { inner: for (let j = 0; j < 4; j++) { if (j === 2) continue outer; if (i === 3) break outer; if (i === 1) continue inner; out.push(`${i}${j}`); } } console.log(out.join());
block: { out.length = 0; if (out) break block; out.push('never'); } console.log(out.length);
let n = 0; top: do { n++; while (true) { if (n < 3) continue top; break top; } } while (true); console.log(n);
