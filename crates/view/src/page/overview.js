// The head of the page, and the books of an instant: a bar, and a table whose rows add up.
//
// O1  Completeness stands before any figure.
// O2  Percentages are of the resident memory of the chosen instant, and of nothing else.

const BOOK_COLORS = {
  live: "--c0",
  slop: "--c1",
  "allocator-free": "--c2",
  "allocator-metadata": "--c5",
  "mapped-files": "--c3",
  stacks: "--c6",
  "program-maps": "--c4",
  shared: "--c8",
  "other-mappings": "--c7",
  recorder: "--c9",
  unclassified: "--mark",
};

function renderHeader(report, place) {
  const p = report.program,
    c = report.completeness;
  const status = el(
    "div",
    { class: "status" + (c.complete ? "" : " warn"), role: "status" },
    el("b", {}, c.complete ? "Complete" : "Incomplete"),
    c.complete
      ? `: ${figures.count(c.events)} events, none lost`
      : `: ${figures.count(c.events)} events read, ${figures.count(c.lost_events)} known to be lost — figures may be too small`,
  );
  const notes = [...c.notes];
  if (c.truncated_stacks)
    notes.unshift(
      `Stacks without their outermost frames, as unwind information ends there: ${figures.count(c.truncated_stacks)}.`,
    );
  if (c.unknown_frees)
    notes.unshift(`Releases of blocks from before recording: ${figures.count(c.unknown_frees)}.`);
  const facts = [
    ["Ran", figures.duration(p.duration_ns)],
    ["Ended", p.ended],
    ["Allocator", p.allocator],
    ["System", p.system],
    ["Highest RSS", p.max_rss_bytes === null ? "" : figures.bytes(p.max_rss_bytes)],
    ["CPU", p.cpu_ns === null ? "" : figures.duration(p.cpu_ns)],
    ["Allocations", figures.count(report.totals.allocations)],
    ["Asked for in all", figures.bytes(report.totals.requested_bytes)],
    ["Recorder's own memory", figures.bytes(p.recorder_bytes)],
    ["Origin", p.origin || ""],
  ];
  place.replaceChildren(
    el("h1", {}, p.name || "(unnamed program)", el("span", { class: "soft" }, ` · ${p.pid}`)),
    p.argv.length
      ? el("p", { class: "mono soft", style: { overflowWrap: "anywhere" } }, p.argv.join(" "))
      : "",
    status,
    ...notes.map((note) => el("p", { class: "small soft" }, note)),
    el(
      "dl",
      { class: "facts small" },
      facts.filter(([, v]) => v).map(([k, v]) => el("div", {}, el("dt", {}, k), el("dd", {}, v))),
    ),
  );
  if (!c.events && !report.totals.allocations)
    place.append(
      el(
        "p",
        { class: "warn", style: { padding: "8px 12px" } },
        "Nothing was recorded, so nothing can be said about this program's memory. It may be statically linked or setuid, bring its own allocator, or have started another program, which has a trace of its own.",
      ),
    );
}

views.push({
  id: "books",
  title: "Where resident memory is",
  needs: ["instant"],
  render(report, state, place) {
    const instant = report.instants[state.instant];
    if (!instant) {
      place.append(head(this, ""), el("p", { class: "empty" }, "The report has no instants."));
      return;
    }
    const pick = choice(
      "At",
      state.instant,
      report.instants.map((i, n) => [n, instantLabel(i)]),
      (v) => store.set({ instant: Number(v) }),
    );
    const slop = instant.live_usable_bytes - instant.live_requested_bytes;
    place.append(
      head(
        this,
        `Live heap then: ${figures.count(instant.live_blocks)} blocks, ${figures.bytes(instant.live_requested_bytes)} asked for, ${figures.bytes(instant.live_usable_bytes)} given (slop ${figures.bytes(slop)}).`,
        pick,
      ),
    );
    const books = instant.books;
    if (!books) {
      place.append(
        el(
          "p",
          { class: "empty" },
          "No snapshot of the mappings belongs to this instant, so its resident memory is not known. Choose another.",
        ),
      );
      return;
    }
    const rows = books.rows.filter((row) => row.bytes > 0);
    place.append(this.bar(rows, books), el("div", { class: "scroll" }, this.table(report, rows, books)));
    const notes = [...books.notes];
    if (books.live_not_resident_bytes)
      notes.push(
        `${figures.bytes(books.live_not_resident_bytes)} of live blocks are not resident: never touched, or swapped out.`,
      );
    if (books.skew_ns)
      notes.push(`The snapshot was taken ${figures.duration(books.skew_ns)} from the instant.`);
    const sum = books.rows.reduce((total, row) => total + row.bytes, 0);
    if (sum !== books.resident_bytes)
      place.append(
        el(
          "p",
          { class: "warn" },
          `The rows add up to ${sum} bytes, not ${books.resident_bytes}: a fault of the analysis, please report it.`,
        ),
      );
    place.append(...notes.map((note) => el("p", { class: "small soft" }, note)));
  },
  color: (row) => `var(${BOOK_COLORS[row.id] || "--c9"})`,
  bar(rows, books) {
    const text = rows.map((r) => `${r.label} ${figures.percent(r.bytes, books.resident_bytes)}`).join(", ");
    return el(
      "div",
      { class: "stack-bar", role: "img", "aria-label": text },
      rows.map((row) =>
        el("span", {
          title: `${row.label}: ${figures.bytes(row.bytes)}`,
          style: { flex: `${row.bytes} 0 0`, background: this.color(row) },
        }),
      ),
    );
  },
  table(report, rows, books) {
    const body = el("tbody");
    for (const row of rows) {
      const chip = el("span", { class: "chip", style: { background: this.color(row) } });
      const parts = row.parts.map((part) =>
        el(
          "tr",
          { class: "part", hidden: true },
          el("td", { style: { paddingLeft: "42px", overflowWrap: "anywhere" } }, part.name),
          el("td", { class: "n" }, figures.bytes(part.bytes)),
          el("td", { class: "n" }, figures.percent(part.bytes, books.resident_bytes)),
          el("td", { class: "meaning" }),
        ),
      );
      const label = parts.length
        ? el(
            "button",
            {
              class: "twist",
              "aria-expanded": "false",
              onclick: (event) => {
                const open = event.currentTarget.getAttribute("aria-expanded") !== "true";
                event.currentTarget.setAttribute("aria-expanded", String(open));
                for (const part of parts) part.hidden = !open;
              },
            },
            chip,
            row.label,
          )
        : el("span", { style: { paddingLeft: "14px" } }, chip, row.label);
      body.append(
        el(
          "tr",
          {},
          el("td", {}, label),
          el("td", { class: "n" }, figures.bytes(row.bytes)),
          el("td", { class: "n" }, figures.percent(row.bytes, books.resident_bytes)),
          el("td", { class: "meaning soft small" }, row.meaning),
        ),
        ...parts,
      );
    }
    body.append(
      el(
        "tr",
        { class: "sum" },
        el("td", {}, "= resident"),
        el("td", { class: "n" }, figures.bytes(books.resident_bytes)),
        el("td", { class: "n" }, "100.0%"),
        el("td", { class: "meaning" }),
      ),
    );
    return el(
      "table",
      {},
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          el("th", {}, "Part"),
          el("th", { class: "n" }, "Bytes"),
          el("th", { class: "n" }, "of resident"),
          el("th", { class: "meaning" }, "What it is"),
        ),
      ),
      body,
    );
  },
});
