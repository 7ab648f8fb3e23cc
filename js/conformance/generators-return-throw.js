const log = [];
function* g() { try { yield 1; yield 2; } catch (e) { log.push('caught ' + e); yield 3; } finally { log.push('finally'); } }
let it = g(); it.next(); log.push(it.throw('x').value); log.push(JSON.stringify(it.return(9)));
it = g(); it.next(); log.push(JSON.stringify(it.return(7)));
for (const v of g()) { log.push(v); break; }
console.log(log.join(' | '));
