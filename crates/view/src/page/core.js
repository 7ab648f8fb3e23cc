// The page's ground: figures, elements, the store, and the list of views.
//
//   report JSON ──► views[i].render(report, state, place)      one object for each section
//   store.set({measure: …}) ──► URL hash ──► every view whose `needs` names that key renders again
//
// P1  Text from the report reaches the document through text nodes only.
// P2  State lives in the store, and the hash says it all: a copied address shows the same view.
// P3  `bytes`, `count`, `percent`, `duration` say what units.rs says.
// Not here: what any view shows.

const figures = {
  threeDigits(value) {
    return value >= 99.95
      ? value.toFixed(0)
      : value >= 9.995
        ? value.toFixed(1)
        : value >= 0.9995
          ? value.toFixed(2)
          : value.toFixed(3);
  },
  bytes(bytes) {
    if (bytes < 0) return "−" + figures.bytes(-bytes);
    if (bytes < 1024) return Math.round(bytes) + " B";
    const units = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let value = bytes / 1024,
      unit = 0;
    while (value >= 999.5 && unit + 1 < units.length) {
      value /= 1024;
      unit++;
    }
    return figures.threeDigits(value) + " " + units[unit];
  },
  count(count) {
    return String(Math.round(count)).replace(/\B(?=(\d{3})+$)/g, ",");
  },
  percent(part, whole) {
    if (!whole) return "–";
    const percent = (part * 100) / whole;
    return part > 0 && percent < 0.05 ? "<0.1%" : percent.toFixed(1) + "%";
  },
  duration(ns) {
    if (ns < 1e3) return Math.round(ns) + " ns";
    if (ns < 999500) return figures.threeDigits(ns / 1e3) + " µs";
    if (ns < 999.5e6) return figures.threeDigits(ns / 1e6) + " ms";
    if (ns < 59.95e9) return figures.threeDigits(ns / 1e9) + " s";
    const s = Math.round(ns / 1e9),
      two = (n) => String(n).padStart(2, "0");
    return s < 3600
      ? `${Math.floor(s / 60)} min ${two(s % 60)} s`
      : `${Math.floor(s / 3600)} h ${two(Math.floor((s % 3600) / 60))} min`;
  },
};

/** An element: `el("td", {class: "n"}, "text", other)`. Handlers are given as `onclick: f`. */
function el(name, attributes = {}, ...children) {
  const svg = ["svg", "path", "line", "rect", "text", "g", "title"].includes(name);
  const node = svg
    ? document.createElementNS("http://www.w3.org/2000/svg", name)
    : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "style") Object.assign(node.style, value);
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

function css(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

const store = {
  state: {
    instant: 0,
    measure: "live_usable_bytes",
    direction: "down",
    search: "",
    sites: "",
    sizes: "bytes",
    pins: "function",
  },
  listeners: [],
  /** Takes what the hash says, where it says something that makes sense. */
  load(report) {
    this.state.instant = report.at;
    const hash = new URLSearchParams(location.hash.slice(1));
    for (const key of Object.keys(this.state)) {
      if (!hash.has(key)) continue;
      const value = hash.get(key);
      if (key === "instant") {
        const index = Number(value);
        if (Number.isInteger(index) && index >= 0 && index < report.instants.length)
          this.state.instant = index;
      } else this.state[key] = value;
    }
    if (!measures.some((m) => m.id === this.state.measure)) this.state.measure = "live_usable_bytes";
    if (!["up", "down"].includes(this.state.direction)) this.state.direction = "down";
    if (!["bytes", "slop", "blocks", "allocations"].includes(this.state.sizes)) this.state.sizes = "bytes";
    if (!["function", "stack"].includes(this.state.pins)) this.state.pins = "function";
  },
  set(change) {
    Object.assign(this.state, change);
    const hash = new URLSearchParams(Object.entries(this.state).filter(([, value]) => value !== ""));
    // Not location.hash: that would scroll, and fill the history with each key typed into a search.
    try {
      history.replaceState(null, "", "#" + hash);
    } catch (_) {
      /* some viewers forbid it for local files */
    }
    for (const listener of this.listeners) listener(Object.keys(change));
  },
};

/** What can be measured of a site; `unit` picks the wording. Instants are said in the label. */
const measures = [
  { id: "live_usable_bytes", label: "Live bytes", unit: "bytes", of: (s) => s.live_usable_bytes },
  { id: "live_blocks", label: "Live blocks", unit: "count", of: (s) => s.live_blocks },
  {
    id: "live_slop",
    label: "Live slop",
    unit: "bytes",
    of: (s) => s.live_usable_bytes - s.live_requested_bytes,
  },
  {
    id: "heap_peak_usable_bytes",
    label: "Bytes at the heap's peak",
    unit: "bytes",
    of: (s) => s.heap_peak_usable_bytes,
  },
  { id: "end_usable_bytes", label: "Bytes at the end", unit: "bytes", of: (s) => s.end_usable_bytes },
  { id: "usable_bytes", label: "Cumulative bytes", unit: "bytes", of: (s) => s.usable_bytes },
  { id: "allocations", label: "Allocations", unit: "count", of: (s) => s.allocations },
  { id: "temporaries", label: "Temporaries", unit: "count", of: (s) => s.temporaries },
  { id: "slop", label: "Cumulative slop", unit: "bytes", of: (s) => s.usable_bytes - s.requested_bytes },
];

function measureOf(state) {
  return measures.find((m) => m.id === state.measure) || measures[0];
}

function instantLabel(instant) {
  return `${instant.label} (${figures.duration(instant.time_ns)})`;
}

/** Every view pushes itself: {id, title, needs: [state keys], skip(report), render(report, state, place)}. */
const views = [];

/** A select whose choices are [value, label]. */
function choice(label, value, choices, onchange) {
  const select = el(
    "select",
    { onchange: () => onchange(select.value) },
    choices.map(([id, text]) => el("option", { value: id, selected: String(id) === String(value) }, text)),
  );
  return el("label", {}, label, select);
}

/** A section's first line: heading, a note of what whole and instant its figures have, and tools. */
function head(view, note, ...tools) {
  return el(
    "div",
    { class: "head" },
    el(
      "div",
      {},
      el("h2", { id: view.id + "-title" }, view.title),
      note ? el("p", { class: "soft small" }, note) : null,
    ),
    tools.length ? el("div", { class: "tools" }, tools) : null,
  );
}
