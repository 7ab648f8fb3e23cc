async function fails(n) { await null; if (n % 2) throw new RangeError('odd ' + n); return n; }
(async () => {
  try { await fails(1); } catch (e) { console.log(e.name + ': ' + e.message); }
  const all = await Promise.allSettled([1, 2, 3].map(fails));
  console.log(all.map(r => r.status[0] + (r.value ?? r.reason.message)).join());
  try { await Promise.all([2, 4, 5].map(fails)); } catch (e) { console.log(e.message); }
  console.log(await Promise.race([fails(8), new Promise(() => {})]));
  try { await Promise.any([fails(1), fails(3)]); } catch (e) { console.log(e.constructor.name, e.errors.length); }
  await fails(0).finally(() => console.log('finally'));
})();
