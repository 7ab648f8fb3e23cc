const rows = Array.from({ length: 3000 }, (_, i) => ({ id: i, group: 'g' + i % 13, value: (i * 37) % 101 })); const by = rows.reduce((m, r) => { (m[r.group] ??= []).push(r); return m; }, {});
console.log(Object.keys(by).length, Object.entries(by).map(([g, l]) => g + ':' + l.reduce((s, r) => s + r.value, 0)).slice(0, 4).join());
const joined = rows.filter(r => r.value > 90).map(r => ({ ...r, tag: `${r.group}-${r.id}` })); console.log(joined.length, joined[10].tag);
