const s = Symbol('desc'), o = { [s]: 1, plain: 2 };
console.log(s.description, Object.keys(o).length, Object.getOwnPropertySymbols(o)[0] === s, Symbol.for('k') === Symbol.for('k'), Symbol.keyFor(Symbol.for('k')));
try { s + ''; } catch (e) { console.log(e.constructor.name); }
console.log(s.toString(), typeof s, Object(s) == s);
