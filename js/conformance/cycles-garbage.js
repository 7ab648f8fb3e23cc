// Cycles of every kind, all garbage: none may be freed early, none may stay.
let check = 0; for (let i = 0; i < 3000; i++) { const a = { i }, b = [a], c = new Map([[a, b]]), d = () => c; a.b = b; a.c = c; a.d = d; c.set('self', c); b.push(b); check += a.c.get(a)[0].d().size; } console.log(String(check));
class Node2 { constructor(p) { this.parent = p; this.kids = []; if (p) p.kids.push(this); } } let n = 0; for (let i = 0; i < 300; i++) { const root = new Node2(null); for (let j = 0; j < 20; j++) new Node2(j % 2 ? root : root.kids[0] ?? root); n += root.kids.length; } console.log(String(n));
