const a = [1, , 3]; a[10] = 'x'; console.log(a.length, 1 in a, a.indexOf(undefined), a.findIndex(x => x === undefined), Object.keys(a).join(), a.join('-'));
let n = 0; a.forEach(() => n++); console.log(n, a.map(x => x).length, [...a].filter(x => x === undefined).length, a.flat().length);
const big = []; big[4294967294] = 'end'; console.log(big.length); try { big.push(1); } catch (e) { console.log(e.constructor.name); }
