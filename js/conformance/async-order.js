const log = x => console.log(x);
log('start');
setTimeout(() => log('timeout'), 0);
Promise.resolve().then(() => log('micro 1')).then(() => log('micro 2'));
queueMicrotask(() => log('queued'));
(async () => { log('sync part'); await null; log('after await'); await new Promise(r => setTimeout(r, 3)); log('after timer'); })();
log('end');
