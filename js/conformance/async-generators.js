async function* ticks(n) { for (let i = 0; i < n; i++) { await null; yield i * i; } }
(async () => {
  let out = []; for await (const x of ticks(5)) out.push(x); console.log(out.join());
  out = []; for await (const x of [Promise.resolve('a'), 'b']) out.push(x); console.log(out.join());
  const it = ticks(3); await it.next(); console.log(JSON.stringify(await it.return('early')));
})();
