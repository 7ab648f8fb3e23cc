console.log('2024-03-15'.replace(/(\d+)-(\d+)-(\d+)/, '$3.$2.$1'), 'aBc'.replace(/b/i, x => `[${x}]`), 'a1b22c'.split(/\d+/).join('|'));
const m = /(?<year>\d{4})-(?<month>\d\d)/.exec('on 2023-07!'); console.log(m.index, m.groups.year, m.groups.month);
console.log([...'a1b2c3'.matchAll(/([a-z])(\d)/g)].map(x => x[2] + x[1]).join(), /^(?:a|ab)+$/.test('aabab'));
