const wm = new WeakMap(); const kept = [];
for (let i = 0; i < 10000; i++) { const k = { i }; wm.set(k, { payload: i }); if (i % 1000 === 0) kept.push(k); }
if (typeof gc === 'function') gc();
console.log(kept.map(k => wm.get(k).payload).join());
