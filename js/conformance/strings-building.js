let s = ''; for (let i = 0; i < 20000; i++) s += i % 10; console.log(s.length, s.slice(9995, 10005));
const parts = []; for (let i = 0; i < 20000; i++) parts.push('x' + i); const j = parts.join(','); console.log(j.length, j.indexOf('x19999'));
let rope = 'a'; for (let i = 0; i < 18; i++) rope = rope + rope; console.log(rope.length, rope.charAt(100000));
