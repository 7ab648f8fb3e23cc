// Stacks in the page: names of nodes, and the tree of any measure.
//
//   nodes (parents first) ──values──► inclusive sums ──children()──► merged boxes, made when looked at
//
// K1  A box merges all nodes of the same function under the same box: one name, one box.
// K2  Children are made only when asked for: a hundred thousand nodes cost one array until then.
// K3  Sums: a box's value is its own part plus its children's values, top-down; bottom-up, a child
//     is what came through that caller.
// K4  Damaged trees end: a parent that does not come before its child counts as the root.
// Not here: drawing (flame.js).

const STARTUP =
  /^(_start|__libc_start|start_thread|_?_?clone|std::rt::|std::panic|std::sys::|core::ops::function::)/;

const stacks = {
  /** Node numbers from the innermost out. */
  path(report, node) {
    const out = [];
    while (node > 0 && node < report.nodes.length) {
      out.push(node);
      const parent = report.nodes[node].parent;
      if (parent >= node) break;
      node = parent;
    }
    return out;
  },
  frame(report, node) {
    const entry = report.nodes[node];
    return (entry && report.frames[entry.frame]) || { function: "?", module: "" };
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
    return frames.find((frame) => !this.dull(report, frame)) || frames[0] || { function: "(no stack)", module: "" };
  },
  /** The lead in words; behind one without a name, the first caller that has one. */
  leadText(report, node) {
    const own = this.path(report, node)
      .map((n) => this.frame(report, n))
      .filter((frame) => !this.dull(report, frame));
    const lead = this.lead(report, node);
    const unnamed = (frame) => /^0x|\+0x/.test(frame.function);
    const text = (frame) => `${shorten(frame.function, 110)}  ${unnamed(frame) ? "" : this.place(frame)}`;
    const next = unnamed(lead) && own.find((frame) => !unnamed(frame) && !frame.function.startsWith("__libc_"));
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

/** The tree of one measure in one direction. */
class MeasureTree {
  constructor(report, measure, direction) {
    this.report = report;
    this.up = direction === "up";
    const size = report.nodes.length;
    this.own = new Float64Array(size);
    for (const site of report.sites) if (site.node < size) this.own[site.node] += measure.of(site);
    this.sum = this.own.slice();
    this.parent = new Uint32Array(size);
    for (let node = size - 1; node > 0; node--) {
      const parent = report.nodes[node].parent;
      this.parent[node] = parent < node ? parent : 0;
      this.sum[this.parent[node]] += this.sum[node];
    }
    this.total = size ? this.sum[0] : 0;
    if (!this.up) this.link(size);
    this.root = this.box(null, "all", "", this.total);
    this.root.members = this.up ? null : [0];
  }

  /** First child and next sibling of each node (CSR would need a second pass over sorted parents). */
  link(size) {
    this.first = new Uint32Array(size);
    this.next = new Uint32Array(size);
    for (let node = size - 1; node > 0; node--) {
      this.next[node] = this.first[this.parent[node]];
      this.first[this.parent[node]] = node;
    }
  }

  box(parent, name, key, value) {
    return {
      parent,
      name,
      key,
      value,
      depth: parent ? parent.depth + 1 : 0,
      members: [],
      amounts: [],
      kids: null,
      frame: null,
    };
  }

  children(box) {
    if (!box.kids) {
      const made = new Map();
      if (this.up) this.callers(box, made);
      else this.callees(box, made);
      box.kids = [...made.values()].filter((kid) => kid.value > 0).sort((a, b) => b.value - a.value);
    }
    return box.kids;
  }

  into(box, made, node, amount) {
    const frame = stacks.frame(this.report, node),
      key = frame.function + "\0" + frame.module;
    let kid = made.get(key);
    if (!kid) {
      kid = this.box(box, frame.function || "(no name)", key, 0);
      kid.frame = frame;
      made.set(key, kid);
    }
    kid.value += amount;
    kid.members.push(node);
    kid.amounts.push(amount);
  }

  callees(box, made) {
    for (const member of box.members)
      for (let node = this.first[member]; node; node = this.next[node])
        this.into(box, made, node, this.sum[node]);
  }

  callers(box, made) {
    if (!box.members) {
      for (let node = 1; node < this.own.length; node++)
        if (this.own[node] > 0) this.into(box, made, node, this.own[node]);
      return;
    }
    box.members.forEach((node, i) => {
      if (this.parent[node]) this.into(box, made, this.parent[node], box.amounts[i]);
    });
  }

  /** How much of the measure has a stack with a frame that matches; each site counts once. */
  matched(text) {
    const wanted = text.toLowerCase(),
      hit = this.report.frames.map((f) => matches(f, wanted));
    const within = new Uint8Array(this.own.length);
    let sum = 0;
    for (let node = 1; node < within.length; node++) {
      within[node] = hit[this.report.nodes[node].frame] || within[this.parent[node]] ? 1 : 0;
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
