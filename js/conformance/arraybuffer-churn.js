// Buffers outside the heap, most of them dropped at once.
let sum = 0; for (let i = 0; i < 500; i++) { const b = new Uint8Array(100000); b[i] = i; sum += b[i] & 255; } console.log(String(sum));
