console.log('abc'.padStart(6, '12') + 'x'.padEnd(3, '-'), ' a '.trim() + '|', 'aXbX'.lastIndexOf('X'), 'abc'.at(-1), 'a,b,,c'.split(',', 3).join('|'), 'abcdef'.substring(4, 1), 'abcdef'.substr(-3, 2));
console.log('ß'.toUpperCase(), 'İ'.toLowerCase().length, 'a\u0301'.normalize('NFC').length, 'abc'.localeCompare('abd'), '😀'.codePointAt(0), String.fromCodePoint(128512) === '😀', 'x'.repeat(3));
console.log('a-b-c'.replaceAll('-', '+'), 'abc'.startsWith('b', 1), 'abc'.endsWith('b', 2), 'abc'.includes('bc'), [...'añ😀'].length, 'añ😀'.length, '\ud83d'.isWellFormed?.() ?? false);
