function depth(n) { return n === 0 ? 0 : 1 + depth(n - 1); } console.log(String(depth(3000)));
const even = n => n === 0 ? true : odd(n - 1), odd = n => n === 0 ? false : even(n - 1); console.log(even(2000), odd(1500));
const ack = (m, n) => m === 0 ? n + 1 : n === 0 ? ack(m - 1, 1) : ack(m - 1, ack(m, n - 1)); console.log(String(ack(2, 9)));
