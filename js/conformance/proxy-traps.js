const log = [];
const p = new Proxy({ a: 1 }, { get(t, k, r) { log.push('get ' + String(k)); return Reflect.get(t, k, r) ?? 'none'; }, set(t, k, v) { log.push('set ' + k); t[k] = v * 2; return true; }, has(t, k) { return k.startsWith('x') || k in t; }, deleteProperty(t, k) { log.push('delete ' + k); return delete t[k]; }, ownKeys(t) { return [...Reflect.ownKeys(t), 'ghost']; }, getOwnPropertyDescriptor(t, k) { return { value: t[k], enumerable: true, configurable: true }; } });
p.b = 4; console.log(p.a, p.b, p.c, 'xyz' in p, 'q' in p); delete p.a;
console.log(Object.keys(p).join(), log.join('; '));
