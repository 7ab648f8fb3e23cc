var o = { inner: 'with' }; with (o) { console.log(inner); inner = 'changed'; } console.log(o.inner); undeclaredVar = 7; console.log(delete undeclaredVar);
console.log((function () { return this === globalThis; })(), (function () { 'use strict'; return this; })() === undefined); var dup = 1; var dup = 2; console.log(dup, 0o17, 0b11, 1_000);
