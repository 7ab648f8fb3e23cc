let count = 0, sum = 0; const registry = new FinalizationRegistry(held => { count++; sum += held.n; });
(function () { for (let i = 1; i <= 10; i++) { const o = { i }; registry.register(o, { n: i }, o); if (i > 5) registry.unregister(o); } })();
setTimeout(() => { gc(); setTimeout(() => { gc(); setTimeout(() => console.log(count, sum), 5); }, 5); }, 5);
