// What is alive is not finalized.
const registry = new FinalizationRegistry(() => console.log('wrong')); const kept = [];
for (let i = 0; i < 100; i++) { const o = { i }; kept.push(o); registry.register(o, i); }
gc(); setTimeout(() => { gc(); setTimeout(() => console.log(kept.length), 5); }, 5);
