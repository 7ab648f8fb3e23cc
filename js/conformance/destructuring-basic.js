// DIFFERS: Boa 0.22 keeps a nested property in the rest of a pattern (`others` has `b`).
// BOA: 1 5 {"d":2,"e":3} {"b":{"d":2,"e":3},"f":4} a c de
// BOA: 2 1
// BOA: 3undefined1 329
const { a, b: { c = 5, ...rest } = {}, ...others } = { a: 1, b: { d: 2, e: 3 }, f: 4 };
const [x, , y = 'def', ...z] = 'abcde'; console.log(a, c, JSON.stringify(rest), JSON.stringify(others), x, y, z.join(''));
let p = 1, q = 2; [p, q] = [q, p]; console.log(p, q);
const f = ({ n = 3, m } = {}, [u = 1] = []) => `${n}${m}${u}`; console.log(f(), f({ m: 2 }, [9]));
