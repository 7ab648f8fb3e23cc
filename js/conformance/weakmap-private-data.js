const priv = new WeakMap();
class Account { constructor(n) { priv.set(this, { n }); } add(x) { priv.get(this).n += x; return this; } get n() { return priv.get(this).n; } }
let total = 0; for (let i = 0; i < 2000; i++) total += new Account(i).add(5).n;
console.log(String(total));
