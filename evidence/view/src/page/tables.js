// Tables: sites, growth, zombies, threads, marks; sorted by a click, shortened with an "others" row.
//
// B1  A shortened table ends with a row of what is not shown, and with the sum of all rows.
// B2  Only the rows shown are in the document: fifty thousand sites open as fast as fifty.

/** {label, rows, columns: [{name, of, say, sum, text}], start, page, open(row) or pick(row)} as a table. @param {any} table */
function sortable({ label, rows, columns, start, page, open, pick }) {
  let by = start,
    down = true,
    shown = page;
  const body = el("tbody"),
    box = el("div", { class: "scroll" }),
    more = el("button", {
      onclick: () => {
        shown += page * 4;
        fill();
      },
    });
  const heads = columns.map((c, i) =>
    el(
      "th",
      { class: c.text ? null : "n", scope: "col" },
      el(
        "button",
        {
          onclick: () => {
            down = by === i ? !down : !c.text;
            by = i;
            fill();
          },
        },
        c.name,
      ),
    ),
  );
  const value = (c, row) => (c.text && c.of === undefined ? "" : c.of(row));
  const cells = (texts) => texts.map((text, i) => el("td", { class: columns[i].text ? "name" : "n" }, text));
  function fill() {
    const column = columns[by],
      keyed = rows.map((row) => [value(column, row), row]);
    const sign = down ? -1 : 1;
    keyed.sort(([a], [b]) => (a < b ? -sign : a > b ? sign : 0));
    heads.forEach((th, i) => {
      if (i === by) th.setAttribute("aria-sort", down ? "descending" : "ascending");
      else th.removeAttribute("aria-sort");
      th.firstChild.textContent = columns[i].name + (i === by ? (down ? " ↓" : " ↑") : "");
    });
    body.replaceChildren(
      ...keyed.slice(0, shown).flatMap(([, row]) => {
        const tr = el("tr", {}, cells(columns.map((c) => (c.say ? c.say(value(c, row)) : value(c, row)))));
        const name = columns.findIndex((c) => c.text),
          cell = tr.children[name];
        if (pick) {
          cell.replaceChildren(el("button", { class: "pick", onclick: () => pick(row) }, ...cell.childNodes));
          return [tr];
        }
        if (!open) return [tr];
        const inner = el("tr", { class: "part", hidden: true }, el("td", { colspan: columns.length }));
        const twist = el(
          "button",
          {
            class: "twist",
            "aria-expanded": "false",
            onclick: () => {
              inner.hidden = !inner.hidden;
              twist.setAttribute("aria-expanded", String(!inner.hidden));
              if (!inner.firstChild.childNodes.length) inner.firstChild.append(open(row));
            },
          },
          ...cell.childNodes,
        );
        cell.replaceChildren(twist);
        return [tr, inner];
      }),
    );
    const sums = (part) =>
      columns.map((c, i) => (c.sum ? c.say(part.reduce((s, row) => s + c.of(row), 0)) : ""));
    const named = (part, text) => {
      const out = sums(part);
      const i = columns.findIndex((c) => c.text);
      out[i < 0 ? 0 : i] = text;
      return el("tr", { class: "sum" }, cells(out));
    };
    const rest = keyed.slice(shown).map(([, row]) => row);
    if (rest.length) body.append(named(rest, `${figures.count(rest.length)} others`));
    if (rows.length > 1 && columns.some((c) => c.sum)) body.append(named(rows, "sum"));
    more.hidden = !rest.length;
    more.textContent = "Show more rows";
  }
  fill();
  box.append(el("table", { "aria-label": label }, el("thead", {}, el("tr", {}, heads)), body), more);
  return box;
}

function siteName(report, node) {
  const frame = stacks.lead(report, node);
  return shorten(frame.function, 140) + "  " + stacks.place(frame);
}

views.push({
  id: "sites",
  title: "Sites",
  needs: ["sites", "span"],
  keeps: true,
  render(report, state, place) {
    const one = span.of(report, state);
    if (!this.box || !place.contains(this.box)) {
      this.note = el("p", { class: "soft small" });
      this.box = el("div");
      place.replaceChildren(
        el(
          "div",
          { class: "head" },
          el("div", {}, el("h2", { id: "sites-title" }, this.title), this.note),
          el(
            "label",
            {},
            "Filter",
            el("input", {
              type: "search",
              placeholder: "function or file on the stack",
              value: state.sites,
              oninput: (e) => store.set({ sites: e.target.value }),
            }),
          ),
        ),
        this.box,
      );
    }
    this.note.textContent = `Each stack that allocated or mapped. Live figures are ${one.kind === "window" ? `at the ends of the window from ${one.label}; the rest is of the window` : `${one.at}; the rest is ${one.own ? "over the run" : "up to then"}`}.`;
    const wanted = state.sites.trim().toLowerCase(),
      { rows, columns, start } = this.rows(report, one, wanted && this.filter(report, wanted));
    this.box.replaceChildren(
      rows.length
        ? sortable({
            label: "Sites",
            rows,
            start,
            page: 25,
            open: (row) =>
              row.node ? stacks.list(report, row.node) : el("p", {}, "Not told apart over time."),
            columns,
          })
        : el("p", { class: "empty" }, wanted ? "No site's stack has a frame like that." : "Nothing here."),
    );
  },
  rows(report, one, within) {
    const name = {
      name: "Function",
      text: true,
      of: (s) => s.node,
      say: (node) => (node === null ? "(small stacks)" : siteName(report, node)),
    };
    const bytes = (name, of) => ({ name, of, say: figures.bytes, sum: true }),
      count = (name, of) => ({ name, of, say: figures.count, sum: true }),
      change = (name, of) => ({ name, of, say: figures.change, sum: true });
    const amounts = one.own ? null : span.amounts(report, one);
    if (!amounts)
      return {
        start: 1,
        rows: within ? report.sites.filter((s) => within[s.node]) : report.sites,
        columns: [
          name,
          bytes("Live", (s) => s.live_usable_bytes),
          count("Live blocks", (s) => s.live_blocks),
          bytes("Mapped, resident", (s) => s.mapped_resident_bytes || 0),
          bytes("All resident", (s) => (s.live_resident_bytes || 0) + (s.mapped_resident_bytes || 0)),
          bytes("Slop", (s) => s.live_usable_bytes - s.live_requested_bytes),
          bytes("Heap peak", (s) => s.heap_peak_usable_bytes),
          bytes("End", (s) => s.end_usable_bytes),
          bytes("Cumulative", (s) => s.usable_bytes),
          count("Allocations", (s) => s.allocations),
          count("Temporaries", (s) => s.temporaries),
        ],
      };
    const ids = [
        "live_usable_bytes",
        "live_blocks",
        "acquired_bytes",
        "acquired_blocks",
        "released_bytes",
        "released_blocks",
        "net_bytes",
      ],
      values = ids.map((id) => amounts.bySite(id)),
      rows = [];
    for (let s = 0; s < values[0].length; s++) {
      const node = s < report.sites.length ? report.sites[s].node : null;
      if (within && !(node !== null && within[node])) continue;
      if (values.some((of) => of[s])) rows.push({ node, v: values.map((of) => of[s]) });
    }
    const of = (id) => (row) => row.v[ids.indexOf(id)];
    const then = [
      bytes(one.kind === "window" ? "Live at its end" : "Live", of("live_usable_bytes")),
      count("Live blocks", of("live_blocks")),
    ];
    const did = [
      bytes("Allocated", of("acquired_bytes")),
      bytes("Freed", of("released_bytes")),
      count("Allocations", of("acquired_blocks")),
      count("Frees", of("released_blocks")),
    ];
    return one.kind === "window"
      ? { start: 1, rows, columns: [name, change("Net", of("net_bytes")), ...did, ...then] }
      : { start: 1, rows, columns: [name, ...then, ...did] };
  },
  filter(report, wanted) {
    const hit = report.frames.map((f) => matches(f, wanted)),
      within = new Uint8Array(report.parents.length);
    for (let n = 1; n < within.length; n++)
      within[n] = hit[report.frameOf[n]] || within[report.parents[n]] ? 1 : 0;
    return within;
  },
});

function simpleTable(id, title, key, note, columns, open) {
  views.push({
    id,
    title,
    needs: [],
    skip: (report) => !report[key].length,
    render(report, state, place) {
      place.append(
        head(this, note),
        sortable({
          label: title,
          rows: report[key],
          columns: columns(report),
          start: columns.start || 1,
          page: 25,
          open: open && ((row) => stacks.list(report, row.node)),
        }),
      );
    },
  });
}

simpleTable(
  "growth",
  "Growing buffers",
  "growth",
  "What was copied from block to block, against what doubling would copy at most; a step in place copies nothing. Over the run.",
  (report) => [
    { name: "Function", text: true, of: (g) => g.node, say: (n) => siteName(report, n) },
    { name: "Copied", of: (g) => g.copied_bytes, say: figures.bytes, sum: true },
    { name: "Pattern", text: true, of: (g) => growthName(g.pattern) + (g.by_hand ? ", by hand" : "") },
    { name: "By doubling", of: (g) => g.doubling_copied_bytes, say: figures.bytes, sum: true },
    { name: "Asked for", of: (g) => g.allocated_bytes, say: figures.bytes, sum: true },
    { name: "Chains", of: (g) => g.chains, say: figures.count, sum: true },
    { name: "Steps", of: (g) => g.steps, say: figures.count, sum: true },
    { name: "In place", of: (g) => g.in_place_steps, say: figures.count, sum: true },
    { name: "Largest", of: (g) => g.largest_bytes, say: figures.bytes },
  ],
  true,
);

function growthName(pattern) {
  return (
    {
      just_enough: "just enough",
      irregular: "irregular",
      fixed_step: `by ${figures.bytes(pattern.value || 0)}`,
      exponential: `× ${Number(pattern.value || 0).toFixed(2)}`,
    }[pattern.how] || pattern.how
  );
}

simpleTable(
  "zombies",
  "Blocks that outlive their phase",
  "zombies",
  "Still live when the phase ended; and of those, at the end of the run.",
  (report) => [
    { name: "Function", text: true, of: (z) => z.node, say: (n) => siteName(report, n) },
    { name: "Given", of: (z) => z.usable_bytes, say: figures.bytes, sum: true },
    { name: "Phase", text: true, of: (z) => z.phase },
    { name: "Blocks", of: (z) => z.blocks, say: figures.count, sum: true },
    { name: "At the end", of: (z) => z.end_usable_bytes, say: figures.bytes, sum: true },
    { name: "Blocks at the end", of: (z) => z.end_blocks, say: figures.count, sum: true },
  ],
  true,
);
simpleTable("threads", "Threads", "threads", "Over the run.", () => [
  { name: "Thread", text: true, of: (t) => (t.tid ? `${t.name} (${t.tid})` : t.name || "(from outside)") },
  { name: "Asked for", of: (t) => t.requested_bytes, say: figures.bytes, sum: true },
  { name: "Allocations", of: (t) => t.allocations, say: figures.count, sum: true },
  { name: "Remote frees", of: (t) => t.remote_frees, say: figures.count, sum: true },
  { name: "First event", of: (t) => t.started_ns, say: figures.duration },
  {
    name: "Ended",
    of: (t) => t.ended_ns ?? Infinity,
    say: (v) => (v === Infinity ? "not seen" : figures.duration(v)),
  },
]);
simpleTable("marks", "Marks", "marks", "Allocations and bytes are since the mark before.", () => [
  { name: "Mark", text: true, of: (m) => m.name },
  { name: "Time", of: (m) => m.time_ns, say: figures.duration },
  { name: "Live", of: (m) => m.live_usable_bytes, say: figures.bytes },
  { name: "Live blocks", of: (m) => m.live_blocks, say: figures.count },
  { name: "Allocations", of: (m) => m.allocations, say: figures.count, sum: true },
  { name: "Asked for", of: (m) => m.requested_bytes, say: figures.bytes, sum: true },
]);
