// A tree that is changed for ever, as the benchmark's is.
let root = null, n = 0, x = 49734321; const rnd = () => (x = (x * 1103515245 + 12345) % 2147483648) / 2147483648;
const payload = (d, k) => d === 0 ? { array: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9], string: 'key ' + k } : { left: payload(d - 1, k), right: payload(d - 1, k) };
const keys = []; const put = k => { const node = { k, v: payload(3, k), l: null, r: null }; if (!root) { root = node; return; } let p = root; while (true) { if (k < p.k) { if (!p.l) { p.l = node; break; } p = p.l; } else { if (!p.r) { p.r = node; break; } p = p.r; } } };
const leftmost = () => { if (!root.l) { root = root.r; return; } let p = root; while (p.l.l) p = p.l; p.l = p.l.r; };
for (let i = 0; i < 400; i++) put(rnd()); for (let i = 0; i < 1500; i++) { put(rnd()); leftmost(); }
const count = t => t ? count(t.l) + 1 + count(t.r) : 0; console.log(String(count(root)));
