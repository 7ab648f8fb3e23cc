var v = 'outer'; (function () { console.log(v); var v = 'inner'; })(); try { t; let t = 1; } catch (e) { console.log(e.name); }
{ function hoisted() { return 'block'; } } console.log(hoisted(), typeof late); var late = 1; console.log((() => { try { return typeof inTdz; } catch (e) { return e.name; } finally { } let inTdz; })());
const fact = function self(n) { return n < 2 ? 1 : n * self(n - 1); }; console.log(fact(10)); console.log(new Function('a', 'b', 'return a*b')(6, 7), eval('var ev = 3; ev + 1'), typeof ev);
