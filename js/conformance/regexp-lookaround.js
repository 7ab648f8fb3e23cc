console.log('price: $42, €17'.match(/(?<=\$)\d+/)[0], 'foobar foobaz'.replace(/foo(?=baz)/, 'X'), 'a.b.c'.replace(/(?<!a)\./g, '!'), /(?!x)y/.test('y'));
console.log('aaa'.match(/a{2}?/)[0], 'x\ny'.match(/^y$/m) !== null, /a.c/s.test('a\nc'), /\bfoo\b/.test('a foo b'));
