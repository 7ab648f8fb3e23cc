// One tab that allocates while the others stand still: it keeps a thousand small lists, replaces one at each step,
// and throws the rest away.
const kept = new Array(1000).fill(null);
let seed = 7, sum = 0;
const random = n => (seed = (seed * 1103515245 + 12345) % 2147483648) % n;
for (let i = 0; i < 300000; i++) {
  const list = { i, next: { i: i + 1, next: { i: i + 2, next: null } } };
  if (i % 10 === 0) kept[random(1000)] = list;
  sum = (sum + list.next.next.i) % 1000003;
}
for (const list of kept) if (list) sum = (sum + list.i) % 1000003;
console.log('busy ' + sum);
