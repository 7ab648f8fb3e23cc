class MyArray extends Array { sum() { return this.reduce((a, b) => a + b, 0); } }
const m = MyArray.from([1, 2, 3]).map(x => x * x);
console.log(m instanceof MyArray, m.sum(), m.length);
class Temp { constructor(c) { this.c = c; } [Symbol.toPrimitive](hint) { return hint === 'string' ? this.c + 'C' : this.c; } }
console.log(`${new Temp(20)}`, new Temp(20) + 1, new Temp(5) > new Temp(3));
