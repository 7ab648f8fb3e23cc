console.log(0.1 + 0.2, 1e21, 1e-7, -0, [-0].join(), (25).toString(36), (0.5).toString(2), (1234.5678).toFixed(2), (0.000001234).toExponential(2), (1234.5678).toPrecision(6));
console.log(Number('0b101'), Number(' 12 '), Number('12px'), parseInt('12px'), parseFloat('3.14abc'), Number(''), Number(null), Number([5]), Number.MAX_SAFE_INTEGER, 5e-324, 123456789012345680000);
console.log(Math.round(-0.5), Math.round(2.5), Math.max(), Math.hypot(3, 4), Math.sign(-3), Math.trunc(-4.7), Math.cbrt(27), Math.clz32(1), Math.imul(0xffffffff, 5), Math.fround(5.5));
