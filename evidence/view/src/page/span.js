// The span: which moment or window every view is about, and what can be measured of it.
//
//   state.span   ""      the report's own instant        "i2"       another instant
//                "e31"   the edge nearest a moment       "e12-e40"  the window between two edges
//   spanOf(state) ──► { kind, from, to, label, … } ──► measures(span) ──► values by site
//
// S1  Every figure of a view is of one span, and its head says which (span.label, span.at).
// S2  A window's figures are sums over what happened in it: allocated − freed = live at its end − live
//     at its start, for each stack and in all. “Grew” and “shrank” are the two signs of that difference.
// S3  At the report's own instant the figures are the report's; the windows' are the same (tested).
// S4  Without windows (an old report) only instants can be chosen, and live figures are of the
//     report's instant, which is then said.

const span = {
  /** The span of a state; what makes no sense is the report's own instant. */
  of(report, state) {
    const w = report.windows,
      text = state.span;
    if (this.known && this.known.text === text) return this.known;
    let found = null;
    const window = /^e(\d+)-e(\d+)$/.exec(text),
      edge = /^e(\d+)$/.exec(text),
      instant = /^i(\d+)$/.exec(text);
    if (w && window && +window[1] < +window[2] && +window[2] <= w.last)
      found = this.window(report, +window[1], +window[2]);
    else if (w && edge && +edge[1] <= w.last) found = this.edge(report, +edge[1]);
    else if (instant && +instant[1] < report.instants.length) found = this.instant(report, +instant[1]);
    found = found || this.instant(report, report.at);
    found.text = text;
    return (this.known = found);
  },
  instant(report, index) {
    const instant = report.instants[index],
      edge = report.windows ? report.windows.edgeOf.get(index) : undefined;
    return {
      kind: "instant",
      instant: index,
      own: index === report.at,
      from: null,
      to: edge === undefined ? null : edge,
      from_ns: null,
      to_ns: instant ? instant.time_ns : 0,
      label: instant ? instantLabel(instant) : "the report's instant",
      at: instant ? `at ${instantLabel(instant)}` : "at the report's instant",
    };
  },
  edge(report, edge) {
    const ns = report.windows.time[edge],
      instants = report.windows.instantsOf[edge];
    if (instants.length) return this.instant(report, instants[0]);
    const label = figures.moment(ns);
    return {
      kind: "edge",
      instant: null,
      own: false,
      from: null,
      to: edge,
      from_ns: null,
      to_ns: ns,
      label,
      at: `at ${label}`,
    };
  },
  window(report, from, to) {
    const w = report.windows,
      name = (edge) => {
        const instant = w.instantsOf[edge].map((i) => report.instants[i])[0];
        return instant ? instantLabel(instant) : edge ? figures.moment(w.time[edge]) : "the start";
      };
    const label = `${name(from)} to ${name(to)}`;
    return {
      kind: "window",
      instant: null,
      own: false,
      from,
      to,
      from_ns: w.time[from],
      to_ns: w.time[to],
      label,
      at: `in the window from ${label}`,
    };
  },
  /** Figures of a span from the windows; null where there are none. */
  amounts(report, one) {
    if (!report.windows || one.to === null) return null;
    if (!one.amounts) one.amounts = report.windows.amounts(one.from, one.to);
    return one.amounts;
  },
  /** Text of the span that begins and ends at these moments. */
  text(report, from_ns, to_ns) {
    const w = report.windows,
      from = w.floor(from_ns),
      to = w.floor(to_ns);
    return from < to ? `e${from}-e${to}` : `e${to}`;
  },
};

const RUN_MEASURES = [
  {
    id: "heap_peak_usable_bytes",
    label: "Bytes at the heap's peak",
    unit: "bytes",
    of: (s) => s.heap_peak_usable_bytes,
  },
  { id: "end_usable_bytes", label: "Bytes at the end", unit: "bytes", of: (s) => s.end_usable_bytes },
  { id: "usable_bytes", label: "Allocated over the run", unit: "bytes", of: (s) => s.usable_bytes },
  { id: "allocations", label: "Allocations over the run", unit: "count", of: (s) => s.allocations },
  { id: "temporaries", label: "Temporaries over the run", unit: "count", of: (s) => s.temporaries },
  { id: "slop", label: "Slop over the run", unit: "bytes", of: (s) => s.usable_bytes - s.requested_bytes },
];
const OWN_MEASURES = [
  { id: "live_usable_bytes", label: "Live bytes", unit: "bytes", of: (s) => s.live_usable_bytes },
  { id: "live_blocks", label: "Live blocks", unit: "count", of: (s) => s.live_blocks },
  {
    id: "live_slop",
    label: "Live slop",
    unit: "bytes",
    of: (s) => s.live_usable_bytes - s.live_requested_bytes,
  },
  {
    id: "mapped",
    label: "Mapped by the program, resident",
    unit: "bytes",
    of: (s) => s.mapped_resident_bytes || 0,
  },
  {
    id: "all_resident",
    label: "All resident: live and mapped",
    unit: "bytes",
    of: (s) => (s.live_resident_bytes || 0) + (s.mapped_resident_bytes || 0),
  },
  { id: "mapped_space", label: "Address space mapped", unit: "bytes", of: (s) => s.mapped_bytes || 0 },
  ...RUN_MEASURES,
];
const AT_MEASURES = [
  { id: "live_usable_bytes", label: "Live bytes", unit: "bytes" },
  { id: "live_blocks", label: "Live blocks", unit: "count" },
  { id: "live_slop", label: "Live slop", unit: "bytes" },
  { id: "acquired_bytes", label: "Allocated up to then", unit: "bytes", whole: "Allocated up to " },
  { id: "acquired_blocks", label: "Allocations up to then", unit: "count", whole: "Allocations up to " },
  { id: "released_bytes", label: "Freed up to then", unit: "bytes", whole: "Freed up to " },
];
// `whole` comes before the window's name.
const IN = " in the window from ",
  AT_END = " at the end of the window from ";
const WINDOW_MEASURES = [
  {
    id: "grown_bytes",
    label: "Net growth (stacks that grew)",
    unit: "bytes",
    whole: "Net growth of stacks that grew" + IN,
  },
  {
    id: "shrunk_bytes",
    label: "Net shrinkage (stacks that shrank)",
    unit: "bytes",
    whole: "Net shrinkage of stacks that shrank" + IN,
  },
  { id: "acquired_bytes", label: "Allocated in the window", unit: "bytes", whole: "Allocated" + IN },
  { id: "acquired_blocks", label: "Allocations in the window", unit: "count", whole: "Allocations" + IN },
  { id: "released_bytes", label: "Freed in the window", unit: "bytes", whole: "Freed" + IN },
  { id: "released_blocks", label: "Frees in the window", unit: "count", whole: "Frees" + IN },
  { id: "live_usable_bytes", label: "Live bytes at its end", unit: "bytes", whole: "Live bytes" + AT_END },
  { id: "live_blocks", label: "Live blocks at its end", unit: "count", whole: "Live blocks" + AT_END },
  { id: "acquired_slop", label: "Slop allocated in the window", unit: "bytes", whole: "Slop allocated" + IN },
];

/** What can be measured of a span; the first is what is shown if the chosen one is not among them. */
function measuresOf(report, one) {
  if (one.kind === "window") return WINDOW_MEASURES;
  if (!one.own && report.windows && one.to !== null) return AT_MEASURES;
  // Where no snapshot belongs to the instant, what is resident is not known.
  return OWN_MEASURES.filter((m) => report.knowsMapped || !["mapped", "all_resident"].includes(m.id));
}

/** The chosen measure, and its values by site (the last: what is not told apart by stack). */
function measured(report, state) {
  const one = span.of(report, state),
    list = measuresOf(report, one),
    chosen = one.kind === "window" ? state.change : state.measure,
    measure = list.find((m) => m.id === chosen) || list[0],
    amounts = span.amounts(report, one);
  let values;
  if (measure.of) {
    values = new Float64Array(report.sites.length + 1);
    report.sites.forEach((site, index) => (values[index] = measure.of(site)));
  } else values = amounts.bySite(measure.id);
  const run = RUN_MEASURES.some((one) => one.id === measure.id);
  let beside = "";
  if (measure.id === "grown_bytes" || measure.id === "shrunk_bytes") {
    const other = measure.id === "grown_bytes" ? "shrunk_bytes" : "grown_bytes";
    beside = `; other stacks ${other === "shrunk_bytes" ? "shrank" : "grew"} by ${figures.bytes(amounts.total(other))}, net ${figures.change(amounts.total("net_bytes"))}`;
  }
  return {
    beside,
    span: one,
    list,
    measure,
    values,
    whole: run ? measure.label : measure.whole ? measure.whole + one.label : `${measure.label} ${one.at}`,
  };
}
