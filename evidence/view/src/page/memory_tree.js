// A tree of memory, as about:memory has it: resident memory by row and part, the heap by function.
//
//   ▾ 38.4 MiB (100.0%) resident          ▾ 26.3 MiB (100.0%) live bytes
//     ▸ 25.9 MiB (67.5%)  live blocks       ▾ 26.3 MiB (100.0%) main
//
// R1  Children add up to their parent: what is not listed is a line “others” or “itself”.
// R2  Percentages are of the root of their own tree, which is said beside it.
// R3  The keys of a tree: ↑ ↓ move, → opens or goes in, ← closes or goes out, Home, End.
// R4  Lines are made when they are opened; a line with a single child of the same size opens it too.

const TREE_LINES = 40;

views.push({
  id: "tree",
  title: "Tree of memory",
  needs: ["span", "measure", "change"],
  render(report, state, place) {
    const what = chosenTree(report, state, "down"),
      say = what.measure.unit === "bytes" ? figures.bytes : figures.count,
      one = what.span;
    place.append(
      head(
        this,
        `Resident memory ${one.kind === "window" ? `at the end of the window from ${one.label}` : one.at}, and below it ${lower(what.whole)} by function, callers first.`,
        measureChoice(what),
      ),
    );
    const tree = el("ul", {
      class: "tree",
      role: "tree",
      "aria-label": "Tree of memory",
      onkeydown: (e) => this.keyed(e),
    });
    const at = booksAt(report, one.kind === "window" ? null : one.instant, one.to),
      books = this.booksOf(report, one, at);
    if (books) tree.append(this.line(this.ofBooks(books), 1, books.resident_bytes, figures.bytes, true));
    tree.append(this.line(this.ofBox(report, what, what.tree.root), 1, what.tree.total, say, true));
    place.append(tree);
    if (books) place.append(...books.notes.map((note) => el("p", { class: "small soft" }, note)));
    tree.querySelector("[role=treeitem]").tabIndex = 0;
  },
  /** At the end of a window that is an instant, that instant's books. */
  booksOf(report, one, at) {
    if (one.kind !== "window") return at.books;
    const instant = report.windows.instantsOf[one.to].find((i) => report.instants[i].books);
    return instant === undefined ? at.books : report.instants[instant].books;
  },
  /** {name, where, value, kids(): […]}: what a line needs. */
  ofBooks(books) {
    const leaf = (name, value) => ({ name, where: "", value, kids: null });
    return {
      name: "resident memory",
      where: "",
      value: books.resident_bytes,
      kids: () =>
        books.rows
          .filter((row) => row.bytes)
          .sort((a, b) => b.bytes - a.bytes)
          .map((row) => ({
            name: row.label,
            where: row.meaning,
            value: row.bytes,
            kids: row.parts.length ? () => row.parts.map((part) => leaf(part.name, part.bytes)) : null,
          })),
    };
  },
  ofBox(report, what, box) {
    const tree = what.tree,
      kids = tree.children(box);
    return {
      name: box.parent ? box.name : lower(what.whole),
      where: box.frame ? stacks.place(box.frame) : "",
      value: box.value,
      kids: !kids.length
        ? null
        : () => {
            const shown = kids.slice(0, TREE_LINES).map((kid) => this.ofBox(report, what, kid)),
              sum = (boxes) => boxes.reduce((total, one) => total + one.value, 0),
              others = sum(kids.slice(TREE_LINES)),
              own = box.value - sum(kids);
            if (others)
              shown.push({
                name: `(${figures.count(kids.length - TREE_LINES)} others)`,
                where: "",
                value: others,
                kids: null,
              });
            if (own > 0) shown.push({ name: "(itself)", where: "", value: own, kids: null });
            return shown;
          },
    };
  },
  line(of, level, whole, say, open) {
    const group = el("ul", { role: "group", hidden: true }),
      item = el("li", {
        role: "treeitem",
        tabindex: -1,
        "aria-level": level,
        "aria-expanded": of.kids ? "false" : null,
      });
    const text = el(
      "div",
      { class: "tree-line", onclick: () => this.toggle(item) },
      el("span", { class: "tree-figure" }, say(of.value)),
      el("span", { class: "tree-share" }, figures.percent(of.value, whole)),
      el(
        "span",
        { class: "tree-name" },
        shorten(of.name, 160),
        of.where ? el("span", { class: "where" }, of.where) : null,
      ),
    );
    item.append(text, group);
    item.expand = () => {
      if (!of.kids || item.getAttribute("aria-expanded") === "true") return;
      if (!group.childNodes.length) {
        const kids = of.kids(),
          alone = kids.length === 1 && kids[0].value === of.value && level < 60;
        group.append(...kids.map((kid) => this.line(kid, level + 1, whole, say, alone)));
      }
      group.hidden = false;
      item.setAttribute("aria-expanded", "true");
    };
    item.collapse = () => {
      group.hidden = true;
      item.setAttribute("aria-expanded", "false");
    };
    if (open) item.expand();
    return item;
  },
  toggle(item) {
    if (item.getAttribute("aria-expanded") === "false") item.expand();
    else if (item.getAttribute("aria-expanded") === "true") item.collapse();
    this.focus(item);
  },
  focus(item) {
    for (const one of item.closest(".tree").querySelectorAll("[tabindex='0']")) one.tabIndex = -1;
    item.tabIndex = 0;
    item.focus();
  },
  keyed(event) {
    const item = event.target.closest("[role=treeitem]");
    if (!item) return;
    const seen = [...item.closest(".tree").querySelectorAll("[role=treeitem]")].filter(
        (one) => one.offsetParent !== null,
      ),
      index = seen.indexOf(item),
      expanded = item.getAttribute("aria-expanded");
    let to = null;
    if (event.key === "ArrowDown") to = seen[index + 1];
    else if (event.key === "ArrowUp") to = seen[index - 1];
    else if (event.key === "Home") to = seen[0];
    else if (event.key === "End") to = seen[seen.length - 1];
    else if (event.key === "ArrowRight") {
      if (expanded === "false") item.expand();
      else if (expanded === "true") to = item.querySelector("[role=treeitem]");
    } else if (event.key === "ArrowLeft") {
      if (expanded === "true") item.collapse();
      else to = item.parentElement.closest("[role=treeitem]");
    } else if (event.key === "Enter" || event.key === " ") this.toggle(item);
    else return;
    event.preventDefault();
    if (to) this.focus(to);
  },
});
