// A list of 200,000 nodes: neither marking nor freeing it may recurse.
let list = null; for (let i = 0; i < 200000; i++) list = { i, next: list };
let n = 0; for (let p = list; p; p = p.next) n++; console.log(String(n));
list = null; if (typeof gc === 'function') gc();
let tree = null; const insert = (t, k) => { const node = { k, l: null, r: null }; if (!t) return node; let p = t; for (;;) { const side = k < p.k ? 'l' : 'r'; if (!p[side]) { p[side] = node; return t; } p = p[side]; } };
let x = 12345; for (let i = 0; i < 5000; i++) { x = (x * 1103515245 + 12345) % 2147483648; tree = insert(tree, x); }
const walk = t => t ? walk(t.l) + 1 + walk(t.r) : 0; console.log(String(walk(tree)));
