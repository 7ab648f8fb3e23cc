const a = []; for (let i = 0; i < 200000; i++) a.push(i * 7 % 1000); let s = 0; for (const x of a) s += x; console.log(a.length, s);
a.sort((x, y) => x - y); console.log(a[0], a[100000], a.at(-1)); a.length = 10; console.log(a.join());
