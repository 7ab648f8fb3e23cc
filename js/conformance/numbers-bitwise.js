console.log(1 << 31, 1 << 32, -1 >>> 0, -1 >>> 28, 5 & 3, 5 | 3, 5 ^ 3, ~5, 2 ** 32 | 0, 2 ** 53 + 1 | 0, -5 % 3, 5.5 % 2);
let h = 0; for (const c of 'hash me') h = (h * 31 + c.charCodeAt(0)) | 0; console.log(h, (h >>> 0).toString(16));
