const o = { _v: 1, get v() { return this._v; }, set v(x) { this._v = x * 2; }, ['comp' + 'uted']: 3, async *m() {}, __proto__: { inherited: 'yes' } };
o.v = 5; console.log(o.v, o.computed, o.inherited, Object.keys(o).join()); const child = Object.create(o, { own: { value: 1, enumerable: true } }); child.v = 2; console.log(child._v, o._v, Object.keys(child).join());
const seen = []; for (const k in child) seen.push(k); console.log(seen.join());
