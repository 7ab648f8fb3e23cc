// Whose live blocks keep free memory resident: the pages they pin, at the chosen instant.
//
// K1  The shares of the rows and of "not listed" add up to the pinned bytes of the instant.
// K2  Functions are known of the report's own instant only; elsewhere the rows are stacks.

views.push({
  id: "pinned",
  title: "Free memory that live blocks pin",
  needs: ["span", "pins"],
  skip: (report) => !report.instants.some((i) => i.fragments),
  render(report, state, place) {
    const one = span.of(report, state),
      instant = one.instant === null ? null : report.instants[one.instant],
      all = instant && instant.fragments;
    const choices = report.instants
      .map((i, n) => [n, instantLabel(i), i.fragments])
      .filter(([, , there]) => there)
      .map(([n, label]) => [n, label]);
    if (!all) choices.unshift([one.instant, one.label]);
    const tools = [choice("At", one.instant, choices, (v) => store.set({ span: `i${v}` }))];
    const byFunction = all && all.functions.length > 0;
    if (byFunction)
      tools.push(
        choice(
          "Rows",
          state.pins,
          [
            ["function", "functions"],
            ["stack", "stacks"],
          ],
          (v) => store.set({ pins: v }),
        ),
      );
    place.append(
      head(
        this,
        "A page that holds a live byte stays resident; what is free on it is shared equally among its blocks. Own pages hold nothing else; side by side, a row's blocks would free them, less the pages that they fill.",
        ...tools,
      ),
    );
    if (!all) {
      place.append(
        el("p", { class: "empty" }, "Which pages are resident is known at some instants only. Choose one of them."),
      );
      return;
    }
    place.append(this.totals(all));
    const functions = byFunction && state.pins !== "stack";
    const rows = functions ? all.functions : all.pins;
    const listed = rows.reduce((sum, row) => sum + row.free_bytes, 0);
    if (rows.length) place.append(this.table(report, rows));
    const rest = all.pinned_bytes - listed;
    if (rest > 0)
      place.append(
        el(
          "p",
          { class: "small soft" },
          `Not listed: ${figures.bytes(rest)} pinned by smaller ${functions ? "functions" : `stacks (${figures.count(all.others.stacks)})`}.`,
        ),
      );
  },
  totals(all) {
    const page = 4096,
      facts = [
        ["Resident in the heap's pages", figures.bytes(all.resident_bytes)],
        ["Live, with headers", figures.bytes(all.used_bytes)],
        [`Free, pinned on ${figures.count(all.partial_pages)} pages`, figures.bytes(all.pinned_bytes)],
        [
          `Free, nobody's: ${figures.count(all.pages - all.pinned_pages)} pages`,
          figures.bytes(all.nobodys_bytes),
        ],
        ["Pages with a live byte", figures.bytes(all.pinned_pages * page)],
        ["Packed, in one", figures.bytes(all.packed_pages * page)],
        ["Packed by size class", figures.bytes(all.class_packed_pages * page)],
        [
          "Spans",
          all.spans
            ? `${figures.count(all.spans.spans)}, ${figures.bytes(all.spans.resident_bytes)} resident (${all.spans.layout})`
            : "",
        ],
        ["Free where pages were not read", all.unread_bytes ? figures.bytes(all.unread_bytes) : ""],
      ];
    return el(
      "dl",
      { class: "facts small" },
      facts.filter(([, v]) => v).map(([k, v]) => el("div", {}, el("dt", {}, k), el("dd", {}, v))),
    );
  },
  table(report, rows) {
    const bytes = (name, of) => ({ name, of, say: figures.bytes, sum: true }),
      count = (name, of) => ({ name, of, say: figures.count, sum: true });
    const spans = rows.some((r) => r.sole_spans + r.joint_spans > 0);
    return sortable({
      label: this.title,
      rows,
      start: 1,
      page: 25,
      open: (row) => stacks.list(report, row.node),
      columns: [
        { name: "Function", text: true, of: (r) => r.node, say: (node) => siteName(report, node) },
        bytes("Share of free", (r) => r.free_bytes),
        count("Pinning blocks", (r) => r.blocks),
        bytes("Their bytes", (r) => r.block_bytes),
        count("Own pages", (r) => r.sole_pages),
        // Counted once for each row: a sum would count pages several times.
        { name: "Shared pages", of: (r) => r.joint_pages, say: figures.count },
        { name: "Would free", of: (r) => r.freed_pages * 4096, say: figures.bytes },
        { name: "Median age", of: (r) => (r.age ? r.age.median_ns : -1), say: (v) => (v < 0 ? "–" : figures.duration(v)) },
        { name: "Oldest", of: (r) => (r.age ? r.age.oldest_ns : -1), say: (v) => (v < 0 ? "–" : figures.duration(v)) },
        count("Live", (r) => r.live_blocks),
        count("Acquired", (r) => r.acquired_blocks),
        ...(spans ? [count("Own spans", (r) => r.sole_spans)] : []),
      ],
    });
  },
});
