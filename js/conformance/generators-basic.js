function* fib() { let [a, b] = [0, 1]; for (;;) { yield a; [a, b] = [b, a + b]; } }
const out = []; for (const n of fib()) { if (n > 200) break; out.push(n); }
console.log(out.join());
function* talk() { const a = yield 'first'; const b = yield a + 1; return a + b; }
const t = talk(); console.log(t.next().value, t.next(10).value, t.next(5).value, t.next().done);
