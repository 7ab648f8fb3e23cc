// The node workload: objects, maps, buffers and JSON; its own generator, the same output in every run.
'use strict';

let state = 20110805;
function below(limit) {
  state = (Math.imul(state, 1103515245) + 12345) & 0x7fffffff;
  return (state >>> 8) % limit;
}

function record(number) {
  const tags = Array.from({ length: 5 }, () => `tag${below(300)}`);
  return { number, name: `user-${below(100000)}`, tags, body: `body ${number} `.repeat(6) };
}

for (let round = 0; round < 4; round++) {
  const records = Array.from({ length: 20000 }, (_, number) => record(number));
  const byTag = new Map();
  for (const r of records) {
    for (const tag of r.tags) {
      if (!byTag.has(tag)) byTag.set(tag, []);
      byTag.get(tag).push(r.number);
    }
  }
  const text = JSON.stringify(records);
  const again = JSON.parse(text);
  const buffers = again.map((r) => Buffer.alloc(64 + below(8192), r.name));
  const bytes = buffers.reduce((sum, b) => sum + b.length, 0);
  console.log(round, byTag.size, text.length, again.length, bytes);
}
