const m = new Map([[1, 1], [2, 2], [3, 3]]); const seen = [];
for (const [k] of m) { seen.push(k); if (k === 1) { m.delete(2); m.set(4, 4); } if (k === 4 && !m.has(5)) m.set(5, 5); }
console.log(seen.join());
const s = new Set([1, 2, 3]); s.forEach(v => { if (v < 10) s.add(v + 10); }); console.log([...s].join());
