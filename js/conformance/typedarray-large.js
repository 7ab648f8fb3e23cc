const n = 300000, a = new Float64Array(n); for (let i = 0; i < n; i++) a[i] = Math.sqrt(i);
let s = 0; for (let i = 0; i < n; i += 7) s += a[i]; console.log(s.toFixed(6));
