function* inner() { const x = yield 'i1'; yield 'i2' + x; return 'ret'; }
function* outer() { yield 'o'; const r = yield* inner(); yield r; yield* [1, 2]; yield* 'ab'; }
const it = outer(), seen = []; let r = it.next(); while (!r.done) { seen.push(r.value); r = it.next('!'); }
console.log(seen.join());
