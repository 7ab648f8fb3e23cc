const lib = (function () { const secret = Symbol('s'); const o = { [secret]: 7 }; return { peek: () => o[secret] }; })();
console.log(String(lib.peek()));
console.log((function f(n) { return n < 2 ? n : f(n - 1) + f(n - 2); })(18).toString());
