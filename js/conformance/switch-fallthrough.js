const f = x => { let s = ''; switch (x) { case 1: s += 'one'; case 2: s += 'two'; break; default: s += 'def'; case 'a': s += 'a'; } return s; };
console.log([1, 2, 3, 'a', '1'].map(f).join());
switch (3) { case 3: let scoped = 'in'; console.log(scoped); } switch (true) { case 5 > 3: console.log('yes'); break; case true: console.log('no'); }
