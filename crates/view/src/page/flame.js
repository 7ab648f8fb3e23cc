// The flame graph: one measure's tree on a canvas, zoomed, searched, read by keyboard.
//
//   MeasureTree ──layout──► boxes of at least half a pixel ──paint──► canvas      panel: the box in words
//
// G1  Only boxes that can be seen are made: cost follows pixels, not nodes.
// G2  Arrow keys move the focus, Enter zooms, Escape zooms out; the panel says the focused box.
// G3  Percentages are of the whole measure; inside a zoom, of the zoomed box too, and it says so.

views.push({
  id: "flame",
  title: "Stacks",
  needs: ["measure", "direction", "search"],
  render(report, state, place, changed) {
    const measure = measureOf(state),
      key = measure.id + state.direction;
    // Typing into the search must not rebuild the tree nor take the focus from its field.
    if (
      this.key === key &&
      this.canvas &&
      changed &&
      changed.every((k) => k === "search") &&
      place.contains(this.canvas)
    ) {
      this.search(state.search);
      return;
    }
    Object.assign(this, {
      key,
      report,
      measure,
      tree: new MeasureTree(report, measure, state.direction),
      row: 19,
      text: state.search,
    });
    this.zoomed = this.focus = this.tree.root;
    place.replaceChildren();
    const search = el("input", {
      type: "search",
      placeholder: "function or file",
      value: state.search,
      oninput: (e) => store.set({ search: e.target.value }),
    });
    place.append(
      head(
        this,
        `${measure.label}${measure.id.startsWith("live") ? " at " + (report.instants[report.at] ? instantLabel(report.instants[report.at]) : "the report's instant") : ""}: ${this.value(this.tree.total)} in all. Enter or click zooms, Escape zooms out, arrows move.`,
        choice(
          "Measure",
          measure.id,
          measures.map((m) => [m.id, m.label]),
          (v) => store.set({ measure: v }),
        ),
        choice(
          "Direction",
          state.direction,
          [
            ["down", "Callers on top"],
            ["up", "Allocating functions on top"],
          ],
          (v) => store.set({ direction: v }),
        ),
        el("label", {}, "Search", search),
        (this.reset = el("button", { onclick: () => this.zoom(this.tree.root) }, "Reset zoom")),
      ),
    );
    this.canvas = el("canvas", {
      id: "flame-canvas",
      tabindex: 0,
      role: "application",
      "aria-roledescription": "flame graph",
      "aria-label": "Flame graph. Arrow keys move between boxes, Enter zooms, Escape zooms out.",
      "aria-describedby": "flame-readout",
    });
    this.readout = el("div", { class: "readout", id: "flame-readout", "aria-live": "polite" });
    this.found = el("div", { class: "readout" });
    this.panel = el("div", { class: "scroll" });
    place.append(
      el("div", { id: "flame-box" }, this.canvas),
      this.readout,
      this.found,
      el(
        "details",
        { class: "fallback", ontoggle: () => this.say(this.focus) },
        el("summary", {}, "The focused box as a table"),
        this.panel,
      ),
    );
    this.canvas.addEventListener("pointermove", (e) => {
      const box = this.hit(e);
      this.canvas.title = box ? box.name : "";
      if (box) this.say(box);
    });
    this.canvas.addEventListener("click", (e) => {
      const box = this.hit(e);
      if (box) this.zoom(box);
    });
    this.canvas.addEventListener("keydown", (e) => this.keyed(e));
    this.canvas.addEventListener("focus", () => this.paint());
    this.canvas.addEventListener("blur", () => this.paint());
    if (!this.tree.total) this.readout.textContent = "Nothing to show: no site has any of this measure.";
    this.zoom(this.tree.root);
    this.search(state.search);
  },
  value(value) {
    return this.measure.unit === "bytes" ? figures.bytes(value) : figures.count(value);
  },
  layout() {
    const width = this.canvas.clientWidth || 600,
      out = [];
    const chain = [];
    for (let box = this.zoomed; box; box = box.parent) chain.unshift(box);
    chain.forEach((box, depth) => out.push({ box, x: 0, w: width, depth }));
    // Depth is bounded by the stacks; a loop rather than recursion, since stacks may be very deep.
    const todo = [out[out.length - 1]];
    while (todo.length) {
      const { box, x, w, depth } = todo.pop();
      let at = x;
      for (const kid of this.tree.children(box)) {
        const wide = box.value ? (w * kid.value) / box.value : 0;
        if (wide < 0.5) break;
        const place = { box: kid, x: at, w: wide, depth: depth + 1 };
        out.push(place);
        todo.push(place);
        at += wide;
      }
    }
    this.places = out;
    this.depth = out.reduce((most, p) => Math.max(most, p.depth), 0) + 1;
    this.width = width;
  },
  color(box) {
    if (!box.frame) return css("--line");
    let hash = 7;
    const name = box.frame.module || box.name;
    for (let i = 0; i < name.length; i++) hash = (hash * 31 + name.charCodeAt(i)) >>> 0;
    let shade = 3;
    for (let i = 0; i < Math.min(40, box.name.length); i++)
      shade = (shade * 33 + box.name.charCodeAt(i)) >>> 0;
    return `hsl(${200 + (hash % 160)} ${this.paints.sat} calc(${this.paints.light} + ${(shade % 9) - 4}%))`;
  },
  paint() {
    if (!this.places) return;
    const ratio = window.devicePixelRatio || 1,
      height = this.depth * this.row,
      canvas = this.canvas,
      ctx = canvas.getContext("2d");
    // Browsers give up on taller canvases; what is cut off can be reached by zooming.
    const tall = Math.min(height, Math.floor(16000 / ratio));
    canvas.style.height = tall + "px";
    canvas.width = Math.round(this.width * ratio);
    canvas.height = Math.round(tall * ratio);
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.paints = {
      sat: css("--flame-sat"),
      light: css("--flame-light"),
      ink: css("--flame-ink"),
      card: css("--card"),
      accent: css("--accent"),
      c1: css("--mark"),
    };
    ctx.fillStyle = this.paints.card;
    ctx.fillRect(0, 0, this.width, tall);
    ctx.font = "12px " + getComputedStyle(document.body).fontFamily;
    ctx.textBaseline = "middle";
    const zoomDepth = this.zoomed.depth,
      wanted = this.text.toLowerCase();
    for (const { box, x, w, depth } of this.places) {
      const y = depth * this.row,
        hit = wanted && box.frame && matches(box.frame, wanted);
      ctx.globalAlpha = depth < zoomDepth || (wanted && !hit) ? 0.45 : 1;
      ctx.fillStyle = hit ? this.paints.c1 : this.color(box);
      ctx.fillRect(x, y, Math.max(0.5, w - (w > 3 ? 1 : 0)), this.row - 1);
      if (w < 26) continue;
      ctx.globalAlpha = depth < zoomDepth ? 0.7 : 1;
      ctx.fillStyle = this.paints.ink;
      ctx.fillText(
        fit(ctx, depth ? box.name : `all: ${this.value(box.value)}`, w - 8),
        x + 4,
        y + this.row / 2,
      );
    }
    ctx.globalAlpha = 1;
    const focus = this.places.find((p) => p.box === this.focus);
    if (focus && document.activeElement === canvas) {
      ctx.strokeStyle = this.paints.accent;
      ctx.lineWidth = 2;
      ctx.strokeRect(focus.x + 1, focus.depth * this.row + 1, Math.max(2, focus.w - 3), this.row - 3);
    }
  },
  hit(event) {
    const box = this.canvas.getBoundingClientRect(),
      x = event.clientX - box.left,
      depth = Math.floor((event.clientY - box.top) / this.row);
    const place = this.places.find((p) => p.depth === depth && x >= p.x && x < p.x + p.w);
    return place && place.box;
  },
  zoom(box) {
    this.zoomed = this.focus = box;
    this.reset.disabled = box === this.tree.root;
    this.layout();
    this.paint();
    this.say(box);
  },
  keyed(event) {
    const box = this.focus,
      seen = new Set(this.places.map((p) => p.box));
    const siblings = box.parent ? this.tree.children(box.parent).filter((b) => seen.has(b)) : [box],
      index = siblings.indexOf(box);
    let to = null;
    if (event.key === "ArrowDown") to = this.tree.children(box).find((b) => seen.has(b));
    else if (event.key === "ArrowUp") to = box.parent;
    else if (event.key === "ArrowRight") to = siblings[index + 1];
    else if (event.key === "ArrowLeft") to = siblings[index - 1];
    else if (event.key === "Home") to = this.zoomed;
    else if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      this.zoom(box);
      return;
    } else if (event.key === "Escape") {
      if (this.zoomed.parent) this.zoom(this.zoomed.parent);
      return;
    } else return;
    event.preventDefault();
    if (!to) return;
    this.focus = to;
    this.paint();
    this.say(to);
    const scroller = this.canvas.parentElement,
      y = to.depth * this.row;
    if (y < scroller.scrollTop) scroller.scrollTop = y;
    if (y + this.row > scroller.scrollTop + scroller.clientHeight)
      scroller.scrollTop = y + this.row - scroller.clientHeight;
  },
  say(box) {
    const where = box.frame ? stacks.place(box.frame) : "",
      inZoom =
        this.zoomed !== this.tree.root
          ? `, ${figures.percent(box.value, this.zoomed.value)} of the zoomed box`
          : "";
    this.readout.textContent = `${box.name}  ${where} — ${this.value(box.value)}, ${figures.percent(box.value, this.tree.total)} of ${this.measure.label.toLowerCase()}${inZoom}`;
    if (!this.panel.parentElement.open) return;
    const kids = this.tree.children(box),
      shown = kids.slice(0, 30),
      rest = box.value - shown.reduce((s, k) => s + k.value, 0);
    const row = (name, value) =>
      el(
        "tr",
        {},
        el("td", { class: "name" }, name),
        el("td", { class: "n" }, this.value(value)),
        el("td", { class: "n" }, figures.percent(value, box.value)),
      );
    this.panel.replaceChildren(
      el(
        "table",
        {},
        el(
          "thead",
          {},
          el(
            "tr",
            {},
            el("th", {}, `Within ${shorten(box.name, 60)}`),
            el("th", { class: "n" }, this.measure.label),
            el("th", { class: "n" }, "of the box"),
          ),
        ),
        el(
          "tbody",
          {},
          shown.map((kid) =>
            row(el("button", { class: "twist", onclick: () => this.zoom(kid) }, kid.name), kid.value),
          ),
          rest > 0 ? row("itself and others", rest) : null,
        ),
      ),
    );
  },
  search(text) {
    this.text = text.trim();
    if (this.text) {
      const sum = this.tree.matched(this.text);
      this.found.textContent = `“${this.text}” is on the stacks of ${this.value(sum)}, ${figures.percent(sum, this.tree.total)} of ${this.measure.label.toLowerCase()}.`;
    } else this.found.textContent = "";
    this.paint();
  },
  resized() {
    if (this.canvas) {
      this.layout();
      this.paint();
    }
  },
});

/** `text` cut to `width` pixels. Cuts long names first: measuring 10 KB of template is slow. */
function fit(ctx, text, width) {
  if (text.length > width / 3) text = text.slice(0, Math.ceil(width / 3));
  if (ctx.measureText(text).width <= width) return text;
  let low = 0,
    high = text.length;
  while (low < high) {
    const mid = (low + high + 1) >> 1;
    if (ctx.measureText(text.slice(0, mid) + "…").width <= width) low = mid;
    else high = mid - 1;
  }
  return low > 1 ? text.slice(0, low) + "…" : "";
}
