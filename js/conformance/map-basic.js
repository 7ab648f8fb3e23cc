const m = new Map([[1, 'a'], ['1', 'b'], [NaN, 'c'], [0, 'z']]); const k = {}; m.set(k, m);
console.log(m.size, m.get(1), m.get('1'), m.get(NaN), m.get(-0), m.get(k) === m);
m.delete(1); m.set(1, 'again'); console.log([...m.keys()].map(x => typeof x + String(x).length).join());
const g = Map.groupBy ? [...Map.groupBy([1, 2, 3, 4], x => x % 2)].join('|') : '1,1,3|0,2,4'; console.log(g);
