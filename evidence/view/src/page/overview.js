// The head of the page, and the books of an instant: a bar, and a table whose rows add up.
//
// O1  Completeness stands before any figure, and the verdict before any table.
// O2  Percentages are of the resident memory of the chosen moment, and of nothing else.
// O3  Full books need a snapshot, which instants have. Elsewhere there is the nearest sample of resident
//     memory and the exact live heap: fewer rows, which add up too, and the distance is said. Pages on which no
//     block ever was cannot be told from free ones then: both stand in the row of other anonymous memory. A row
//     that comes out negative (more live than resident) is shown as it is.

const BOOK_COLORS = {
  live: "--c0",
  slop: "--c1",
  "allocator-free": "--c2",
  "arena-free": "--c12",
  "allocator-metadata": "--c5",
  "heap-unseen": "--c10",
  "mapped-files": "--c3",
  stacks: "--c6",
  "program-maps": "--c4",
  "program-files": "--c11",
  shared: "--c8",
  "other-mappings": "--c7",
  recorder: "--c9",
  unclassified: "--mark",
};

/** What the headline says of processes that have no trace. */
function beside(lost) {
  if (!lost) return "";
  return lost === 1
    ? "1 process that it started was not recorded; of this one "
    : `${figures.count(lost)} processes that it started were not recorded; of this one `;
}

/** What can go back, largest first: at most three findings, none below the five-hundredth part of
 * resident memory from which the verdict counts them (advice.rs, WORTH). */
function largestSavings(report) {
  const at = report.instants[report.at],
    floor = at && at.books ? at.books.resident_bytes / 500 : 0;
  return report.findings
    .filter((f) => f.saved_bytes > 0 && f.saved_bytes >= floor && !(f.node === null && f.more_nodes.length))
    .sort((a, b) => b.saved_bytes - a.saved_bytes)
    .slice(0, 3);
}

/** The verdict, and how the most of it would go back; nothing where no snapshot says what is resident. */
function verdict(report) {
  if (!report.verdict) return "";
  const savings = largestSavings(report);
  const item = (f) =>
    el(
      "li",
      {},
      el("span", { class: "saves" }, figures.bytes(f.saved_bytes)),
      el("span", {}, f.title, f.change ? el("span", { class: "soft" }, ` → ${f.change}`) : ""),
    );
  return el(
    "div",
    { class: "verdict", role: "note", "aria-label": "Verdict" },
    el("p", {}, report.verdict),
    savings.length ? el("ol", { class: "savings" }, savings.map(item)) : "",
  );
}

function renderHeader(report, place) {
  const p = report.program,
    c = report.completeness;
  const status = el(
    "div",
    { class: "status" + (c.complete && !c.lost_children ? "" : " warn"), role: "status" },
    el("b", {}, c.complete && !c.lost_children ? "Complete" : "Incomplete"),
    c.complete
      ? `: ${beside(c.lost_children)}${figures.count(c.events)} events, ${c.unrecorded_calls ? `and ${figures.count(c.unrecorded_calls)} calls passed unrecorded` : "none lost"}`
      : c.lost_events + (c.unread_events || 0)
        ? `: ${figures.count(c.events)} events read, ${figures.count(c.lost_events + (c.unread_events || 0))} lost or not readable — figures may be too small`
        : `: ${figures.count(c.events)} events read; what is missing:`,
  );
  const notes = [...c.notes];
  if (c.truncated_stacks)
    notes.unshift(
      `Stacks without their outermost frames, as unwind information ends there: ${figures.count(c.truncated_stacks)}.`,
    );
  if (c.unknown_frees && (c.began_late || c.complete))
    notes.unshift(`Releases of blocks from before recording: ${figures.count(c.unknown_frees)}.`);
  const facts = [
    ["Ran", figures.duration(p.duration_ns)],
    ["Ended", p.ended],
    ["Allocator", p.allocator],
    ["System", p.system],
    ["Highest RSS", p.max_rss_bytes === null ? "" : figures.bytes(p.max_rss_bytes)],
    ["CPU", !p.cpu_ns ? "" : figures.duration(p.cpu_ns)],
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
    verdict(report),
    ...(report.own_heaps || []).map((heap) =>
      el("p", { class: heap.allocator ? "warn" : "small soft" }, `${heap.what} ${heap.change}`),
    ),
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
  needs: ["span"],
  render(report, state, place) {
    const one = span.of(report, state);
    if (!report.instants.length) {
      place.append(head(this, ""), el("p", { class: "empty" }, "The report has no instants."));
      return;
    }
    if (one.kind === "window") this.renderWindow(report, one, place);
    else this.renderMoment(report, one, place);
  },
  renderMoment(report, one, place) {
    const at = booksAt(report, one.instant, one.to);
    place.append(
      head(
        this,
        `${capital(one.at)}. Live heap then: ${figures.count(at.blocks)} blocks, ${figures.bytes(at.requested)} asked for, ${figures.bytes(at.usable)} given (slop ${figures.bytes(at.usable - at.requested)}).`,
      ),
    );
    const books = at.books;
    if (!books) {
      place.append(
        el(
          "p",
          { class: "empty" },
          "No snapshot and no sample of resident memory belongs to this moment, so what is resident is not known. Choose another.",
        ),
      );
      return;
    }
    const rows = books.rows.filter((row) => row.bytes !== 0);
    place.append(this.bar(rows, books), el("div", { class: "scroll" }, this.table(rows, books)));
    const notes = [
      ...(books.beside || [])
        .filter((row) => row.bytes)
        .map((row) => `${capital(row.label)}: ${figures.bytes(row.bytes)}. ${row.meaning}`),
      ...books.notes,
    ];
    if (books.beside && books.beside.length && !books.beside.some((row) => row.id === "huge-pages"))
      notes.unshift("In huge pages: not known.");
    if (books.live_not_resident_bytes)
      notes.push(
        `${figures.bytes(books.live_not_resident_bytes)} of live blocks are not resident: never touched, or swapped out.`,
      );
    if (books.skew_ns || books.skew_bytes) notes.push(distance(books));
    this.check(place, books);
    place.append(...notes.map((note) => el("p", { class: "small soft" }, note)));
  },
  /** The books at both ends of a window, and what changed; in full if both ends have a snapshot. */
  renderWindow(report, one, place) {
    const w = report.windows,
      instant = (edge) => w.instantsOf[edge].find((i) => report.instants[i].books) ?? null;
    const full = instant(one.from) !== null && instant(one.to) !== null,
      [from, to] = [one.from, one.to].map((edge) => booksAt(report, full ? instant(edge) : null, edge)),
      amounts = span.amounts(report, one);
    const made = amounts.total("acquired_bytes"),
      freed = amounts.total("released_bytes"),
      blocks = amounts.total("acquired_blocks");
    place.append(
      head(
        this,
        `${capital(one.at)}: ${figures.count(blocks)} allocations of ${figures.bytes(made)} (given), ${figures.count(amounts.total("released_blocks"))} frees of ${figures.bytes(freed)}; ${figures.change(made - freed)} in ${figures.changeCount(amounts.total("net_blocks"))} blocks.`,
      ),
    );
    if (!from.books || !to.books) {
      place.append(
        el("p", { class: "empty" }, "Resident memory was not sampled near both ends of this window."),
      );
      return;
    }
    const ids = [...new Set([...from.books.rows, ...to.books.rows].map((row) => row.id))],
      row = (books, id) => books.rows.find((one) => one.id === id) || { bytes: 0 };
    const lines = ids
      .map((id) => ({
        id,
        row: { ...row(from.books, id), ...row(to.books, id) },
        a: row(from.books, id).bytes,
        b: row(to.books, id).bytes,
      }))
      .filter((line) => line.a || line.b);
    const cells = (name, a, b, cls) =>
      el(
        "tr",
        { class: cls },
        el("td", {}, name),
        el("td", { class: "n" }, figures.bytes(a)),
        el("td", { class: "n" }, figures.bytes(b)),
        el("td", { class: "n" + (b > a ? " more" : b < a ? " less" : "") }, figures.change(b - a)),
      );
    const numbers = ["At its start", "At its end", "Change"].map((text) => el("th", { class: "n" }, text));
    place.append(
      el(
        "div",
        { class: "scroll" },
        el(
          "table",
          { "aria-label": "Books of the window" },
          el("thead", {}, el("tr", {}, el("th", {}, "Part"), numbers)),
          el(
            "tbody",
            {},
            lines.map((line) =>
              cells(
                [el("span", { class: "chip", style: { background: this.color(line) } }), line.row.label],
                line.a,
                line.b,
              ),
            ),
            cells("= resident", from.books.resident_bytes, to.books.resident_bytes, "sum"),
          ),
        ),
      ),
    );
    this.check(place, from.books);
    this.check(place, to.books);
    const notes = full
      ? ["Both ends are instants with a snapshot: these are their full books."]
      : [...new Set([...from.books.notes, ...to.books.notes])];
    place.append(...notes.map((note) => el("p", { class: "small soft" }, note)));
  },
  check(place, books) {
    const sum = books.rows.reduce((total, row) => total + row.bytes, 0);
    if (sum !== books.resident_bytes)
      place.append(
        el(
          "p",
          { class: "warn" },
          `The rows add up to ${sum} bytes, not ${books.resident_bytes}: a fault of the analysis, please report it.`,
        ),
      );
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
          style: { flex: `${Math.max(0, row.bytes)} 0 0`, background: this.color(row) },
        }),
      ),
    );
  },
  table(rows, books) {
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

/** How far the pages are from their moment, in time and in live bytes. */
function distance(books) {
  const bytes = books.skew_bytes || 0,
    live = bytes && `, when ${figures.bytes(Math.abs(bytes))} ${bytes < 0 ? "less" : "more"} lived`;
  return `The snapshot was taken ${figures.duration(books.skew_ns)} from the instant${live || ""}.`;
}

/** "in the window …" at the beginning of a sentence. */
function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** The live heap, and the books as far as they are known (O3), at an instant or an edge. */
function booksAt(report, instant, edge) {
  const w = report.windows,
    known = instant === null || instant === undefined ? null : report.instants[instant];
  if (!known && !w) return { blocks: 0, requested: 0, usable: 0, books: null };
  const level = known
    ? { blocks: known.live_blocks, requested: known.live_requested_bytes, usable: known.live_usable_bytes }
    : { blocks: w.liveBlocks[edge], requested: w.liveRequested[edge], usable: w.liveUsable[edge] };
  if (known && known.books) return { ...level, books: known.books };
  const t = report.timeline,
    ns = known ? known.time_ns : w.time[edge];
  if (!t.rss_t_ns.length) return { ...level, books: null };
  const after = lowerBound(t.rss_t_ns, ns),
    before = Math.max(0, after - 1),
    near = after < t.rss_t_ns.length && t.rss_t_ns[after] - ns < ns - t.rss_t_ns[before] ? after : before,
    rss = t.rss_bytes[near],
    anon = t.anon_bytes[near];
  const row = (id, label, bytes, meaning) => ({ id, label, bytes, meaning, parts: [] });
  return {
    ...level,
    books: {
      resident_bytes: rss,
      live_not_resident_bytes: 0,
      skew_ns: 0,
      notes: [
        `No snapshot belongs to ${figures.moment(ns)}: resident memory is from the sample ${figures.duration(Math.abs(t.rss_t_ns[near] - ns))} away, and live bytes are counted whether resident or not.`,
      ],
      rows: [
        row("live", "live blocks", level.requested, "Bytes that the program asked for and has not released."),
        row("slop", "slop", level.usable - level.requested, "What the allocator gave beyond that."),
        row(
          "allocator-free",
          "other anonymous memory",
          anon - level.usable,
          "Anonymous resident memory minus live blocks: free, kept by the allocator; touched, no block ever seen; the allocator's own data; mapped past it; stacks and written data. Negative where blocks were never touched.",
        ),
        row("mapped-files", "files and shared memory", rss - anon, "Resident memory that is not anonymous."),
      ],
    },
  };
}
