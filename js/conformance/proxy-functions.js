const traced = new Proxy(function add(a, b) { return a + b; }, { apply(f, self, args) { return 'called: ' + f(...args); }, construct(f, args) { return { made: args.length }; } });
console.log(traced(2, 3), new traced(1, 2, 3).made);
const { proxy, revoke } = Proxy.revocable({}, {}); revoke();
try { proxy.x; } catch (e) { console.log(e instanceof TypeError); }
