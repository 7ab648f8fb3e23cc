// Thousands of functions suspended at the same time.
const sleep = ms => new Promise(r => setTimeout(r, ms));
async function job(i) { const data = new Array(10).fill(i); await sleep(i % 3); return data.reduce((a, b) => a + b); }
Promise.all(Array.from({ length: 3000 }, (_, i) => job(i))).then(r => console.log(String(r.reduce((a, b) => a + b))));
