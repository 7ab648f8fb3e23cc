// Memory over time: lines over two clocks (heap and resident samples), marks, a brush, a readout, a table.
//
// L1  Free is anonymous resident memory minus live bytes given, at the samples of resident memory.
// L2  A negative figure is drawn at zero and said as it is; it is not turned into zero.
// L3  The readout says every line at the pointer, in words; the brush (brush.js) chooses what all
//     other views are about.
// L4  Zoomed in, the heap's line also has the exact level at each edge of the windows.
// L5  Resident memory is known at its samples: what is said of a moment is the sample before it. PSS is
//     read more rarely and is never more than RSS: between readings the last one stands, at most RSS.

views.push({
  id: "timeline",
  title: "Memory over time",
  needs: ["span", "zoom"],
  keeps: true,
  curves(report) {
    const t = report.timeline,
      heap = t.heap_t_ns,
      rss = t.rss_t_ns;
    const at = (times, values, ns) => {
      const i = lowerBound(times, ns);
      return values[Math.min(i, values.length - 1)] || 0;
    };
    let read = null;
    const pss = [];
    rss.forEach((ns, i) => {
      read = t.pss_bytes[i] ?? read;
      if (read !== null) pss.push([ns, Math.min(read, t.rss_bytes[i])]);
    });
    return [
      { name: "Resident (RSS)", color: "--ink", sampled: true, x: rss, y: t.rss_bytes },
      { name: "PSS", color: "--c4", sampled: true, x: pss.map((p) => p[0]), y: pss.map((p) => p[1]) },
      { name: "Live, asked for", color: "--c0", x: heap, y: t.live_requested_bytes, fill: true },
      {
        name: "Slop",
        color: "--c1",
        x: heap,
        y: t.live_usable_bytes.map((v, i) => v - t.live_requested_bytes[i]),
      },
      {
        name: "Anonymous, not live",
        color: "--c3",
        sampled: true,
        x: rss,
        y: heap.length ? rss.map((ns, i) => t.anon_bytes[i] - at(heap, t.live_usable_bytes, ns)) : [],
      },
    ].filter((curve) => curve.x.length);
  },
  /** What of a curve lies in the part shown, with a point beyond at each side; L4. */
  part(report, curve, from, to, whole) {
    let x = curve.x,
      y = curve.y;
    const w = report.windows;
    if (!whole && w && (curve.name === "Live, asked for" || curve.name === "Slop")) {
      const exact = Array.from(w.time, (ns, e) => [
        ns,
        curve.fill ? w.liveRequested[e] : w.liveUsable[e] - w.liveRequested[e],
      ]);
      const all = [...x.map((ns, i) => [ns, y[i]]), ...exact].sort((a, b) => a[0] - b[0]);
      x = all.map((p) => p[0]);
      y = all.map((p) => p[1]);
    }
    const low = Math.max(0, lowerBound(x, from) - 1),
      high = Math.min(x.length, lowerBound(x, to) + 1);
    return { ...curve, x: x.slice(low, high), y: y.slice(low, high) };
  },
  render(report, state, place, changed) {
    if (changed && this.brush && !changed.includes("zoom")) {
      this.brush.update();
      return;
    }
    const focused =
      place.contains(document.activeElement) && document.activeElement.classList.contains("chart");
    place.replaceChildren();
    const all = this.curves(report),
      [from, to] = zoomed(report, state),
      whole = state.zoom === "" || from + to === 0;
    place.append(
      head(
        this,
        report.windows
          ? "Drag to choose a window, click for a moment: every view below is then of it. Heap lines: the largest within each interval. Dotted: marks."
          : "Heap lines: the largest within each interval. Dotted: marks.",
        el("button", { onclick: () => zoomBy(report, 0.5, span.of(report, store.state).to_ns) }, "Zoom in"),
        el("button", { disabled: whole, onclick: () => zoomBy(report, 2, (from + to) / 2) }, "Zoom out"),
        el("button", { disabled: whole, onclick: () => store.set({ zoom: "" }) }, "Whole run"),
      ),
    );
    if (!all.length) {
      place.append(el("p", { class: "empty" }, "No samples were taken."));
      return;
    }
    const curves = all.map((c) => this.part(report, c, from, to, whole));
    const size = {
      w: Math.max(320, place.clientWidth - 34),
      h: 260,
      left: 64,
      right: 8,
      bottom: 24,
      top: 26,
    };
    const svg = this.chart(report, curves, from, to, size);
    const readout = el(
      "div",
      { class: "readout" },
      "Point at the lines to read them; focus them and use the arrow keys (with Shift for a window) to choose.",
    );
    this.hover(report, svg, curves, from, to, size, readout);
    this.brush = report.windows
      ? new Brush(report, svg, {
          w: size.w,
          left: size.left,
          right: size.w - size.right,
          y: [size.top, size.h - size.bottom],
          range: () => [from, to],
          name: "Memory over time: arrows move the moment, with Shift they stretch a window, Escape resets",
        })
      : null;
    svg.addEventListener(
      "wheel",
      (e) => {
        if (!e.ctrlKey && !e.metaKey) return;
        e.preventDefault();
        const box = svg.getBoundingClientRect(),
          x = ((e.clientX - box.left) * size.w) / box.width;
        zoomBy(
          report,
          e.deltaY > 0 ? 1.3 : 1 / 1.3,
          from + ((x - size.left) / (size.w - size.left - size.right)) * (to - from),
        );
      },
      { passive: false },
    );
    place.append(
      el(
        "div",
        { class: "legend" },
        curves.map((c) => el("span", {}, el("i", { style: { background: `var(${c.color})` } }), c.name)),
      ),
      svg,
      readout,
      this.fallback(all, from, to),
    );
    if (focused) svg.focus({ preventScroll: true });
  },
  chart(report, curves, from, to, size) {
    const { w, h, left, right, top, bottom } = size;
    const top_y = niceBytes(curves.reduce((m, c) => c.y.reduce((n, v) => Math.max(n, v), m), 1));
    const X = (ns) => left + ((w - left - right) * (ns - from)) / (to - from),
      Y = (v) => top + (h - top - bottom) * (1 - Math.max(0, v) / top_y),
      wide = w - left - right;
    const svg = el("svg", { class: "chart brushed", viewBox: `0 0 ${w} ${h}`, height: h });
    for (let i = 0; i <= 4; i++) {
      const v = (top_y * i) / 4;
      svg.append(
        el("line", { class: "grid", x1: left, x2: w - right, y1: Y(v), y2: Y(v) }),
        el("text", { x: left - 8, y: Y(v) + 4, "text-anchor": "end" }, figures.bytes(v)),
      );
      const ns = from + ((to - from) * i) / 4;
      svg.append(
        el(
          "text",
          { x: X(ns), y: h - 6, "text-anchor": i === 0 ? "start" : i === 4 ? "end" : "middle" },
          to - from < to / 8 ? figures.moment(ns) : figures.duration(ns),
        ),
      );
    }
    // An svg within the svg cuts off what a zoom leaves outside.
    const inside = el("svg", { x: left, y: 0, width: wide, height: h, viewBox: `${left} 0 ${wide} ${h}` });
    for (const mark of report.marks.slice(0, 200))
      inside.append(
        el(
          "line",
          { class: "markline", x1: X(mark.time_ns), x2: X(mark.time_ns), y1: top, y2: h - bottom },
          el("title", {}, mark.name),
        ),
      );
    for (const c of curves) {
      const d = c.x.map((ns, i) => `${i ? "L" : "M"}${X(ns).toFixed(1)} ${Y(c.y[i]).toFixed(1)}`).join("");
      if (c.fill)
        inside.append(
          el("path", {
            fill: `var(${c.color})`,
            opacity: 0.13,
            d: `${d}L${X(c.x[c.x.length - 1]).toFixed(1)} ${Y(0)}L${X(c.x[0]).toFixed(1)} ${Y(0)}Z`,
          }),
        );
      inside.append(
        el("path", {
          fill: "none",
          stroke: `var(${c.color})`,
          "stroke-width": 1.6,
          "stroke-linejoin": "round",
          d,
        }),
      );
    }
    svg.append(inside, this.instants(report, X, size, from, to));
    return svg;
  },
  /** Names of the instants above the chart; a click chooses one. Those that would overlap are left out. */
  instants(report, X, { w, right, top, h, bottom }, from, to) {
    const group = el("g", {}),
      taken = [];
    const order = report.instants
      .map((instant, index) => ({ instant, index }))
      .filter(({ instant }) => instant.time_ns >= from && instant.time_ns <= to)
      .sort(
        (a, b) => Number(b.index === report.at) - Number(a.index === report.at) || a.instant.time_ns - b.instant.time_ns,
      );
    for (const { instant, index } of order) {
      const x = X(instant.time_ns),
        text = shorten(instant.label, 26),
        wide = text.length * 6.1 + 14,
        start = Math.min(x - 3, w - right - wide);
      group.append(el("line", { class: "tick", x1: x, x2: x, y1: top - 5, y2: h - bottom }));
      if (taken.some((other) => start < other.end && other.start < start + wide)) continue;
      taken.push({ start, end: start + wide });
      group.append(
        el(
          "text",
          {
            x: start + 3,
            y: top - 10,
            class: "instant",
            onclick: () => store.set({ span: index === report.at ? "" : `i${index}` }),
          },
          text,
        ),
      );
    }
    return group;
  },
  /** What a line is at a moment (L5). */
  known(curve, ns) {
    const next = lowerBound(curve.x, ns),
      before = curve.sampled && curve.x[next] !== ns ? Math.max(0, next - 1) : next;
    return curve.y[Math.min(curve.y.length - 1, before)];
  },
  hover(report, svg, curves, from, to, { w, h, left, right, top, bottom }, readout) {
    const cursor = el("line", { class: "cursor", x1: -9, x2: -9, y1: top, y2: h - bottom });
    svg.append(cursor);
    svg.addEventListener("pointermove", (e) => {
      const box = svg.getBoundingClientRect(),
        x = Math.max(left, Math.min(w - right, ((e.clientX - box.left) * w) / box.width)),
        ns = from + ((x - left) / (w - left - right)) * (to - from);
      cursor.setAttribute("x1", x);
      cursor.setAttribute("x2", x);
      const near = report.marks.find((m) => Math.abs(m.time_ns - ns) < ((to - from) * 4) / w);
      readout.textContent =
        `${figures.moment(ns)}${near ? ` · mark “${near.name}”` : ""} — ` +
        curves
          .map((c) => `${c.name} ${figures.bytes(this.known(c, ns))}`)
          .join(" · ");
    });
    svg.addEventListener("pointerleave", () => {
      for (const end of ["x1", "x2"]) cursor.setAttribute(end, -9);
    });
  },
  fallback(curves, from, to) {
    const details = el(
      "details",
      {
        class: "fallback",
        ontoggle: () => {
          if (!details.open || details.querySelector("table")) return;
          const rows = Array.from({ length: 41 }, (_, i) => from + ((to - from) * i) / 40).map((ns) =>
            el(
              "tr",
              {},
              el("td", {}, figures.moment(ns)),
              curves.map((c) =>
                el("td", { class: "n" }, figures.bytes(this.known(c, ns))),
              ),
            ),
          );
          const heads = curves.map((c) => el("th", { class: "n" }, c.name));
          details.append(
            el(
              "div",
              { class: "scroll" },
              el(
                "table",
                {},
                el("thead", {}, el("tr", {}, el("th", {}, "Time"), heads)),
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
