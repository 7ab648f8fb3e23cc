class Vec { constructor(x, y) { this.x = x; this.y = y; } get len() { return Math.hypot(this.x, this.y); } plus(o) { return new Vec(this.x + o.x, this.y + o.y); } static get zero() { return new Vec(0, 0); } }
let v = Vec.zero; for (let i = 0; i < 20000; i++) v = v.plus(new Vec(i % 3, 1)); console.log(v.x, v.y, v.len.toFixed(6));
