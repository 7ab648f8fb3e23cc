// Closures that hold each other are garbage all the same.
let made = 0;
function pair() { let x = { n: made++ }; const f = () => g && x.n; const g = () => f && x; return f; }
let sum = 0;
for (let i = 0; i < 20000; i++) sum += pair()();
console.log(String(sum));
