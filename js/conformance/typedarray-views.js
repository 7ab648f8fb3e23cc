const buf = new ArrayBuffer(16); const u8 = new Uint8Array(buf), f64 = new Float64Array(buf), dv = new DataView(buf);
f64[0] = 1.5; console.log([...u8.subarray(0, 8)].join());
dv.setInt32(8, -2, false); dv.setUint16(12, 0xabcd, true); console.log([...u8.slice(8)].join(), dv.getInt32(8), dv.getUint16(12, true).toString(16));
