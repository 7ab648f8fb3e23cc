// Objects are taken out of one graph and hung into another, all the time.
let a = { list: [] }, b = { list: [] }; for (let i = 0; i < 500; i++) a.list.push({ i, data: [i, String(i)] });
for (let round = 0; round < 200; round++) { while (a.list.length) { const o = a.list.pop(); b.list.push({ i: o.i, data: o.data, from: round }); } [a, b] = [b, { list: [] }]; }
console.log(a.list.length, a.list.reduce((s, o) => s + o.i + o.data[0], 0), a.list[0].from);
