// The brush: a moment or a window chosen on a line of time, by pointer and by keyboard.
//
//   drag: a window    click: a moment    drag the window: move it    drag an end: change it
//   ← → to the next edge    Shift ← → stretch    Alt ← → move the window    Page: a tenth    Esc: back
//
// B1  The brush chooses edges (windows.js), never something between two of them; what is drawn is what
//     the figures are of.
// B2  A pointer is followed once for each frame, however fast it sends.
// B3  Without windows it is not there; the chart is read by its readout alone.
// Not here: the curves (timeline.js), what the choice is called (span.js).

class Brush {
  /** `svg` has the viewBox `w` × `h`; `range()` is [ns, ns] of its left and right; `y` its [top, bottom]. */
  constructor(report, svg, { w, left, right, y, range, name }) {
    Object.assign(this, { report, svg, w, left, right, y, range, windows: report.windows, anchor: null });
    const [top, bottom] = y,
      height = bottom - top;
    const rect = (cls) => el("rect", { class: cls, y: top, height, x: 0, width: 0 });
    this.shade = [rect("brush-shade"), rect("brush-shade")];
    this.body = rect("brush-body");
    this.ends = [0, 1].map((end) =>
      el("rect", { class: "brush-end", y: top, height, width: 7, x: -20, "data-end": end }),
    );
    this.line = el("line", { class: "brush-line", y1: top, y2: bottom, x1: -20, x2: -20 });
    this.layer = el("g", {}, this.shade, this.body, this.line, this.ends);
    svg.append(this.layer);
    for (const [key, value] of Object.entries({
      tabindex: 0,
      role: "slider",
      "aria-label": name,
      "aria-valuemin": 0,
    }))
      svg.setAttribute(key, value);
    svg.setAttribute("aria-valuemax", this.windows.last);
    svg.addEventListener("pointerdown", (e) => this.down(e));
    svg.addEventListener("pointermove", (e) => this.moved(e));
    svg.addEventListener("pointerup", (e) => this.up(e));
    svg.addEventListener("pointercancel", () => (this.drag = null));
    svg.addEventListener("dblclick", () => store.set({ span: "" }));
    svg.addEventListener("keydown", (e) => this.keyed(e));
    this.update();
  }
  X(ns) {
    const [from, to] = this.range();
    return this.left + ((this.right - this.left) * (ns - from)) / (to - from || 1);
  }
  ns(event) {
    const box = this.svg.getBoundingClientRect(),
      x = ((event.clientX - box.left) * this.w) / (box.width || 1),
      [from, to] = this.range();
    const ns = from + ((x - this.left) / (this.right - this.left)) * (to - from);
    return Math.max(from, Math.min(to, ns));
  }
  span() {
    return span.of(this.report, store.state);
  }
  down(event) {
    if (event.button) return;
    const ns = this.ns(event),
      now = this.span(),
      end = event.target.dataset && event.target.dataset.end;
    this.drag = { at: ns, x: event.clientX, from: now.from_ns, to: now.to_ns, kind: "new" };
    if (now.kind === "window" && end !== undefined) {
      this.drag.kind = "end";
      this.drag.at = end === "0" ? now.to_ns : now.from_ns;
    } else if (now.kind === "window" && event.target === this.body) this.drag.kind = "move";
    try {
      this.svg.setPointerCapture(event.pointerId);
    } catch (_) {
      /* a pointer that is already gone */
    }
  }
  moved(event) {
    if (
      !this.drag ||
      (this.drag.kind !== "end" && Math.abs(event.clientX - this.drag.x) < 3 && !this.drag.moved)
    )
      return;
    this.drag.moved = true;
    this.drag.last = this.ns(event);
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.follow();
    });
  }
  follow() {
    const drag = this.drag;
    if (!drag || drag.last === undefined) return;
    if (drag.kind === "move") this.shift(drag.from + drag.last - drag.at, drag.to - drag.from);
    else this.choose(Math.min(drag.at, drag.last), Math.max(drag.at, drag.last));
  }
  up(event) {
    if (!this.drag) return;
    if (this.drag.moved) this.follow();
    else if (this.drag.kind !== "end") this.choose(this.ns(event), this.ns(event));
    this.drag = null;
  }
  choose(from_ns, to_ns) {
    this.set(span.text(this.report, from_ns, to_ns));
  }
  /** The window of the same length that begins at a moment; it stops at both ends of the run. */
  shift(from_ns, length) {
    const last = this.windows.time[this.windows.last],
      from = Math.max(this.windows.time[0], Math.min(last - length, from_ns));
    this.choose(from, from + length);
  }
  set(text) {
    if (text !== store.state.span) store.set({ span: text });
  }
  keyed(event) {
    const w = this.windows,
      now = this.span(),
      step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -0.1, PageDown: 0.1, Home: -Infinity, End: Infinity }[
        event.key
      ];
    if (event.key === "Escape") {
      this.set("");
      return;
    }
    if (event.key === "+" || event.key === "-") {
      zoomBy(this.report, event.key === "+" ? 0.5 : 2, now.to_ns);
      event.preventDefault();
      return;
    }
    if (step === undefined) return;
    event.preventDefault();
    const [from_ns, to_ns] = this.range();
    const to = (edge) => {
      if (step === -Infinity) return 0;
      if (step === Infinity) return w.last;
      if (Math.abs(step) === 1) return Math.max(0, Math.min(w.last, edge + step));
      const next = w.floor(w.time[edge] + step * (to_ns - from_ns));
      return next === edge ? Math.max(0, Math.min(w.last, edge + Math.sign(step))) : next;
    };
    if (event.altKey && now.kind === "window") {
      const edge = to(step > 0 ? now.to : now.from),
        by = edge - (step > 0 ? now.to : now.from);
      this.set(`e${now.from + by}-e${now.to + by}`);
    } else if (event.shiftKey) {
      // As with text: one end stays where the window was begun, the other follows the keys.
      if (now.kind !== "window") this.anchor = now.to;
      if (this.anchor === null || (this.anchor !== now.from && this.anchor !== now.to))
        this.anchor = now.from;
      const moving = now.kind !== "window" ? now.to : this.anchor === now.from ? now.to : now.from,
        edge = to(moving);
      this.set(
        edge === this.anchor ? `e${edge}` : `e${Math.min(edge, this.anchor)}-e${Math.max(edge, this.anchor)}`,
      );
    } else this.set(`e${to(now.kind === "window" ? (step > 0 ? now.to : now.from) : now.to)}`);
  }
  /** Draws what is chosen. */
  update() {
    const now = this.span(),
      clamp = (x) => Math.max(this.left, Math.min(this.right, x)),
      place = (rect, from, to) => {
        rect.setAttribute("x", from);
        rect.setAttribute("width", Math.max(0, to - from));
      };
    const window = now.kind === "window",
      from = window ? clamp(this.X(now.from_ns)) : 0,
      to = window ? clamp(this.X(now.to_ns)) : 0;
    place(this.shade[0], this.left, window ? from : this.left);
    place(this.shade[1], window ? to : this.right, this.right);
    place(this.body, from, window ? Math.max(to, from + 1) : 0);
    this.ends.forEach((end, i) => end.setAttribute("x", window ? (i ? to : from) - 3.5 : -20));
    const x = window ? -20 : this.X(now.to_ns);
    for (const end of ["x1", "x2"])
      this.line.setAttribute(end, x < this.left - 1 || x > this.right + 1 ? -20 : x);
    this.svg.setAttribute("aria-valuenow", now.to);
    this.svg.setAttribute("aria-valuetext", now.label);
  }
}

/** The part of the run that the timeline shows: [ns, ns]. */
function zoomed(report, state) {
  const end = Math.max(
      1,
      report.program.duration_ns,
      report.windows ? report.windows.time[report.windows.last] : 0,
    ),
    found = /^(\d+)-(\d+)$/.exec(state.zoom);
  if (!found) return [0, end];
  const from = Math.min(+found[1], end - 1),
    to = Math.min(+found[2], end);
  return to > from ? [from, to] : [0, end];
}

/** Shows a part of the run that is `factor` as long as now, around a moment. */
function zoomBy(report, factor, ns) {
  const [from, to] = zoomed(report, store.state),
    [, end] = zoomed(report, { zoom: "" }),
    length = Math.max(1000, (to - from) * factor);
  if (length >= end * 0.999) return store.set({ zoom: "" }); // the ends are whole nanoseconds
  const middle = Math.max(from, Math.min(to, ns)),
    start = Math.max(0, Math.min(end - length, middle - ((middle - from) / (to - from)) * length));
  store.set({ zoom: `${Math.round(start)}-${Math.round(start + length)}` });
}

/** The line below the navigation: what every figure is of, its sums, and a small brush. */
const bar = {
  render(report, state, place) {
    const w = report.windows;
    if (!this.made) this.build(report, place);
    const now = span.of(report, state);
    const choices = [
      [
        "",
        `At ${report.instants[report.at] ? instantLabel(report.instants[report.at]) : "the report's instant"}`,
      ],
    ];
    report.instants.forEach(
      (instant, i) => i !== report.at && choices.push([`i${i}`, `At ${instantLabel(instant)}`]),
    );
    if (w) choices.push([`e0-e${w.last}`, "The whole run, as a window"]);
    const value = now.own ? "" : now.instant !== null ? `i${now.instant}` : state.span;
    if (!choices.some(([id]) => id === value))
      choices.unshift([value, now.kind === "window" ? `Window ${now.label}` : `At ${now.label}`]);
    this.pick.replaceChildren(choice("Figures of", value, choices, (v) => store.set({ span: v })));
    this.sums.textContent = this.words(report, now);
    this.reset.disabled = now.own;
    this.zoom.disabled = now.kind !== "window";
    if (this.brush) this.brush.update();
  },
  build(report, place) {
    this.made = true;
    this.pick = el("span");
    this.sums = el("span", { class: "sums", "aria-live": "polite" });
    this.reset = el("button", { onclick: () => store.set({ span: "" }) }, "Reset");
    this.zoom = el(
      "button",
      {
        onclick: () => {
          const now = span.of(report, store.state);
          store.set({ zoom: `${Math.floor(now.from_ns)}-${Math.ceil(now.to_ns)}` });
          document.getElementById("timeline").scrollIntoView();
        },
      },
      "Zoom to it",
    );
    place.append(
      el(
        "div",
        { class: "line" },
        this.pick,
        this.sums,
        el("span", { class: "tools" }, this.zoom, this.reset),
      ),
    );
    if (report.windows) place.append(this.strip(report));
  },
  /** The whole run, small: live bytes at each edge, and a brush over it. */
  strip(report) {
    const w = report.windows,
      end = w.time[w.last] || 1,
      most = w.liveUsable.reduce((a, b) => Math.max(a, b), 1);
    let d = "M0 30";
    for (let e = 0; e < w.edges; e++) {
      const x = ((w.time[e] / end) * 1000).toFixed(1),
        y = (30 - 28 * (w.liveUsable[e] / most)).toFixed(1);
      d += `H${x}V${y}`;
    }
    const svg = el("svg", { class: "strip", viewBox: "0 0 1000 30", preserveAspectRatio: "none" });
    svg.append(el("path", { d: d + "H1000V30Z", class: "strip-live" }));
    this.brush = new Brush(report, svg, {
      w: 1000,
      left: 0,
      right: 1000,
      y: [0, 30],
      range: () => [0, end],
      name: "Moment or window that the figures are of, on the whole run",
    });
    return svg;
  },
  words(report, now) {
    const w = report.windows;
    if (now.kind !== "window" || !w) {
      const instant = now.instant === null ? null : report.instants[now.instant];
      if (!instant && !w) return "";
      const [live, blocks] = instant
        ? [instant.live_usable_bytes, instant.live_blocks]
        : [w.liveUsable[now.to], w.liveBlocks[now.to]];
      return `live ${figures.bytes(live)} in ${figures.count(blocks)} blocks`;
    }
    const made = w.acquiredUsable[now.to] - w.acquiredUsable[now.from],
      net = w.liveUsable[now.to] - w.liveUsable[now.from];
    return `${figures.duration(now.to_ns - now.from_ns)} · allocated ${figures.bytes(made)} · freed ${figures.bytes(made - net)} · net ${figures.change(net)} · live at its end ${figures.bytes(w.liveUsable[now.to])}`;
  },
};
