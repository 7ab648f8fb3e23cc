function observe(o, f, path = []) { return new Proxy(o, { get(t, k) { const v = t[k]; return typeof v === 'object' && v ? observe(v, f, [...path, k]) : v; }, set(t, k, v) { f([...path, k].join('.') + '=' + v); t[k] = v; return true; } }); }
const seen = []; const o = observe({ a: { b: { c: 1 } }, list: [1] }, x => seen.push(x));
o.a.b.c = 2; o.list[0] = 9; o.z = 3; console.log(seen.join());
