const m = new Map(); for (let i = 0; i < 30000; i++) m.set('k' + i, { i });
for (let i = 0; i < 30000; i += 3) m.delete('k' + i);
let sum = 0; for (const { i } of m.values()) sum += i; console.log(m.size, sum);
