console.log(JSON.stringify({ a: [1, 'x', null, undefined, () => 1], b: undefined, c: NaN, d: new Date(0), e: { toJSON: () => 'J' } }));
console.log(JSON.stringify([1, { b: 2 }], null, 2), JSON.stringify({ a: 1, b: 2, c: { a: 3 } }, ['a', 'c']));
console.log(JSON.stringify('\u2028"\\\n\ud800'), JSON.parse('{"a":[1,2,{"b":"\\u0041"}]}', (k, v) => typeof v === 'number' ? v * 10 : v).a.join('|'));
