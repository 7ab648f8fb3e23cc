// Stacks in the page: names of nodes, and the tree of any measure.
//
//   nodes (parents first) ──values──► inclusive sums ──children()──► merged boxes, made when looked at
//
// K1  A box merges all nodes of the same function under the same box: one name, one box.
// K2  Children are made only when asked for: a hundred thousand nodes cost one array until then.
// K3  Sums: a box's value is its own part plus its children's values, top-down; bottom-up, a child
//     is what came through that caller.
// K4  Damaged trees end: a parent that does not come before its child counts as the root (columns.js).
// K5  A function's total counts each stack once: at its outermost frame of that function. The callers
//     above it and the callees below have that same total.
// K6  What is not told apart by stack is a box of its own below the root, so that sums hold.
// Not here: drawing (flame.js).

const STARTUP =
  /^((_start|start_thread|(__)?clone3?|__clone_internal)(@|$)|__libc_start_|__rust_begin_short|std::rt::|std::panic|std::sys::|core::ops::function::)/;

const stacks = {
  /** Node numbers from the innermost out. */
  path(report, node) {
    const out = [];
    while (node > 0 && node < report.parents.length) {
      out.push(node);
      node = report.parents[node];
    }
    return out;
  },
  frame(report, node) {
    return report.frames[report.frameOf[node]] || { function: "?", module: "" };
  },
  /** Whether a frame only passes an allocation on (the report says so), or comes before main. */
  dull(report, frame) {
    if (this.of !== report) {
      this.of = report;
      this.plumbing = new Set(report.plumbing.map((index) => report.frames[index]));
    }
    return this.plumbing.has(frame) || STARTUP.test(frame.function);
  },
  place(frame) {
    if (!frame.file) return frame.module;
    const file = frame.file.split("/").slice(-2).join("/");
    return frame.line ? `${file}:${frame.line}` : file;
  },
  /** The innermost frame that is not plumbing, or the innermost. */
  lead(report, node) {
    const frames = this.path(report, node).map((n) => this.frame(report, n));
    return (
      frames.find((frame) => !this.dull(report, frame)) || frames[0] || { function: "(no stack)", module: "" }
    );
  },
  /** The lead in words; behind one without a name, the first caller that has one. */
  leadText(report, node) {
    const own = this.path(report, node)
      .map((n) => this.frame(report, n))
      .filter((frame) => !this.dull(report, frame));
    const lead = this.lead(report, node);
    const unnamed = (frame) => /^0x|\+0x/.test(frame.function);
    const text = (frame) => `${shorten(frame.function, 110)}  ${unnamed(frame) ? "" : this.place(frame)}`;
    const next =
      unnamed(lead) && own.find((frame) => !unnamed(frame) && !frame.function.startsWith("__libc_"));
    return next ? `${text(lead).trim()} ← ${text(next)}` : text(lead).trim();
  },
  /** A list of frames, the dull ones fainter, innermost first. */
  list(report, node) {
    const items = this.path(report, node).map((n) => {
      const frame = this.frame(report, n);
      return el(
        "li",
        { class: this.dull(report, frame) ? "dull" : null },
        frame.function || "(no name)",
        el("span", { class: "where" }, this.place(frame) + (frame.inlined ? " (inlined)" : "")),
      );
    });
    return items.length ? el("ol", { class: "stack" }, items) : el("p", { class: "soft" }, "No stack.");
  },
};

/** A function's name in the page's address. All files of a script have one module, and each has its `<module>`. */
function functionKey(frame) {
  const file = frame.module.startsWith("[") ? `|${frame.file || ""}` : "";
  return `${frame.function}|${frame.module}${file}`;
}

/** What depends on the stacks alone, and is worked out once. */
function structureOf(report) {
  if (report.structure) return report.structure;
  const { parents, frameOf, frames } = report,
    size = parents.length;
  // One number for each function: boxes merge by it, and numbers compare faster than names.
  const ids = new Map(),
    names = [];
  const functionOfFrame = frames.map((f) => {
    const key = functionKey(f);
    let id = ids.get(key);
    if (id === undefined) {
      ids.set(key, (id = names.length));
      names.push(f);
    }
    return id;
  });
  const functionOf = new Uint32Array(size),
    first = new Uint32Array(size),
    next = new Uint32Array(size);
  // First child and next sibling of each node (CSR would need a second pass over sorted parents).
  for (let node = size - 1; node > 0; node--) {
    functionOf[node] = functionOfFrame[frameOf[node]] || 0;
    next[node] = first[parents[node]];
    first[parents[node]] = node;
  }
  // K5: walked with a count for each function on the way, so that a node knows whether it is the
  // outermost of its function.
  const outermost = new Uint8Array(size),
    open = new Uint32Array(names.length);
  for (let node = first[0] || 0; node;) {
    if (!open[functionOf[node]]++) outermost[node] = 1;
    if (first[node]) {
      node = first[node];
      continue;
    }
    while (node) {
      open[functionOf[node]]--;
      if (next[node]) {
        node = next[node];
        break;
      }
      node = parents[node];
    }
  }
  const slot = new Uint32Array(names.length), // scratch of callees()
    stamp = new Uint32Array(names.length);
  return (report.structure = { names, ids, functionOf, first, next, outermost, slot, stamp, tick: 0 });
}

/** The tree of one measure in one direction; `values` are by site, the last of no stack (K6). */
class MeasureTree {
  constructor(report, values, direction) {
    const size = report.parents.length;
    Object.assign(this, { report, up: direction === "up", parent: report.parents });
    this.structure = structureOf(report);
    this.own = new Float64Array(size);
    const nodes = report.siteNodes;
    for (let s = 0; s < nodes.length; s++) if (nodes[s] < size) this.own[nodes[s]] += values[s];
    this.sum = this.own.slice();
    for (let node = size - 1; node > 0; node--) this.sum[this.parent[node]] += this.sum[node];
    this.others = values[report.sites.length] || 0;
    this.total = (size ? this.sum[0] : 0) + this.others;
    this.root = this.box(null, "all", null, this.total, this.up);
    this.root.members = this.up ? null : [0];
  }

  box(parent, name, key, value, up) {
    return {
      parent,
      name,
      key,
      value,
      up,
      depth: parent ? parent.depth + 1 : 0,
      members: [],
      amounts: [],
      kids: null,
      frame: null,
    };
  }

  children(box) {
    if (!box.kids) {
      const kids = box.up ? this.callers(box) : this.callees(box);
      if (!box.parent && this.others && box === this.root)
        kids.push(this.box(box, "(small stacks, not told apart over time)", -1, this.others, box.up));
      box.kids = kids.filter((kid) => kid.value > 0).sort((a, b) => b.value - a.value);
    }
    return box.kids;
  }

  kid(box, node) {
    const kid = this.box(box, "", this.structure.functionOf[node], 0, box.up);
    kid.frame = stacks.frame(this.report, node);
    kid.name = kid.frame.function || "(no name)";
    return kid;
  }

  callees(box) {
    const kids = [],
      structure = this.structure,
      { first, next, functionOf, slot, stamp } = structure,
      sum = this.sum,
      tick = ++structure.tick;
    for (const member of box.members)
      for (let node = first[member]; node; node = next[node]) {
        if (!sum[node]) continue;
        const id = functionOf[node];
        if (stamp[id] !== tick) {
          stamp[id] = tick;
          slot[id] = kids.push(this.kid(box, node)) - 1;
        }
        const kid = kids[slot[id]];
        kid.value += sum[node];
        kid.members.push(node);
      }
    return kids;
  }

  callers(box) {
    const made = new Map();
    const into = (node, amount) => {
      const key = this.structure.functionOf[node];
      let kid = made.get(key);
      if (!kid) made.set(key, (kid = this.kid(box, node)));
      kid.value += amount;
      kid.members.push(node);
      kid.amounts.push(amount);
    };
    if (!box.members) {
      for (let node = 1; node < this.own.length; node++) if (this.own[node] > 0) into(node, this.own[node]);
    } else
      box.members.forEach((node, i) => {
        if (this.parent[node]) into(this.parent[node], box.amounts[i]);
      });
    return [...made.values()];
  }

  /** Every function: what came through it (each stack once, however it recurses) and what it asked for itself. */
  functions() {
    const { names, functionOf, outermost } = this.structure,
      total = new Float64Array(names.length),
      self = new Float64Array(names.length);
    for (let node = 1; node < this.own.length; node++) {
      const id = functionOf[node];
      self[id] += this.own[node];
      if (outermost[node]) total[id] += this.sum[node];
    }
    const rows = [];
    for (let id = 0; id < names.length; id++)
      if (total[id] > 0) rows.push({ id, frame: names[id], total: total[id], self: self[id] });
    return rows;
  }

  /** Who called a function, and what it called: two trees of the same whole (K5). */
  sandwich(id) {
    const members = [],
      amounts = [];
    for (let node = 1; node < this.own.length; node++)
      if (this.structure.outermost[node] && this.structure.functionOf[node] === id && this.sum[node] > 0) {
        members.push(node);
        amounts.push(this.sum[node]);
      }
    const value = amounts.reduce((sum, amount) => sum + amount, 0),
      frame = this.structure.names[id];
    const half = (up) =>
      Object.assign(this.box(null, frame.function || "(no name)", id, value, up), {
        members,
        amounts,
        frame,
      });
    return { value, callers: half(true), callees: half(false) };
  }

  /** How much of the measure has a stack with a frame that matches; each site counts once. */
  matched(text) {
    const wanted = text.toLowerCase(),
      hit = this.report.frames.map((f) => matches(f, wanted));
    const within = new Uint8Array(this.own.length);
    let sum = 0;
    for (let node = 1; node < within.length; node++) {
      within[node] = hit[this.report.frameOf[node]] || within[this.parent[node]] ? 1 : 0;
      if (within[node]) sum += this.own[node];
    }
    return sum;
  }
}

function matches(frame, wanted) {
  return (
    frame.function.toLowerCase().includes(wanted) ||
    (frame.file || frame.module || "").toLowerCase().includes(wanted)
  );
}
