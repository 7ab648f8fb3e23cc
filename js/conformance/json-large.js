const data = { list: Array.from({ length: 5000 }, (_, i) => ({ id: i, name: 'n' + i, tags: ['a', 'b', String(i % 7)], nested: { x: i / 2, y: [i, [i]] } })) };
let text = JSON.stringify(data); for (let i = 0; i < 3; i++) text = JSON.stringify(JSON.parse(text));
console.log(text.length, JSON.parse(text).list[4321].nested.y[1][0]);
