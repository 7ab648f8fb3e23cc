// Windows: what each stack and size held at an edge, and did between two of them.
//
//   edge 0 ─changes─ edge 1 ─changes─ edge 2 …        a cell is one stack asking for one size
//   every so many edges a checkpoint; a question is one checkpoint and the few changes after it
//
// W1  Everything is a sum of blocks, so figures at an edge are exact; between edges nothing is claimed:
//     a moment means the last edge that is not after it.
// W2  A cell counts units: of a stack and a size that are told apart a unit is a block; what the
//     analysis counted together has three cells, of blocks and of bytes. What is of no stack is the
//     last site, beyond those of the report.
// W3  An answer costs the number of cells and of changes since a checkpoint, not of events.
// Not here: the run's figures (report.sites), what a span is called (span.js).

const CHECKPOINT_BYTES = 24e6;

class Windows {
  constructor(report, columns) {
    const get = (name) => columns.get(name) || new Float64Array(0),
      less = (values) => values.map((value) => value - 1);
    this.time = get("edges.time_ns");
    this.events = get("edges.events");
    this.edges = this.time.length;
    this.last = this.edges - 1;
    this.instantsOf = Array.from({ length: this.edges }, () => []);
    this.edgeOf = new Map();
    get("edge_instants.edge").forEach((edge, i) => {
      const instant = get("edge_instants.instant")[i];
      this.instantsOf[edge].push(instant);
      this.edgeOf.set(instant, edge);
    });
    this.sites = report.sites.length;
    // 0 is no site, else the site + 1.
    this.site = Uint32Array.from(get("cells.site"), (site) => (site ? site - 1 : this.sites));
    this.blocks = less(get("cells.blocks"));
    this.size = less(get("cells.size"));
    this.usable = less(get("cells.usable"));
    this.start = less(get("cells.start"));
    this.cells = this.site.length;
    this.end = get("changes.end");
    this.cell = Uint32Array.from(get("changes.cell"));
    this.acquired = get("changes.acquired");
    this.net = get("changes.net");
    this.foldedCells = get("folded.cells")[0] || 0;
    this.readTotals();
  }

  /** The whole process at each edge, and checkpoints on the way. */
  readTotals() {
    const sums = () => new Float64Array(this.edges);
    Object.assign(this, {
      liveBlocks: sums(),
      liveRequested: sums(),
      liveUsable: sums(),
      acquiredBlocks: sums(),
      acquiredUsable: sums(),
    });
    const every = Math.max(1, Math.ceil((this.edges * this.cells * 16) / CHECKPOINT_BYTES)),
      live = this.start.slice(),
      acquired = new Float64Array(this.cells);
    let [blocks, requested, usable, made, given] = [0, 0, 0, 0, 0];
    for (let c = 0; c < this.cells; c++) {
      blocks += live[c] * this.blocks[c];
      requested += live[c] * this.size[c];
      usable += live[c] * this.usable[c];
    }
    this.every = every;
    this.checkpoints = [];
    for (let e = 0; e < this.edges; e++) {
      for (let i = this.from(e); e && i < this.end[e - 1]; i++) {
        const c = this.cell[i],
          net = this.net[i];
        live[c] += net;
        acquired[c] += this.acquired[i];
        blocks += net * this.blocks[c];
        requested += net * this.size[c];
        usable += net * this.usable[c];
        made += this.acquired[i] * this.blocks[c];
        given += this.acquired[i] * this.usable[c];
      }
      if (e % every === 0) this.checkpoints.push({ live: live.slice(), acquired: acquired.slice() });
      this.liveBlocks[e] = blocks;
      this.liveRequested[e] = requested;
      this.liveUsable[e] = usable;
      this.acquiredBlocks[e] = made;
      this.acquiredUsable[e] = given;
    }
  }

  /** Where the changes of the bucket before an edge begin. */
  from(edge) {
    return edge > 1 ? this.end[edge - 2] : 0;
  }

  /** The last edge that is not after a moment (W1). */
  floor(ns) {
    let low = 0,
      high = this.edges;
    while (low < high) {
      const mid = (low + high) >> 1;
      if (this.time[mid] <= ns) low = mid + 1;
      else high = mid;
    }
    return Math.max(0, low - 1);
  }

  /** Units by cell at an edge: live then, and acquired up to then. */
  at(edge) {
    const base = Math.floor(edge / this.every),
      live = this.checkpoints[base].live.slice(),
      acquired = this.checkpoints[base].acquired.slice(),
      to = edge ? this.end[edge - 1] : 0;
    for (let i = this.from(base * this.every + 1); i < to; i++) {
      live[this.cell[i]] += this.net[i];
      acquired[this.cell[i]] += this.acquired[i];
    }
    return { live, acquired };
  }

  /** What is asked of a window, or (from = null) of an edge: see Amounts. */
  amounts(from, to) {
    return new Amounts(this, from, to);
  }
}

/**
 * Figures of one edge, or of the window from one to another, by site: `live…` at the end (or edge),
 * `acquired…`, `released…`, `grown…` within the window, or since the start of the run.
 */
class Amounts {
  constructor(windows, from, to) {
    Object.assign(this, { windows, from, to });
    this.after = windows.at(to);
    this.before = windows.at(from === null ? 0 : from);
    this.made = new Map();
  }

  /** A figure by cell. */
  ofCell(id, c) {
    const { windows: w, after, before } = this;
    const made = after.acquired[c] - before.acquired[c],
      grown = after.live[c] - before.live[c];
    switch (id) {
      case "live_blocks":
        return after.live[c] * w.blocks[c];
      case "live_requested_bytes":
        return after.live[c] * w.size[c];
      case "live_usable_bytes":
        return after.live[c] * w.usable[c];
      case "live_slop":
        return after.live[c] * (w.usable[c] - w.size[c]);
      case "acquired_blocks":
        return made * w.blocks[c];
      case "acquired_bytes":
        return made * w.usable[c];
      case "acquired_slop":
        return made * (w.usable[c] - w.size[c]);
      case "released_blocks":
        return (made - grown) * w.blocks[c];
      case "released_bytes":
        return (made - grown) * w.usable[c];
      case "net_blocks":
        return grown * w.blocks[c];
      case "net_bytes":
        return grown * w.usable[c];
    }
    throw new Error(`no such figure: ${id}`);
  }

  /** A figure by site, the last of none; kept, since several views ask for the same. */
  bySite(id) {
    let sums = this.made.get(id);
    if (sums) return sums;
    const w = this.windows;
    sums = new Float64Array(w.sites + 1);
    if (id === "grown_bytes" || id === "shrunk_bytes") {
      const sign = id === "grown_bytes" ? 1 : -1,
        net = this.bySite("net_bytes");
      for (let s = 0; s < sums.length; s++) sums[s] = Math.max(0, sign * net[s]);
    } else {
      for (let c = 0; c < w.cells; c++) sums[w.site[c]] += this.ofCell(id, c);
    }
    this.made.set(id, sums);
    return sums;
  }

  total(id) {
    return this.bySite(id).reduce((sum, value) => sum + value, 0);
  }

  /**
   * Rows by size asked for, as those of the report, but of this window; and what of it has no size,
   * as sizes were counted together.
   */
  bySize() {
    if (this.sizes) return this.sizes;
    const w = this.windows,
      rows = new Map(),
      apart = { live_blocks: 0, live_bytes: 0, live_slop_bytes: 0, allocations: 0 };
    for (let c = 0; c < w.cells; c++) {
      const live = this.after.live[c],
        made = this.after.acquired[c] - this.before.acquired[c],
        net = live - this.before.live[c];
      if (!live && !made && !net) continue;
      if (!w.blocks[c] || !w.usable[c]) {
        apart.live_blocks += live * w.blocks[c];
        apart.allocations += made * w.blocks[c];
        apart.live_bytes += live * w.size[c];
        apart.live_slop_bytes += live * (w.usable[c] - w.size[c]);
        continue;
      }
      let row = rows.get(w.size[c]);
      if (!row) {
        row = { size: w.size[c], usable: 0, most: -1, live_blocks: 0, live_slop_bytes: 0 };
        Object.assign(row, { allocations: 0, slop_bytes: 0, net_blocks: 0 });
        rows.set(row.size, row);
      }
      if (live + made > row.most) {
        row.most = live + made;
        row.usable = w.usable[c];
      }
      row.live_blocks += live;
      row.live_slop_bytes += live * (w.usable[c] - w.size[c]);
      row.allocations += made;
      row.slop_bytes += made * (w.usable[c] - w.size[c]);
      row.net_blocks += net;
    }
    return (this.sizes = { rows: [...rows.values()], apart });
  }
}
