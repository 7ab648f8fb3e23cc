const tag = (s, ...v) => s.raw.map((x, i) => x + (i < v.length ? `<${v[i]}>` : '')).join('');
console.log(tag`a${1}b\n${'x'}c`, String.raw`\t${2}\\`, `nested ${`in ${1 + 1}`}`);
const same = () => (s => s)`x`; console.log(same() === same(), Object.isFrozen(same()));
const html = (s, ...v) => s.reduce((a, x, i) => a + x + (v[i] === undefined ? '' : String(v[i]).replace(/</g, '&lt;')), ''); console.log(html`<p>${'<b>'}</p>`);
