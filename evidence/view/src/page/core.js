// The page's ground: figures, elements, the store, and the list of views.
//
//   report JSON ──► views[i].render(report, state, place)      one object for each section
//                   (drawn when they can be seen, the others when there is time: main.js)
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
    while (value >= 1023.5 && unit + 1 < units.length) {
      value /= 1024;
      unit++;
    }
    return (value >= 999.5 ? figures.count(value) : figures.threeDigits(value)) + " " + units[unit];
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
  /** A moment, in milliseconds up to ten seconds and then as `duration`, with one digit more. */
  moment(ns) {
    if (ns < 1e10) return (ns / 1e6).toFixed(ns < 1e8 ? 2 : ns < 1e9 ? 1 : 0) + " ms";
    return ns < 100e9
      ? (ns / 1e9).toFixed(3) + " s"
      : ns < 3600e9
        ? (ns / 1e9).toFixed(2) + " s"
        : figures.duration(ns);
  },
  /** A difference of bytes, with its sign. */
  change(bytes) {
    return bytes > 0 ? "+" + figures.bytes(bytes) : figures.bytes(bytes);
  },
  changeCount(count) {
    return (count > 0 ? "+" : count < 0 ? "−" : "") + figures.count(Math.abs(count));
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
    span: "",
    zoom: "",
    measure: "live_usable_bytes",
    change: "grown_bytes",
    direction: "down",
    search: "",
    function: "",
    sites: "",
    sizes: "bytes",
    pins: "function",
  },
  listeners: [],
  /** Takes what the hash says; a view that cannot make sense of its part takes its default. */
  load() {
    const hash = new URLSearchParams(location.hash.slice(1));
    for (const key of Object.keys(this.state)) {
      if (!hash.has(key)) continue;
      this.state[key] = hash.get(key);
    }
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

function instantLabel(instant) {
  return `${instant.label} (${figures.duration(instant.time_ns)})`;
}

/** Every view pushes itself: {id, title, needs: [state keys], skip(report), render(report, state, place)}. */
const views = [];

/** A phrase in the middle of a sentence. */
function lower(text) {
  return text.charAt(0).toLowerCase() + text.slice(1);
}

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
