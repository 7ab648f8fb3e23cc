const frozen = Object.freeze({ k: 1 });
const bad = new Proxy(frozen, { get: () => 2 });
try { bad.k; console.log('no error'); } catch (e) { console.log(e.constructor.name); }
const noSet = new Proxy({}, { set: () => false });
(function () { 'use strict'; try { noSet.x = 1; } catch (e) { console.log(e.constructor.name); } })();
console.log(Array.isArray(new Proxy([], {})), typeof new Proxy(() => {}, {}));
