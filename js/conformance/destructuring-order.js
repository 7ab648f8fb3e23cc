const log = []; const src = { get a() { log.push('a'); return undefined; }, get b() { log.push('b'); return 2; } };
const { a = (log.push('default'), 1), b } = src; console.log(a, b, log.join());
const it = { *[Symbol.iterator]() { try { yield 1; yield 2; yield 3; } finally { log.push('closed'); } } };
const [one] = it; console.log(one, log.at(-1));
for (const [k, { v }] of Object.entries({ x: { v: 1 }, y: { v: 2 } })) console.log(k, v);
