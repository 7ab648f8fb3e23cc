// A value that is the next key: all live as long as the first key does.
const wm = new WeakMap(); const first = {}; let key = first;
for (let i = 0; i < 300; i++) { const next = { i }; wm.set(key, next); key = next; }
key = null; if (typeof gc === 'function') gc();
let n = 0, at = first; while (wm.has(at)) { at = wm.get(at); n++; }
console.log(n, at.i);
