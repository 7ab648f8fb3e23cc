// The live page. Figures come from the server, which has added them up; text of the program goes into the page by
// textContent alone. Trees are <details>, so that they work by keyboard as they are.
"use strict";

const token = document.querySelector("meta[name=token]").content;
const place = id => document.getElementById(id);
const points = [];
const MOST_POINTS = 1000;
// Rows below this part of their tree are put together, as in about:memory.
const TINY = 0.01;
let shown = null;
let busy = false;

function element(name, text, kind) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (kind) made.className = kind;
  return made;
}

function figure(node) {
  const commas = n => n.toLocaleString("en");
  if (node.units === "hundredths-of-a-percent") return (node.amount / 100).toFixed(2) + "%";
  if (node.units !== "bytes") return commas(node.amount);
  if (place("exact").checked) return commas(node.amount) + " B";
  return (node.amount / 1048576).toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 }) + " MiB";
}

// How much changes below a node: what grew and what shrank have no whole in common, so a difference has no percentages.
function changes(node) {
  return node.kids ? node.kids.reduce((all, kid) => all + changes(kid), 0) : Math.abs(node.amount);
}

// `root`: the tree's amount; of a difference { changes }, the sum of what changes; null: there are no parts.
function describe(row, node, name, root) {
  row.append(element("span", figure(node), "amount"));
  if (typeof root === "number") {
    const part = root === 0 ? 100 : 100 * node.amount / root;
    row.append(element("span", part.toFixed(2) + "%", "part"));
  }
  const many = node.lines > 1 ? ` [${node.lines}]` : "";
  const side = node.presence === 1 ? " [-]" : node.presence === 2 ? " [+]" : "";
  row.append(element("span", name.replaceAll("\\", "/") + many + side, "name"));
  if (node.description) row.title = node.description;
}

function draw(node, root, open) {
  let name = node.name;
  while (node.kids && node.kids.length === 1) {
    node = node.kids[0];
    name += "/" + node.name;
  }
  if (!node.kids) {
    const row = element("div", undefined, "leaf");
    describe(row, node, name, root);
    return row;
  }
  const made = element("details");
  const head = element("summary");
  describe(head, node, name, root);
  made.append(head);
  // What is closed is drawn when it is opened: a report may have a hundred thousand rows.
  const fill = () => {
    if (made.dataset.drawn) return;
    made.dataset.drawn = "yes";
    const whole = root === null ? node.amount : root;
    const is_tiny = kid => typeof whole === "number"
      ? whole !== 0 && Math.abs(kid.amount / whole) < TINY
      : changes(kid) < TINY * whole.changes;
    const large = node.kids.filter(kid => !is_tiny(kid));
    const tiny = node.kids.filter(is_tiny);
    const depth = open - 1;
    for (const kid of large) made.append(draw(kid, whole, depth));
    if (tiny.length === 1) made.append(draw(tiny[0], whole, 0));
    if (tiny.length > 1) {
      const sum = tiny.reduce((all, kid) => all + kid.amount, 0);
      const rest = { name: `(${tiny.length} tiny)`, amount: sum, units: node.units, kids: tiny };
      const group = element("details");
      const title = element("summary");
      describe(title, rest, rest.name, whole);
      group.append(title);
      group.addEventListener("toggle", () => {
        if (group.open && !group.dataset.drawn) {
          group.dataset.drawn = "yes";
          for (const kid of tiny) group.append(draw(kid, whole, 0));
        }
      });
      made.append(group);
    }
  };
  made.addEventListener("toggle", () => made.open && fill());
  if (open > 0) {
    fill();
    made.open = true;
  }
  return made;
}

// The sentence on top: what is resident, and of what the heap is not named. None of a difference.
function verdict(report) {
  const sum = (path, all = report.processes) => all.reduce((total, process) => {
    const tree = process.trees.find(one => one.name === path[0]);
    const node = path.slice(1).reduce((at, name) => at?.kids?.find(kid => kid.name === name), tree);
    return node ? (total ?? 0) + node.amount : total;
  }, null);
  const bytes = amount => figure({ amount, units: "bytes" });
  const resident = sum(["resident"]);
  if (resident === null || report.processes.some(process => process.is_difference)) return "";
  const kinds = new Map();
  for (const process of report.processes) {
    const tree = process.trees.find(one => one.name === "resident-by-kind");
    for (const kid of tree?.kids ?? []) kinds.set(kid.name, (kinds.get(kid.name) ?? 0) + kid.amount);
  }
  const largest = [...kinds].sort((a, b) => b[1] - a[1]).slice(0, 3).filter(kind => kind[1] > resident / 50);
  let text = `${bytes(resident)} resident`;
  if (largest.length) text += ": " + largest.map(([name, amount]) => `${bytes(amount)} ${name.replaceAll("\\", "/")}`).join(", ");
  const [explicit, rest] = [sum(["explicit"]), sum(["explicit", "heap-unclassified"])];
  if (explicit && rest !== null) text += `. No reporter covers ${(100 * rest / explicit).toFixed(1)}% of explicit`;
  return text + ".";
}

function show(report) {
  shown = report;
  place("notes").replaceChildren(...report.notes.map(note => element("li", note)));
  place("verdict").textContent = verdict(report);
  const names = report.processes.map(process => process.process);
  place("title").textContent = names.length === 1 ? names[0] : names.length ? `Memory of ${names.length} processes` : "Memory";
  const all = report.processes.map(process => {
    const part = element("section");
    part.append(element("h2", names.length === 1 ? "Where it is" : process.process));
    if (process.overclaimed_bytes > 0)
      part.append(element("p", `Reporters claim ${process.overclaimed_bytes} bytes more than heap-allocated.`, "warn"));
    const whole = tree => process.is_difference ? { changes: changes(tree) } : tree.amount;
    for (const tree of process.trees.filter(one => one.kids)) part.append(draw(tree, whole(tree), 3));
    const others = process.trees.filter(one => !one.kids);
    if (others.length) {
      const rows = element("div", undefined, "others");
      rows.append(...others.map(one => draw(one, null, 0)));
      part.append(element("h3", "Other figures"), rows);
    }
    return part;
  });
  place("trees").replaceChildren(...(all.length ? all : [element("p", "Nothing has changed.")]));
}

// The timeline is drawn in pixels of the screen, so that its words can be read at any width.
const NAMES = ["resident", "explicit"];
const HEIGHT = 190;
const MARGIN = { left: 78, right: 14, top: 10, bottom: 26 };

function shape(name, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value));
  if (text !== undefined) made.textContent = text;
  return made;
}

// The smallest round step of which `most` has at most `many`: a power of two, or 1, 2 or 5 times one of ten.
function step(most, many, is_binary) {
  if (is_binary) return 2 ** Math.ceil(Math.log2(most / many));
  const ten = 10 ** Math.floor(Math.log10(most / many));
  return [1, 2, 5, 10].map(by => by * ten).find(by => by * many >= most) ?? 10 * ten;
}

function moment(seconds) {
  return seconds < 120 ? `${Number(seconds.toPrecision(3))} s` : `${Number((seconds / 60).toPrecision(3))} min`;
}

function draw_timeline() {
  if (!points.length) return;
  const svg = place("timeline");
  const width = Math.max(240, svg.clientWidth || 600);
  svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
  const most = Math.max(1, ...points.flatMap(point => NAMES.map(name => point[name] ?? 0)));
  const by = Math.max(1, step(most, 4, true));
  const top = by * Math.ceil(most / by);
  const first = points[0].at;
  const span = Math.max(1, (points.at(-1).at - first) / 1000);
  const x = at => MARGIN.left + (width - MARGIN.left - MARGIN.right) * (at - first) / 1000 / span;
  const y = bytes => HEIGHT - MARGIN.bottom - (HEIGHT - MARGIN.bottom - MARGIN.top) * bytes / top;
  const drawn = [];
  for (let bytes = 0; bytes <= top; bytes += by) {
    drawn.push(shape("line", { x1: MARGIN.left, x2: width - MARGIN.right, y1: y(bytes), y2: y(bytes) }));
    drawn.push(shape("text", { class: "y", x: MARGIN.left - 8, y: y(bytes) + 4 }, axis(bytes)));
  }
  const along = step(span, width < 520 ? 3 : 6, false);
  for (let seconds = 0; seconds <= span * 1.0001; seconds += along)
    drawn.push(shape("text", { class: "x", x: x(first + seconds * 1000), y: HEIGHT - 8 }, moment(seconds)));
  for (const name of NAMES) {
    const known = points.filter(point => point[name] !== null);
    const at = known.map(point => `${x(point.at).toFixed(1)},${y(point[name]).toFixed(1)}`);
    drawn.push(shape("polyline", { class: name, points: at.join(" ") }));
    // One point is no line.
    const last = known.at(-1);
    if (last) drawn.push(shape("circle", { class: name, cx: x(last.at), cy: y(last[name]), r: 3 }));
  }
  svg.replaceChildren(...drawn);
}

function axis(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const at = bytes === 0 ? 0 : Math.min(4, Math.floor(Math.log2(bytes) / 10));
  return `${Number((bytes / 1024 ** at).toPrecision(4)).toLocaleString("en")} ${units[at]}`;
}

function note_point(report) {
  const sum = name => report.processes.reduce((all, process) => {
    const tree = process.trees.find(one => one.name === name);
    return tree ? (all ?? 0) + tree.amount : all;
  }, null);
  points.push({ at: Date.now(), resident: sum("resident"), explicit: sum("explicit") });
  if (points.length > MOST_POINTS) points.shift();
  draw_timeline();
  const last = points.at(-1);
  const words = NAMES.filter(name => last[name] !== null).map(name =>
    element("span", `${name} ${figure({ amount: last[name], units: "bytes" })}`, name));
  const many = points.length === 1 ? "1 measurement" : `${points.length} measurements`;
  place("legend").replaceChildren(...words, element("span", many));
}

async function ask(path, options) {
  const answer = await fetch(`${path}?token=${token}`, options);
  if (!answer.ok) throw new Error(await answer.text());
  return answer;
}

// One thing at a time; what goes wrong is said and leaves what is shown.
async function doing(what, work) {
  if (busy) return;
  busy = true;
  try {
    place("status").textContent = what + " …";
    place("status").textContent = await work();
  } catch (error) {
    place("status").textContent = `${what}: ${error.message}`;
  } finally {
    busy = false;
  }
}

const measured = async () => {
  const report = await (await ask("/measure")).json();
  show(report);
  note_point(report);
  return "Measured " + new Date().toLocaleTimeString();
};

place("measure").addEventListener("click", () => doing("Measure", measured));
for (const action of ["minimize", "gc", "cc"]) {
  place(action).addEventListener("click", () => doing(action, async () => {
    const said = await (await ask("/" + action, { method: "POST" })).text();
    await measured();
    return said;
  }));
}
place("save").addEventListener("click", () => doing("Save", async () => {
  const bytes = await (await ask("/save")).blob();
  const link = element("a");
  link.href = URL.createObjectURL(bytes);
  link.download = "memory-report.json";
  link.click();
  URL.revokeObjectURL(link.href);
  return "Saved what was measured last";
}));
for (const path of ["load", "diff"]) {
  place(path).addEventListener("change", event => doing(path, async () => {
    const file = event.target.files[0];
    event.target.value = "";
    if (!file) return "";
    show(await (await ask("/" + path, { method: "POST", body: file })).json());
    return path === "load" ? `Shown: ${file.name}` : `Shown: what was measured last, less ${file.name}`;
  }));
}
place("exact").addEventListener("change", () => shown && show(shown));
addEventListener("resize", draw_timeline);
setInterval(() => place("auto").checked && doing("Measure", measured), 2000);
doing("Measure", measured);
