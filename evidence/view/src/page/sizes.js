// Sizes asked for: a histogram on a logarithmic axis, with the edges of the allocator's classes.
//
// Z1  Eight bins an octave; a bin holds the sum of its sizes, and the table below has the sizes.
// Z2  A class edge is a usable size that the allocator gave; none is taken from a table of ours.

views.push({
  id: "sizes",
  title: "Sizes asked for",
  needs: ["sizes", "span"],
  kinds: [
    ["bytes", "Live bytes asked for", "bytes", (r) => r.size * r.live_blocks],
    ["slop", "Live slop", "bytes", (r) => r.live_slop_bytes],
    ["blocks", "Live blocks", "count", (r) => r.live_blocks],
    ["allocations", "Allocations", "count", (r) => r.allocations],
  ],
  /** Rows of the span, and what its allocations are of. */
  rowsOf(report, one) {
    const amounts = one.own ? null : span.amounts(report, one);
    if (!amounts) return [report.sizes, "over the run", null];
    const { rows, apart } = amounts.bySize(),
      without = {
        bytes: apart.live_bytes,
        slop: apart.live_slop_bytes,
        blocks: apart.live_blocks,
        allocations: apart.allocations,
      };
    return [rows, one.kind === "window" ? one.at : "up to then", without];
  },
  render(report, state, place) {
    const [, kind, unit, of] = this.kinds.find((k) => k[0] === state.sizes),
      say = (v) => (unit === "bytes" ? figures.bytes(v) : figures.count(v));
    const one = span.of(report, state),
      [sizes, made, apart] = this.rowsOf(report, one),
      live = one.kind === "window" ? `at the end of the window from ${one.label}` : one.at,
      label = `${kind} ${state.sizes === "allocations" ? made : live}`;
    const told = sizes.reduce((s, r) => s + of(r), 0),
      folded = apart ? apart[state.sizes] : 0,
      total = told + folded;
    place.append(
      head(
        this,
        `${label}: ${say(total)} in all${folded ? `, of which ${say(folded)} in ${figures.count(report.windows.foldedCells)} small cases whose sizes are not told apart over time and not drawn` : ""}. Ticks below the axis: sizes that the allocator gave (its classes).`,
        choice(
          "Bars by",
          state.sizes,
          this.kinds.map((k) => [k[0], k[1]]),
          (v) => store.set({ sizes: v }),
        ),
      ),
    );
    if (!sizes.length) {
      place.append(el("p", { class: "empty" }, "No blocks."));
      return;
    }
    const bins = new Map(),
      bin = (size) => Math.floor(Math.log2(Math.max(1, size)) * 8 + 1e-9);
    for (const row of sizes) bins.set(bin(row.size), (bins.get(bin(row.size)) || 0) + of(row));
    const keys = [...bins.keys()],
      low = Math.min(...keys),
      high = Math.max(...keys) + 1,
      most = Math.max(1, ...bins.values()); // at most eight bins for each power of two
    const w = Math.max(320, place.clientWidth - 34),
      h = 210,
      left = 64,
      base = h - 34,
      X = (b) => left + ((w - left - 8) * (b - low)) / (high - low),
      Y = (v) => 8 + (base - 8) * (1 - v / most);
    const svg = el("svg", {
      class: "chart",
      viewBox: `0 0 ${w} ${h}`,
      height: h,
      tabindex: 0,
      role: "slider",
      "aria-label": "Histogram of sizes; left and right arrows move between bars",
      "aria-valuemin": 0,
      "aria-valuemax": keys.length - 1,
      "aria-valuenow": 0,
    });
    for (const f of [0, 0.5, 1])
      svg.append(
        el("line", { class: "grid", x1: left, x2: w - 8, y1: Y(most * f), y2: Y(most * f) }),
        el("text", { x: left - 8, y: Y(most * f) + 4, "text-anchor": "end" }, say(most * f)),
      );
    const edges = new Set(
      sizes
        .map((r) => r.usable)
        .filter((u) => u > 0)
        .map((u) => Math.round(X(Math.log2(u) * 8) * 2) / 2),
    );
    for (const x of edges)
      if (x >= left && x <= w - 8)
        svg.append(el("line", { x1: x, x2: x, y1: base + 1, y2: base + 7, stroke: "var(--soft)" }));
    const octaves = Math.ceil((high - low) / 8),
      every = Math.max(1, Math.ceil((octaves * 62) / (w - left)));
    for (let o = Math.ceil(low / 8); o * 8 <= high; o += every)
      svg.append(
        el(
          "text",
          { x: Math.min(X(o * 8), w - 4), y: h - 10, "text-anchor": X(o * 8) > w - 34 ? "end" : "middle" },
          figures.bytes(2 ** o),
        ),
      );
    const ordered = keys.sort((a, b) => a - b),
      bars = ordered.map((key) =>
        el("rect", {
          x: X(key) + 0.5,
          width: Math.max(1, X(key + 1) - X(key) - 1),
          y: Y(bins.get(key)),
          height: Math.max(0, base - Y(bins.get(key))),
          fill: state.sizes === "slop" ? "var(--c1)" : "var(--c0)",
        }),
      );
    const readout = el(
      "div",
      { class: "readout" },
      "Point at a bar, or focus the chart and use the arrow keys.",
    );
    let index = -1;
    const show = (i) => {
      if (bars[index]) bars[index].removeAttribute("stroke");
      index = Math.max(0, Math.min(bars.length - 1, i));
      bars[index].setAttribute("stroke", "var(--ink)");
      const key = ordered[index],
        rows = sizes.filter((r) => bin(r.size) === key).sort((a, b) => of(b) - of(a));
      const text =
        `${say(bins.get(key))}, ${figures.percent(bins.get(key), total)} of it: ` +
        rows
          .slice(0, 3)
          .map(
            (r) =>
              `${figures.count(r.size)} → ${figures.count(r.usable)} bytes (${figures.count(r.live_blocks)} live)`,
          )
          .join(", ") +
        (rows.length > 3 ? ` and ${rows.length - 3} other sizes` : "");
      readout.textContent = text;
      svg.setAttribute("aria-valuenow", index);
      svg.setAttribute("aria-valuetext", text);
    };
    svg.append(...bars);
    svg.addEventListener("pointermove", (e) => {
      const box = svg.getBoundingClientRect(),
        x = ((e.clientX - box.left) * w) / box.width;
      const i = ordered.findIndex((key) => x >= X(key) && x < X(key + 1));
      if (i >= 0) show(i);
    });
    svg.addEventListener("keydown", (e) => {
      if (e.key === "ArrowRight") show(index + 1);
      else if (e.key === "ArrowLeft") show(index - 1);
      else return;
      e.preventDefault();
    });
    const table = sortable({
      label: "Sizes",
      rows: sizes,
      start: 1,
      page: 40,
      columns: [
        { name: "Asked for", of: (r) => r.size, say: figures.count },
        { name: "Live bytes", of: (r) => r.size * r.live_blocks, say: figures.bytes, sum: true },
        { name: "Given", of: (r) => r.usable, say: figures.count },
        { name: "Live blocks", of: (r) => r.live_blocks, say: figures.count, sum: true },
        { name: "Live slop", of: (r) => r.live_slop_bytes, say: figures.bytes, sum: true },
        {
          name: `Allocations ${one.kind === "window" ? "in the window" : made}`,
          of: (r) => r.allocations,
          say: figures.count,
          sum: true,
        },
        ...(one.kind === "window"
          ? [{ name: "Net blocks", of: (r) => r.net_blocks, say: figures.changeCount, sum: true }]
          : []),
        { name: "Slop of these", of: (r) => r.slop_bytes, say: figures.bytes, sum: true },
      ],
    });
    place.append(
      svg,
      readout,
      el(
        "details",
        { class: "fallback" },
        el("summary", {}, `As a table (${figures.count(sizes.length)} sizes)`),
        table,
      ),
    );
  },
});
