const t = Int32Array.from([5, 1, 4, 2, 3]);
console.log([...t].sort().join(), t.toString(), t.indexOf(4), t.includes(9), t.fill(7, 1, 3).join(), t.reverse().join());
console.log(t.copyWithin(0, 3).join(), t.findIndex(x => x === 7), t.every(x => x > 0), t.reduce((a, b) => a + b));
t.set([100, 200], 2); console.log(t.join(), t.at(-1), t.byteLength);
