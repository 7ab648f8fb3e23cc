let f = 1n; for (let i = 1n; i <= 30n; i++) f *= i; console.log(String(f), f.toString(16), (f % 1000007n).toString());
console.log(String(-7n / 2n), String(-7n % 2n), String(2n ** 100n), String(5n << 70n >> 68n), String(~5n), String(-5n & 3n), String(BigInt.asUintN(8, -1n)), String(BigInt.asIntN(8, 255n)));
console.log(1n < 2, 2n == 2, 2n === 2, typeof 1n, BigInt('0xff').toString(), 0n ? 't' : 'f');
