// Memory over time: lines over two clocks (heap and resident samples), marks, a readout, a table.
//
// L1  Free is anonymous resident memory minus live bytes given, at the samples of resident memory.
// L2  A negative figure is drawn at zero and said as it is; it is not turned into zero.
// L3  Left and Right move the cursor; the readout says every line at that moment, in words.

views.push({
  id: "timeline",
  title: "Memory over time",
  needs: [],
  curves(report) {
    const t = report.timeline,
      heap = t.heap_t_ns,
      rss = t.rss_t_ns;
    const at = (times, values, ns) => {
      const i = lowerBound(times, ns);
      return values[Math.min(i, values.length - 1)] || 0;
    };
    const pss = rss.map((ns, i) => [ns, t.pss_bytes[i]]).filter(([, v]) => v !== null && v !== undefined);
    return [
      { name: "Resident (RSS)", color: "--ink", x: rss, y: t.rss_bytes },
      { name: "PSS", color: "--c4", x: pss.map((p) => p[0]), y: pss.map((p) => p[1]) },
      { name: "Live, asked for", color: "--c0", x: heap, y: t.live_requested_bytes },
      {
        name: "Slop",
        color: "--c1",
        x: heap,
        y: t.live_usable_bytes.map((v, i) => v - t.live_requested_bytes[i]),
      },
      {
        name: "Anonymous, not live",
        color: "--c3",
        x: rss,
        y: heap.length ? rss.map((ns, i) => t.anon_bytes[i] - at(heap, t.live_usable_bytes, ns)) : [],
      },
    ].filter((curve) => curve.x.length);
  },
  render(report, state, place) {
    const curves = this.curves(report),
      w = Math.max(320, place.clientWidth - 34),
      h = 250,
      left = 64,
      bottom = 24,
      top = 10;
    place.append(
      head(
        this,
        "Heap lines: the largest within each interval. Dotted: marks. Anonymous, not live: free memory of the allocator, memory mapped past it, written data; drawn at zero where more is live than resident.",
      ),
    );
    if (!curves.length) {
      place.append(el("p", { class: "empty" }, "No samples were taken."));
      return;
    }
    const maxX = Math.max(1, report.program.duration_ns, ...curves.map((c) => c.x[c.x.length - 1]));
    const top_y = niceBytes(curves.reduce((m, c) => c.y.reduce((n, v) => Math.max(n, v), m), 1));
    const X = (ns) => left + ((w - left - 8) * ns) / maxX,
      Y = (v) => top + (h - top - bottom) * (1 - Math.max(0, v) / top_y);
    const svg = el("svg", {
      class: "chart",
      viewBox: `0 0 ${w} ${h}`,
      height: h,
      tabindex: 0,
      role: "slider",
      "aria-label": "Memory over time; left and right arrows move",
      "aria-valuemin": 0,
      "aria-valuemax": 1000,
      "aria-valuenow": 0,
    });
    for (let i = 0; i <= 4; i++) {
      const v = (top_y * i) / 4;
      svg.append(
        el("line", { class: "grid", x1: left, x2: w - 8, y1: Y(v), y2: Y(v) }),
        el("text", { x: left - 8, y: Y(v) + 4, "text-anchor": "end" }, figures.bytes(v)),
      );
      const ns = (maxX * i) / 4;
      svg.append(
        el(
          "text",
          { x: X(ns), y: h - 6, "text-anchor": i === 0 ? "start" : i === 4 ? "end" : "middle" },
          figures.duration(ns),
        ),
      );
    }
    for (const mark of report.marks.slice(0, 200))
      svg.append(
        el(
          "line",
          { class: "markline", x1: X(mark.time_ns), x2: X(mark.time_ns), y1: top, y2: h - bottom },
          el("title", {}, mark.name),
        ),
      );
    for (const c of curves)
      svg.append(
        el("path", {
          fill: "none",
          stroke: `var(${c.color})`,
          "stroke-width": 1.6,
          "stroke-linejoin": "round",
          d: c.x.map((ns, i) => `${i ? "L" : "M"}${X(ns).toFixed(1)} ${Y(c.y[i]).toFixed(1)}`).join(""),
        }),
      );
    const cursor = el("line", { class: "cursor", x1: -9, x2: -9, y1: top, y2: h - bottom });
    const readout = el(
      "div",
      { class: "readout" },
      "Point at the lines, or focus them and use the arrow keys.",
    );
    svg.append(cursor);
    let ns = maxX;
    const say = (value) => {
      ns = Math.max(0, Math.min(maxX, value));
      cursor.setAttribute("x1", X(ns));
      cursor.setAttribute("x2", X(ns));
      const near = report.marks.find((m) => Math.abs(X(m.time_ns) - X(ns)) < 4);
      const text =
        `${figures.duration(ns)}${near ? ` · mark “${near.name}”` : ""} — ` +
        curves
          .map((c) => `${c.name} ${figures.bytes(c.y[Math.min(c.y.length - 1, lowerBound(c.x, ns))])}`)
          .join(" · ");
      readout.textContent = text;
      svg.setAttribute("aria-valuenow", Math.round((ns / maxX) * 1000));
      svg.setAttribute("aria-valuetext", text);
    };
    svg.addEventListener("pointermove", (e) => {
      const box = svg.getBoundingClientRect();
      say(((((e.clientX - box.left) * w) / box.width - left) / (w - left - 8)) * maxX);
    });
    svg.addEventListener("keydown", (e) => {
      const step = { ArrowLeft: -0.01, ArrowRight: 0.01, PageUp: -0.1, PageDown: 0.1 }[e.key];
      if (step) say(ns + step * maxX);
      else if (e.key === "Home") say(0);
      else if (e.key === "End") say(maxX);
      else return;
      e.preventDefault();
    });
    place.append(
      el(
        "div",
        { class: "legend" },
        curves.map((c) => el("span", {}, el("i", { style: { background: `var(${c.color})` } }), c.name)),
      ),
      svg,
      readout,
      this.fallback(curves, maxX),
    );
  },
  fallback(curves, maxX) {
    const details = el(
      "details",
      {
        class: "fallback",
        ontoggle: () => {
          if (!details.open || details.querySelector("table")) return;
          const rows = Array.from({ length: 41 }, (_, i) => (maxX * i) / 40).map((ns) =>
            el(
              "tr",
              {},
              el("td", {}, figures.duration(ns)),
              curves.map((c) =>
                el("td", { class: "n" }, figures.bytes(c.y[Math.min(c.y.length - 1, lowerBound(c.x, ns))])),
              ),
            ),
          );
          details.append(
            el(
              "div",
              { class: "scroll" },
              el(
                "table",
                {},
                el(
                  "thead",
                  {},
                  el(
                    "tr",
                    {},
                    el("th", {}, "Time"),
                    curves.map((c) => el("th", { class: "n" }, c.name)),
                  ),
                ),
                el("tbody", {}, rows),
              ),
            ),
          );
        },
      },
      el("summary", {}, "As a table (41 moments)"),
    );
    return details;
  },
});

/** First index whose value is at least `value`; the length if none is. */
function lowerBound(sorted, value) {
  let low = 0,
    high = sorted.length;
  while (low < high) {
    const mid = (low + high) >> 1;
    if (sorted[mid] < value) low = mid + 1;
    else high = mid;
  }
  return low;
}

/** A round number of bytes, not below `value`, that has four round quarters. */
function niceBytes(value) {
  const unit = 2 ** Math.floor(Math.log2(value / 4 || 1));
  for (const factor of [1, 1.25, 1.5, 1.75, 2]) if (unit * factor * 4 >= value) return unit * factor * 4;
  return unit * 8;
}
