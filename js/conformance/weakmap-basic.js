const wm = new WeakMap(), k1 = {}, k2 = function () {};
wm.set(k1, 'one').set(k2, { deep: [1, 2] });
console.log(wm.get(k1), wm.get(k2).deep[1], wm.has({}), wm.delete(k1), wm.has(k1));
try { wm.set('text', 1); } catch (e) { console.log(e.constructor.name); }
const ws = new WeakSet([k1, k2]); console.log(ws.has(k1), ws.delete(k2), ws.has(k2));
