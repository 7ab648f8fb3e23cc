const text = 'ąčę žluťoučký 日本語 🎉🎊'; console.log(text.length, [...text].length, text.split('').reverse().join('').length, encodeURIComponent('日🎉'), decodeURIComponent('%F0%9F%8E%89'));
console.log(escape('ä日'), unescape('%u65E5'), 'z' < 'ä', '\u{1F389}' === '🎉', 'ABC'.charCodeAt(1), '日'.charCodeAt(0).toString(16));
