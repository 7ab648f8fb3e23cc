// What to change: savings first, then what would allocate less, then who holds memory, then the rest.
//
// F1  A finding without a saving is never listed among those that save.
// F2  Stacks are made when a finding is opened.

views.push({
  id: "findings",
  title: "What to change",
  needs: [],
  render(report, state, place) {
    const at = report.instants[report.at];
    place.append(
      head(
        this,
        `Savings are as of ${at ? instantLabel(at) : "the report's instant"}; they may overlap, so they do not add up.`,
      ),
    );
    const gives = [],
      less = [],
      holds = [],
      beside = [];
    const rest = (f) => f.node === null && f.more_nodes.length > 0;
    for (const f of report.findings)
      (f.saved_bytes > 0
        ? gives
        : f.saved_cumulative_bytes > 0 || f.saved_allocations > 0
          ? less
          : f.now_bytes > 0 && (f.kind === "holder" || f.kind === "retained")
            ? holds
            : beside
      ).push(f);
    gives.sort((a, b) => rest(a) - rest(b) || b.saved_bytes - a.saved_bytes);
    less.sort(
      (a, b) =>
        rest(a) - rest(b) ||
        (a.kind === "churn") - (b.kind === "churn") ||
        b.saved_cumulative_bytes - a.saved_cumulative_bytes || b.saved_allocations - a.saved_allocations,
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
    this.list(report, place, "Who holds it — not waste by itself", holds, (f) => figures.bytes(f.now_bytes));
    beside.sort((a, b) => b.now_bytes - a.now_bytes);
    this.list(report, place, "For the record — nothing to give back at this instant", beside, (f) =>
      f.now_bytes ? figures.bytes(f.now_bytes) : "–",
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
              el(
                "p",
                { class: "small soft" },
                `… and ${figures.count(others - 10)} other stacks.`,
              ),
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
          lead
            ? el("span", { class: "change mono" }, lead)
            : null,
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
