const log = []; setTimeout(() => log.push('b'), 20); setTimeout(() => log.push('a'), 2); const never = setTimeout(() => log.push('never'), 5); clearTimeout(never);
let n = 0; const id = setInterval(() => { log.push('i' + ++n); if (n === 3) clearInterval(id); }, 4); setTimeout(x => console.log(log.filter(y => y[0] !== 'i').join() + x + log.filter(y => y[0] === 'i').length), 80, '!');
