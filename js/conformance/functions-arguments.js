function f(a, b = a + 1, ...rest) { return [a, b, rest.length, arguments.length].join(); } console.log(f(1), f(1, 2, 3, 4), f.length, f.name);
function sloppy(a) { arguments[0] = 'changed'; return a; } function strict(a) { 'use strict'; arguments[0] = 'changed'; return a; } console.log(sloppy(1), strict(1));
const bound = function (x, y) { return this.k + x + y; }.bind({ k: 1 }, 2); console.log(bound(3), bound.length, bound.name === 'bound ', Math.max.apply(null, [1, 5, 2]), ((...a) => a.length)(...[1, 2], 3, ...'ab'));
