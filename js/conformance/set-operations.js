const a = new Set([1, 2, 3, 4]), b = new Set([3, 4, 5]);
console.log([...a].filter(x => b.has(x)).join(), [...new Set([...a, ...b])].join(), [...a].filter(x => !b.has(x)).join());
console.log([...new Set('mississippi')].join(''), new Set([NaN, NaN, 0, -0]).size);
