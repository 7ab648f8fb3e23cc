// A tab with live data: a search tree of 150 nodes, each with a tree of records, built in ten turns, so that tabs that
// are opened together grow side by side. About 1.5 MB of objects and as much of what they hold outside.
(function () {
  let seed = 20081021 + (typeof tab === 'number' ? tab : 1);
  const random = () => (seed = (seed * 1103515245 + 12345) % 2147483648) / 2147483648;
  const record = (depth, tag) => depth === 0
    ? { array: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9], string: 'String for key ' + tag + ' in leaf node' }
    : { left: record(depth - 1, tag), right: record(depth - 1, tag) };
  let root = null, nodes = 0;
  const put = key => {
    const node = { key, value: record(5, key), left: null, right: null };
    nodes++;
    if (!root) { root = node; return; }
    for (let at = root; ;) {
      const side = key < at.key ? 'left' : 'right';
      if (!at[side]) { at[side] = node; return; }
      at = at[side];
    }
  };
  const leaves = r => r.array ? r.array.length + r.string.length % 7 : leaves(r.left) + leaves(r.right);
  // Not recursive over the tree: it may be deep.
  const checksum = () => {
    let sum = 0;
    const stack = root ? [root] : [];
    while (stack.length) {
      const at = stack.pop();
      sum = (sum * 31 + Math.floor(at.key * 1e9) + leaves(at.value)) % 4294967296;
      if (at.left) stack.push(at.left);
      if (at.right) stack.push(at.right);
    }
    return sum;
  };
  let expected = 0;
  const step = left => {
    for (let i = 0; i < 15; i++) put(random());
    if (left > 1) setTimeout(step, 0, left - 1); else expected = checksum();
  };
  setTimeout(step, 0, 10);
  onclose(() => console.log('tab ' + tab + ' ' + nodes + ' ' + (checksum() === expected ? 'whole ' + expected : 'DAMAGED')));
})();
