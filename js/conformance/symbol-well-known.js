class Even { static [Symbol.hasInstance](n) { return n % 2 === 0; } }
console.log(2 instanceof Even, 3 instanceof Even, `${{ [Symbol.toStringTag]: 'Mine' }}`);
const spread = { length: 2, 0: 'a', 1: 'b', [Symbol.isConcatSpreadable]: true }; console.log(['x'].concat(spread).join());
console.log('a-b'.split({ [Symbol.split]: s => s.toUpperCase() }), 'abc'.replace({ [Symbol.replace]: (s, r) => r + s }, 'R'));
