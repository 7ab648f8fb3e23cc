// Many suspended generators, most of them dropped half way.
function* count(n) { let held = { n }; for (let i = 0; i < 10; i++) yield held.n + i; }
let sum = 0; const kept = [];
for (let i = 0; i < 5000; i++) { const g = count(i); sum += g.next().value; sum += g.next().value; if (i % 500 === 0) kept.push(g); }
for (const g of kept) for (const v of g) sum += v;
console.log(String(sum));
