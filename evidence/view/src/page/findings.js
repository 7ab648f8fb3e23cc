// What to change: savings first, then what would allocate less, then who holds memory, then the rest.
//
// F1  A finding without a saving is never listed among those that save.
// F2  Stacks are made when a finding is opened.
// F3  A finding is about the report's instant. At another moment, and in a window, each says beside it
//     what its stacks held or did there; those whose stacks did nothing there come last, folded away.

views.push({
  id: "findings",
  title: "What to change",
  needs: ["span"],
  render(report, state, place) {
    const at = report.instants[report.at],
      one = span.of(report, state);
    this.one = one;
    this.amounts = one.own ? null : span.amounts(report, one);
    place.append(
      head(
        this,
        (this.amounts ? `In italics: what the stacks of each did ${one.at}. ` : "") +
          `Savings are as of ${at ? instantLabel(at) : "the report's instant"}; no byte of live blocks is in two of them.`,
      ),
    );
    const gives = [],
      less = [],
      look = [],
      holds = [],
      free = [],
      beside = [];
    const rest = (f) => Number(f.node === null && f.more_nodes.length > 0);
    const quiet = [],
      talking = report.findings.filter((f) => this.active(report, f) || (quiet.push(f), false));
    for (const f of talking)
      (f.saved_bytes > 0
        ? gives
        : f.saved_cumulative_bytes > 0 || f.saved_allocations > 0
          ? less
          : f.kind === "retained" && f.now_bytes > 0 && f.confidence === "possible"
            ? look
            : f.now_bytes > 0 && f.kind === "retained"
              ? free
              : f.now_bytes > 0 && f.kind === "holder"
                ? holds
                : beside
      ).push(f);
    gives.sort((a, b) => rest(a) - rest(b) || b.saved_bytes - a.saved_bytes);
    less.sort(
      (a, b) =>
        rest(a) - rest(b) ||
        Number(a.kind === "churn") - Number(b.kind === "churn") ||
        b.saved_cumulative_bytes - a.saved_cumulative_bytes ||
        b.saved_allocations - a.saved_allocations,
    );
    holds.sort((a, b) => rest(a) - rest(b) || b.now_bytes - a.now_bytes);
    if (!report.findings.length)
      place.append(
        el(
          "p",
          { class: "empty" },
          report.completeness.events
            ? "No pass found anything to change. That covers the passes that ran, not all waste."
            : "Nothing was recorded.",
        ),
      );
    this.list(report, place, "What would give memory back", gives, (f) => figures.bytes(f.saved_bytes), true);
    this.list(report, place, "What would allocate less, over the whole run", less, (f) =>
      f.saved_cumulative_bytes && f.kind !== "churn"
        ? figures.bytes(f.saved_cumulative_bytes)
        : figures.count(f.saved_allocations) + " ×",
    );
    look.sort((a, b) => b.now_bytes - a.now_bytes);
    this.list(report, place, "Worth a look — how much it would save, the recording cannot tell", look, (f) =>
      figures.bytes(f.now_bytes),
    );
    this.list(report, place, "Who holds it — not waste by itself", holds, (f) => figures.bytes(f.now_bytes));
    free.sort((a, b) => b.now_bytes - a.now_bytes);
    this.list(report, place, "Free, and left as it is — no change is advised for it", free, (f) =>
      figures.bytes(f.now_bytes),
    );
    beside.sort((a, b) => b.now_bytes - a.now_bytes);
    this.list(report, place, "For the record — nothing to give back at this instant", beside, (f) =>
      f.now_bytes ? figures.bytes(f.now_bytes) : "–",
    );
    if (!quiet.length) return;
    const fold = el(
      "details",
      { class: "fallback" },
      el(
        "summary",
        {},
        `${figures.count(quiet.length)} findings whose stacks ${one.kind === "window" ? "did nothing" : "held nothing"} ${one.at}`,
      ),
    );
    this.list(report, fold, "Of the whole run", quiet, (f) => figures.bytes(f.saved_bytes || f.now_bytes));
    place.append(fold);
  },
  /** The sites of a finding's stacks, as far as it lists them. */
  sitesOf: (report, f) =>
    [f.node, ...f.more_nodes]
      .map((node) => report.siteOf.get(node))
      // A stack that only mapped has no blocks to follow.
      .filter((site) => site !== undefined && (report.sites[site].usable_bytes || report.sites[site].live_blocks)),
  sum(report, f, id) {
    const values = this.amounts.bySite(id);
    return this.sitesOf(report, f).reduce((sum, site) => sum + values[site], 0);
  },
  /** Whether its stacks did anything in the span; one without stacks is about the process. */
  active(report, f) {
    if (!this.amounts || !this.sitesOf(report, f).length) return true;
    return ["live_blocks", "acquired_blocks", "released_blocks"].some((id) => this.sum(report, f, id) > 0);
  },
  /** What its stacks did in the span, in words; null at the report's own instant. */
  within(report, f) {
    if (!this.amounts) return null;
    const sites = this.sitesOf(report, f);
    if (!sites.length) return null;
    const figure = (id) => figures.bytes(this.sum(report, f, id)),
      listed =
        f.stacks > sites.length
          ? ` (its ${figures.count(sites.length)} listed stacks of ${figures.count(f.stacks)})`
          : "";
    const text =
      this.one.kind === "window"
        ? `allocated ${figure("acquired_bytes")}, freed ${figure("released_bytes")}, net ${figures.change(this.sum(report, f, "net_bytes"))}, live at its end ${figure("live_usable_bytes")}`
        : `live ${figure("live_usable_bytes")} in ${figures.count(this.sum(report, f, "live_blocks"))} blocks`;
    return el(
      "em",
      { class: "change within" },
      `${this.one.kind === "window" ? "In the window" : "Then"}: ${text}${listed}`,
    );
  },
  list(report, place, title, findings, figure, saves) {
    if (!findings.length) return;
    const list = el("ul", { class: "findings" });
    let shown = 0;
    const more = el("button", { onclick: () => add(50) });
    const add = (n) => {
      for (const f of findings.slice(shown, shown + n))
        list.append(el("li", {}, this.item(report, f, figure(f), saves)));
      shown = Math.min(findings.length, shown + n);
      more.hidden = shown >= findings.length;
      more.textContent = `Show more (${figures.count(findings.length - shown)} others)`;
    };
    add(12);
    place.append(el("h3", {}, title), list, more);
  },
  // What another policy of growth would do, beside what happened.
  whatIf(other) {
    if (!other) return [];
    const [policy, most] = other.policy === "doubling" ? ["doubled", " at most"] : ["reserved", ""];
    return [
      [`Copied; if it ${policy}`, `${figures.bytes(other.copied_bytes)}; ${figures.bytes(other.then_copied_bytes)}${most}`],
      [`Buffers hold; if it ${policy}`, `${figures.bytes(other.held_bytes)}; ${figures.bytes(other.then_held_bytes)}`],
    ];
  },
  item(report, f, figure, saves) {
    const lead = f.node === null ? null : stacks.leadText(report, f.node);
    const body = el("div", { class: "body" });
    const details = el(
      "details",
      {
        class: "finding",
        ontoggle: () => {
          if (!details.open || body.childNodes.length) return;
          const facts = [
            ["Held now", figures.bytes(f.now_bytes)],
            ["Saved", f.saved_bytes ? figures.bytes(f.saved_bytes) : ""],
            [
              "Not allocated over the run",
              f.saved_cumulative_bytes ? figures.bytes(f.saved_cumulative_bytes) : "",
            ],
            ["Fewer allocations", f.saved_allocations ? figures.count(f.saved_allocations) : ""],
            ["Blocks", figures.count(f.blocks)],
            ...this.whatIf(f.growth_what_if),
          ];
          body.append(
            f.what ? el("p", {}, f.what) : "",
            el(
              "dl",
              { class: "facts small" },
              facts.filter(([, v]) => v).map(([k, v]) => el("div", {}, el("dt", {}, k), el("dd", {}, v))),
            ),
          );
          if (f.node !== null) body.append(stacks.list(report, f.node));
          for (const node of f.more_nodes.slice(0, 10))
            body.append(el("p", { class: "small soft" }, "Also from"), stacks.list(report, node));
          const others = Math.max(f.stacks - 1, f.more_nodes.length);
          if (others > 10)
            body.append(
              el("p", { class: "small soft" }, `… and ${figures.count(others - 10)} other stacks.`),
            );
        },
      },
      el(
        "summary",
        {},
        el("span", { class: "figure" + (saves ? " saves" : "") }, figure),
        el(
          "span",
          { class: "title" },
          f.title,
          f.change ? el("span", { class: "change small" }, "→ " + f.change) : null,
          lead ? el("span", { class: "change mono" }, lead) : null,
          this.within(report, f),
        ),
        el("span", { class: "tag" }, `${f.kind} · ${f.confidence}`),
      ),
      body,
    );
    return details;
  },
});

function shorten(text, length) {
  return text.length <= length
    ? text
    : text.slice(0, Math.floor((length * 2) / 3)) + "…" + text.slice(-Math.floor(length / 3));
}
