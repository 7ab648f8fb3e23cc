// Flame graphs: a tree on a canvas, zoomed, searched, read by keyboard; and the view “Stacks”.
//
//   MeasureTree ──layout──► boxes of at least half a pixel ──paint──► canvas      panel: the box in words
//
// G1  Only boxes that can be seen are made: cost follows pixels, not nodes.
// G2  Arrow keys move the focus, Enter zooms, Escape zooms out; the panel says the focused box.
// G3  Percentages are of the whole measure; inside a zoom, of the zoomed box too, and it says so.
// G4  Another span draws another tree in the same chart: zoom and focus stay on the same functions.
// Not here: the tree (tree.js), what is measured (span.js).

class FlameChart {
  /** `ids`: what the canvas and the readout are called; `grow`: "down" or "up". */
  constructor({ ids, label, grow }) {
    Object.assign(this, { row: 19, text: "", up: grow === "up", dead: false });
    this.canvas = el("canvas", {
      id: ids + "-canvas",
      class: "flame-canvas",
      tabindex: 0,
      role: "application",
      "aria-roledescription": "flame graph",
      "aria-label": `${label}. Arrow keys move between boxes, Enter zooms, Escape zooms out.`,
      "aria-describedby": ids + "-readout",
    });
    this.readout = el("div", { class: "readout", id: ids + "-readout", "aria-live": "polite" });
    this.scroller = el("div", { class: "flame-box" }, this.canvas);
    this.canvas.addEventListener("pointermove", (e) => {
      const box = this.hit(e);
      if (box) this.say(box);
      this.canvas.title = box ? this.readout.textContent : "";
    });
    this.canvas.addEventListener("click", (e) => {
      const box = this.hit(e);
      if (box) this.zoom(box);
    });
    this.canvas.addEventListener("keydown", (e) => this.keyed(e));
    this.canvas.addEventListener("focus", () => this.paint());
    this.canvas.addEventListener("blur", () => this.paint());
  }
  /** Draws a tree from `root`; `say` words a value, `whole` names what it is a part of (G4). */
  show(tree, root, { unit, whole }) {
    const path = (box) => (box && box.parent ? [...path(box.parent), box.key] : []),
      kept = path(this.zoomed),
      focused = path(this.focus);
    Object.assign(this, { tree, root, unit, whole });
    const find = (keys) => {
      let box = root;
      for (const key of keys) {
        const kid = tree.children(box).find((k) => k.key === key);
        if (!kid) break;
        box = kid;
      }
      return box;
    };
    this.zoomed = find(kept);
    this.focus = find(focused);
    this.layout();
    this.paint();
    this.say(this.focus);
  }
  value(value) {
    return this.unit === "bytes" ? figures.bytes(value) : figures.count(value);
  }
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
  }
  y(depth) {
    return (this.up ? this.depth - 1 - depth : depth) * this.row;
  }
  color(box) {
    if (!box.frame) return this.paints.line;
    if (box.color === undefined) {
      let hash = 7,
        shade = 3;
      const name = box.frame.module || box.name;
      for (let i = 0; i < name.length; i++) hash = (hash * 31 + name.charCodeAt(i)) >>> 0;
      for (let i = 0; i < Math.min(40, box.name.length); i++)
        shade = (shade * 33 + box.name.charCodeAt(i)) >>> 0;
      box.color = [200 + (hash % 160), (shade % 9) - 4];
    }
    return `hsl(${box.color[0]} ${this.paints.sat} calc(${this.paints.light} + ${box.color[1]}%))`;
  }
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
    this.paints = inks();
    ctx.fillStyle = this.paints.card;
    ctx.fillRect(0, 0, this.width, tall);
    ctx.font = "12px " + this.paints.font;
    ctx.textBaseline = "middle";
    const zoomDepth = this.zoomed.depth,
      wanted = this.text.toLowerCase();
    for (const { box, x, w, depth } of this.places) {
      const y = this.y(depth),
        hit = wanted && box.frame && matches(box.frame, wanted);
      ctx.globalAlpha = depth < zoomDepth || (wanted && !hit) ? 0.45 : 1;
      ctx.fillStyle = hit ? this.paints.mark : this.color(box);
      ctx.fillRect(x, y, Math.max(0.5, w - (w > 3 ? 1 : 0)), this.row - 1);
      if (w < 26) continue;
      ctx.globalAlpha = depth < zoomDepth ? 0.7 : 1;
      ctx.fillStyle = this.paints.ink;
      ctx.fillText(
        fit(ctx, depth ? box.name : `${box.name}: ${this.value(box.value)}`, w - 8),
        x + 4,
        y + this.row / 2,
      );
    }
    ctx.globalAlpha = 1;
    const focus = this.places.find((p) => p.box === this.focus);
    if (focus && document.activeElement === canvas) {
      ctx.strokeStyle = this.paints.accent;
      ctx.lineWidth = 2;
      ctx.strokeRect(focus.x + 1, this.y(focus.depth) + 1, Math.max(2, focus.w - 3), this.row - 3);
    }
  }
  hit(event) {
    const box = this.canvas.getBoundingClientRect(),
      x = event.clientX - box.left,
      line = Math.floor((event.clientY - box.top) / this.row),
      depth = this.up ? this.depth - 1 - line : line;
    const place = this.places.find((p) => p.depth === depth && x >= p.x && x < p.x + p.w);
    return place && place.box;
  }
  zoom(box) {
    this.zoomed = this.focus = box;
    this.layout();
    this.paint();
    this.say(box);
    if (this.onzoom) this.onzoom();
  }
  keyed(event) {
    const box = this.focus,
      seen = new Set(this.places.map((p) => p.box));
    const siblings = box.parent ? this.tree.children(box.parent).filter((b) => seen.has(b)) : [box],
      index = siblings.indexOf(box);
    const [inward, outward] = this.up ? ["ArrowUp", "ArrowDown"] : ["ArrowDown", "ArrowUp"];
    let to = null;
    if (event.key === inward) to = this.tree.children(box).find((b) => seen.has(b));
    else if (event.key === outward) to = box.parent;
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
    const y = this.y(to.depth),
      scroller = this.scroller;
    if (y < scroller.scrollTop) scroller.scrollTop = y;
    if (y + this.row > scroller.scrollTop + scroller.clientHeight)
      scroller.scrollTop = y + this.row - scroller.clientHeight;
  }
  say(box) {
    if (!this.root.value) {
      this.readout.textContent = "Nothing to show: no stack has any of this measure here.";
      return;
    }
    const where = box.frame ? stacks.place(box.frame) : "",
      inZoom =
        this.zoomed !== this.root
          ? `, ${figures.percent(box.value, this.zoomed.value)} of the zoomed box`
          : "";
    this.readout.textContent = `${box.name}  ${where} — ${this.value(box.value)}, ${figures.percent(box.value, this.root.value)} of ${lower(this.whole)}${inZoom}`;
    if (this.onsay) this.onsay(box);
  }
  search(text) {
    this.text = text.trim();
    this.paint();
  }
  resized() {
    if (!this.places) return;
    this.layout();
    this.paint();
  }
}

/** @type {any} */
const inked = {};
/** Colours of canvases; asked of the style sheet once for each scheme. */
function inks() {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  if (!inked.known || inked.dark !== dark) {
    inked.dark = dark;
    inked.known = {
      sat: css("--flame-sat"),
      light: css("--flame-light"),
      ink: css("--flame-ink"),
      card: css("--card"),
    };
    Object.assign(inked.known, { accent: css("--accent"), mark: css("--mark"), line: css("--line") });
    inked.known.font = getComputedStyle(document.body).fontFamily;
  }
  return inked.known;
}

let keptTrees = [];
/** The tree of what is chosen; kept, since stacks, functions and the tree of memory ask for the same. */
function chosenTree(report, state, direction) {
  const what = measured(report, state),
    key = `${what.span.text}|${what.measure.id}|${direction}`;
  keptTrees = keptTrees.filter((one) => one.key.startsWith(`${what.span.text}|`));
  let one = keptTrees.find((one) => one.key === key);
  if (!one) keptTrees.push((one = { key, tree: new MeasureTree(report, what.values, direction) }));
  return { ...what, tree: one.tree };
}

/** The choice of a measure, as a view's tool. */
function measureChoice(what) {
  const key = what.span.kind === "window" ? "change" : "measure";
  return choice(
    "Measure",
    what.measure.id,
    what.list.map((m) => [m.id, m.label]),
    (value) => store.set({ [key]: value }),
  );
}

views.push({
  id: "flame",
  title: "Stacks",
  needs: ["span", "measure", "change", "direction", "search"],
  keeps: true,
  render(report, state, place, changed) {
    // Typing into the search must not rebuild the tree nor take the focus from its field.
    if (changed && this.chart && changed.every((k) => k === "search")) {
      this.search(state.search);
      return;
    }
    const what = chosenTree(report, state, state.direction);
    this.tree = what.tree;
    this.whole = what.whole;
    this.report = report;
    if (!this.chart) this.build(place, state);
    this.head.replaceChildren(
      el("h2", { id: "flame-title" }, this.title),
      el(
        "p",
        { class: "soft small" },
        `${what.whole}: ${this.value(what)} in all${what.beside}. Enter or click zooms, Escape zooms out, arrows move.`,
      ),
    );
    this.choices.replaceChildren(
      measureChoice(what),
      choice(
        "Direction",
        state.direction,
        [
          ["down", "Callers on top"],
          ["up", "Allocating functions on top"],
        ],
        (v) => store.set({ direction: v }),
      ),
    );
    if (this.direction !== state.direction) this.chart.zoomed = this.chart.focus = null;
    this.direction = state.direction;
    this.chart.show(what.tree, what.tree.root, { unit: what.measure.unit, whole: what.whole });
    this.search(state.search);
  },
  value: (what) => (what.measure.unit === "bytes" ? figures.bytes : figures.count)(what.tree.total),
  build(place, state) {
    const chart = (this.chart = new FlameChart({ ids: "flame", label: "Flame graph", grow: "down" }));
    this.found = el("div", { class: "readout" });
    this.panel = el("div", { class: "scroll" });
    this.head = el("div");
    this.choices = el("span", { class: "tools" });
    this.reset = el("button", { onclick: () => chart.zoom(chart.root) }, "Reset zoom");
    this.box = el("input", {
      type: "search",
      placeholder: "function or file",
      value: state.search,
      oninput: (e) => store.set({ search: e.target.value }),
    });
    chart.onzoom = () => (this.reset.disabled = chart.zoomed === chart.root);
    chart.onsay = (box) => this.tell(box);
    place.replaceChildren(
      el(
        "div",
        { class: "head" },
        this.head,
        el("div", { class: "tools" }, this.choices, el("label", {}, "Search", this.box), this.reset),
      ),
      chart.scroller,
      chart.readout,
      this.found,
      el(
        "details",
        { class: "fallback", ontoggle: () => this.tell(chart.focus) },
        el("summary", {}, "The focused box as a table"),
        this.panel,
      ),
    );
  },
  tell(box) {
    const chart = this.chart;
    this.reset.disabled = chart.zoomed === chart.root;
    if (!this.panel.parentElement.open || !box) return;
    const kids = chart.tree.children(box),
      shown = kids.slice(0, 30),
      rest = box.value - shown.reduce((s, k) => s + k.value, 0);
    const row = (name, value) =>
      el(
        "tr",
        {},
        el("td", { class: "name" }, name),
        el("td", { class: "n" }, chart.value(value)),
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
            el("th", { class: "n" }, this.whole),
            el("th", { class: "n" }, "of the box"),
          ),
        ),
        el(
          "tbody",
          {},
          shown.map((kid) =>
            row(el("button", { class: "twist", onclick: () => chart.zoom(kid) }, kid.name), kid.value),
          ),
          rest > 0 ? row("itself and others", rest) : null,
        ),
      ),
    );
  },
  search(text) {
    text = text.trim();
    if (text) {
      const sum = this.tree.matched(text);
      this.found.textContent = `“${text}” is on the stacks of ${this.chart.value(sum)}, ${figures.percent(sum, this.tree.total)} of ${lower(this.whole)}.`;
    } else this.found.textContent = "";
    this.chart.search(text);
  },
  resized() {
    if (this.chart) this.chart.resized();
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
