function f(n) { for (let i = 0; i < 3; i++) { try { if (i === n) return 'ret' + i; if (n === 10) continue; if (n === 11) break; } finally { if (n === 2 && i === 2) return 'override'; log.push(i); } } return 'end'; }
const log = []; console.log([0, 1, 2, 10, 11].map(f).join(), log.join(''));
const g = () => { try { throw 1; } catch { return 'c'; } finally { log.push('f'); } }; console.log(g(), log.at(-1));
