let order = [];
class F { a = order.push('a'); static s = order.push('s'); ['b' + 1] = this.a + 1; static { order.push('block'); } c = () => this; }
const f = new F();
console.log(order.join(), f.a, f.b1, f.c() === f);
