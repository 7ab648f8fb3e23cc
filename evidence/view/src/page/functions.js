// Functions, and one of them as a sandwich: who called it above, what it called below.
//
//   function │ total │ itself          callers  ▲      both halves are as wide as the total of the
//   (a click chooses one)              FUNCTION │      function: each stack once, however it recurses
//                                      callees  ▼
//
// N1  Total: what was asked for with the function on the stack. Itself: with the function innermost.
// N2  Totals overlap, so they do not add up; what functions asked for themselves does, to the whole.
// Not here: the tree (tree.js), drawing (flame.js).

views.push({
  id: "functions",
  title: "Functions",
  needs: ["span", "measure", "change", "function"],
  keeps: true,
  render(report, state, place, changed) {
    const what = chosenTree(report, state, "down"),
      { names, ids } = structureOf(report);
    if (!this.above || !place.contains(this.above.canvas)) this.build(place);
    const say = what.measure.unit === "bytes" ? figures.bytes : figures.count;
    if (!changed || changed.some((key) => key !== "function")) this.table(report, what, say, names);
    // The chosen one by name; the largest that has a caller and is more than a passer-on, if none is.
    const wanted = state.function === "" ? undefined : ids.get(state.function);
    const id = wanted !== undefined ? wanted : this.suggested(report);
    this.sandwich(what, id, say);
  },
  build(place) {
    const half = (ids, label, grow) => new FlameChart({ ids, label, grow });
    this.above = half("callers", "Callers of the function", "up");
    this.below = half("callees", "What the function calls", "down");
    this.note = el("p", { class: "soft small" });
    this.choices = el("span", { class: "tools" });
    this.list = el("div", { id: "function-list" });
    this.name = el("h3", { id: "sandwich-name" });
    this.search = el("input", {
      type: "search",
      placeholder: "function or file",
      oninput: () => this.refill(),
    });
    place.replaceChildren(
      el(
        "div",
        { class: "head" },
        el("div", {}, el("h2", { id: "functions-title" }, this.title), this.note),
        el("div", { class: "tools" }, this.choices, el("label", {}, "Find", this.search)),
      ),
      this.list,
      this.name,
      el("p", { class: "small soft" }, "Callers, the nearest at the bottom; click or Enter zooms."),
      this.above.scroller,
      this.above.readout,
      el("p", { class: "small soft" }, "What it called, and what that called."),
      this.below.scroller,
      this.below.readout,
    );
  },
  suggested(report) {
    const best = this.rows
      .filter((row) => !stacks.dull(report, row.frame) && !/^(main$|0x)|\+0x/.test(row.frame.function))
      .reduce((a, b) => (!a || b.total > a.total ? b : a), null);
    return best ? best.id : undefined;
  },
  table(report, what, say, names) {
    this.rows = what.tree.functions().filter((row) => !STARTUP.test(row.frame.function));
    this.note.textContent = `${what.whole}: ${say(what.tree.total)} in all${what.beside}. Total: with the function on the stack (totals overlap); itself: with the function innermost (these add up${what.tree.others ? `, with ${say(what.tree.others)} of small stacks` : ""}). What comes before main is left out. A click shows its callers and what it calls.`;
    this.choices.replaceChildren(measureChoice(what));
    this.refill = () => {
      const wanted = this.search.value.trim().toLowerCase(),
        rows = wanted ? this.rows.filter((row) => matches(row.frame, wanted)) : this.rows;
      this.list.replaceChildren(
        rows.length
          ? sortable({
              label: "Functions",
              rows,
              start: 1,
              page: 10,
              pick: (row) => store.set({ function: functionKey(row.frame) }),
              columns: [
                {
                  name: "Function",
                  text: true,
                  of: (row) => row.id,
                  say: (id) =>
                    `${shorten(names[id].function || "(no name)", 120)}  ${stacks.place(names[id])}`,
                },
                { name: "Total", of: (row) => row.total, say },
                {
                  name: "of all",
                  of: (row) => row.total / (what.tree.total || 1),
                  say: (v) => figures.percent(v, 1),
                },
                { name: "Itself", of: (row) => row.self, say, sum: true },
              ],
            })
          : el("p", { class: "empty" }, wanted ? "No function like that has any of this." : "Nothing here."),
      );
    };
    this.refill();
  },
  sandwich(what, id, say) {
    const frame = id === undefined ? null : structureOf(skinflint.report).names[id];
    const two = id === undefined ? null : what.tree.sandwich(id);
    this.name.textContent = frame
      ? `${shorten(frame.function || "(no name)", 160)} — ${say(two.value)}, ${figures.percent(two.value, what.tree.total)} of ${lower(what.whole)}`
      : "";
    for (const chart of [this.above, this.below]) chart.scroller.hidden = chart.readout.hidden = !two;
    this.two = two;
    if (!two) return;
    if (this.shown !== id) for (const chart of [this.above, this.below]) chart.zoomed = chart.focus = null;
    this.shown = id;
    const how = { unit: what.measure.unit, whole: `what came through ${shorten(frame.function, 60)}` };
    this.above.show(what.tree, two.callers, how);
    this.below.show(what.tree, two.callees, how);
  },
  resized() {
    for (const chart of [this.above, this.below]) if (chart) chart.resized();
  },
});
