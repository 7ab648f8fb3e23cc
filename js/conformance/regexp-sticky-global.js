const re = /a/g; const out = []; let m; while ((m = re.exec('banana'))) out.push(m.index + ':' + re.lastIndex); console.log(out.join());
const y = /foo/y; y.lastIndex = 3; console.log(y.test('barfoo'), y.lastIndex, y.test('barfoo'), y.lastIndex);
console.log('aXbXc'.replaceAll('X', '-'), 'x'.replace(/x/, '$$-$&-$`'), /[\u{1F600}-\u{1F64F}]/u.test('😀'));
