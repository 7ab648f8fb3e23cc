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
  } else {
    row.append(" ");
  }
  const many = node.lines > 1 ? ` [${node.lines}]` : "";
  const side = node.presence === 1 ? " [-]" : node.presence === 2 ? " [+]" : "";
  row.append(name.replaceAll("\\", "/") + many + side);
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

function show(report) {
  shown = report;
  const notes = report.notes.map(note => element("li", note));
  place("notes").replaceChildren(...notes);
  const all = report.processes.map(process => {
    const part = element("section");
    part.append(element("h2", process.process));
    if (process.overclaimed_bytes > 0)
      part.append(element("p", `Reporters claim ${process.overclaimed_bytes} bytes more than heap-allocated.`));
    const whole = tree => process.is_difference ? { changes: changes(tree) } : tree.amount;
    for (const tree of process.trees) part.append(draw(tree, tree.kids ? whole(tree) : null, tree.kids ? 3 : 0));
    return part;
  });
  place("trees").replaceChildren(...(all.length ? all : [element("p", "Nothing has changed.")]));
}

function note_point(report) {
  const sum = name => report.processes.reduce((all, process) => {
    const tree = process.trees.find(one => one.name === name);
    return tree ? (all ?? 0) + tree.amount : all;
  }, null);
  points.push({ at: Date.now(), resident: sum("resident"), explicit: sum("explicit") });
  if (points.length > MOST_POINTS) points.shift();
  const names = ["resident", "explicit"];
  const most = Math.max(1, ...points.flatMap(point => names.map(name => point[name] ?? 0)));
  const first = points[0].at;
  const span = Math.max(1, points.at(-1).at - first);
  const lines = names.map(name => {
    const line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
    const known = points.filter(point => point[name] !== null);
    line.setAttribute("class", name);
    line.setAttribute("points", known.map(point =>
      `${(600 * (point.at - first) / span).toFixed(1)},${(78 - 76 * point[name] / most).toFixed(1)}`).join(" "));
    return line;
  });
  place("timeline").replaceChildren(...lines);
  const last = points.at(-1);
  const words = names.filter(name => last[name] !== null).map(name =>
    element("span", `${name} ${figure({ amount: last[name], units: "bytes" })}  `, name));
  place("legend").replaceChildren(...words, `${points.length} measurements`);
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
setInterval(() => place("auto").checked && doing("Measure", measured), 2000);
doing("Measure", measured);
