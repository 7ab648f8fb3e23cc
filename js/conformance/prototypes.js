function Base(n) { this.n = n; } Base.prototype.hi = function () { return 'hi ' + this.n; }; function Sub(n) { Base.call(this, n); } Sub.prototype = Object.create(Base.prototype, { constructor: { value: Sub } });
const s = new Sub(3); console.log(s.hi(), s instanceof Base, Base.prototype.isPrototypeOf(s), s.constructor.name); Base.prototype.hi = () => 'changed'; console.log(s.hi());
Object.setPrototypeOf(s, { hi: () => 'other' }); console.log(s.hi(), s instanceof Sub); try { const a = {}; const b = Object.create(a); Object.setPrototypeOf(a, b); } catch (e) { console.log(e.constructor.name); }
