// Thousands of shapes, most of them used once.
let sum = 0; for (let i = 0; i < 5000; i++) { const o = {}; o['p' + i] = i; o.common = 1; if (i % 2) delete o.common; sum += o['p' + i] + (o.common ?? 0); } console.log(String(sum));
const dict = {}; for (let i = 0; i < 5000; i++) dict['key' + i] = { i }; for (let i = 0; i < 5000; i += 2) delete dict['key' + i]; console.log(Object.keys(dict).length, dict.key4999.i);
