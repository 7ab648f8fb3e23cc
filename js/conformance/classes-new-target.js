function P() { if (!new.target) return new P(); this.ok = true; }
class Abstract { constructor() { if (new.target === Abstract) throw new TypeError('abstract'); } }
class Real extends Abstract {}
console.log(P().ok, new Real() instanceof Abstract);
try { new Abstract(); } catch (e) { console.log(e.message); }
console.log(Reflect.construct(Real, [], Array) instanceof Array);
