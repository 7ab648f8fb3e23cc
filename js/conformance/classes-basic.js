class A { constructor(x) { this.x = x; } get twice() { return this.x * 2; } set twice(v) { this.x = v / 2; } static make(x) { return new this(x); } toString() { return `A(${this.x})`; } }
class B extends A { constructor(x) { super(x + 1); } toString() { return 'B:' + super.toString(); } }
const b = B.make(4); b.twice = 30;
console.log(String(b), b.twice, b instanceof A, Object.getPrototypeOf(B) === A);
