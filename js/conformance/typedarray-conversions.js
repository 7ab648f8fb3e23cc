console.log(Uint8Array.of(256, -1, 3.9).join(), Uint8ClampedArray.of(300, -5, 1.5, 2.5).join(), Int16Array.of(40000).join(), Float32Array.of(0.1)[0].toFixed(10));
console.log(new BigInt64Array([2n ** 63n]).join(), new Uint32Array([1, 2, 3]).map(x => x * 2 ** 31).join());
