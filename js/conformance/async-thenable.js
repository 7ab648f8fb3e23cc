const thenable = { then(ok) { ok('from thenable'); } };
(async () => { console.log(await thenable); })();
Promise.resolve(thenable).then(v => console.log('resolved ' + v));
new Promise((ok, no) => { no(new Error('first')); ok('late'); }).catch(e => console.log(e.message));
Promise.reject(1).then(() => 2, e => e + 10).then(v => console.log(String(v)));
