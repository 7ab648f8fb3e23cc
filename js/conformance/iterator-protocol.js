const range = (a, b) => ({ [Symbol.iterator]() { let n = a; return { next: () => n < b ? { value: n++, done: false } : { value: undefined, done: true }, return() { closed++; return {}; } }; } });
let closed = 0; console.log([...range(1, 5)].join(), Math.max(...range(2, 9)), Array.from(range(0, 3), x => x * x).join());
for (const x of range(0, 100)) if (x > 2) break; const [first] = range(7, 9); console.log(first, closed);
try { for (const x of range(0, 5)) throw new Error('out'); } catch (e) { console.log(e.message, closed); }
