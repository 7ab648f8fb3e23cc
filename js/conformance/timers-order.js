const log = []; let n = 0;
const say = x => { log.push(x); if (log.length === 5) console.log(log.filter(y => y[0] !== 'i').join() + ' ' + log.filter(y => y[0] === 'i').join()); };
setTimeout(() => say('b'), 20); setTimeout(x => say(x), 2, 'a'); const never = setTimeout(() => say('never'), 1); clearTimeout(never);
const id = setInterval(() => { say('i' + ++n); if (n === 3) clearInterval(id); }, 4);
