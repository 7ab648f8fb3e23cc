// Starts the page: reads the data, makes a section for each view, and draws again what a change needs.
//
//   open: header, then the sections that can be seen, then the others when there is time
//   change: the views that need it and can be seen at once, the others when there is time
//
// A1  A view that fails says so in its own section and leaves the others alone.
// A2  What is not yet drawn is marked (aria-busy); `skinflint.settle()` draws all of it.
// A3  `performance` has the marks skinflint-data (tables are read), -ready (the first screen stands and
//     takes clicks), -all (everything is drawn), and a measure skinflint-change for each change.

const skinflint = { report: null, settle: () => {} };

(async () => {
  const main = document.getElementById("main");
  const text = (id) => document.getElementById(id).textContent;
  let report;
  try {
    report = JSON.parse(text("report-data"));
    await fillReport(report, text("report-columns"));
  } catch (error) {
    main.append(
      el(
        "p",
        { class: "warn" },
        `The report in this file cannot be read (${error.message}): it may have been cut. Make it again with “skinflint report --html”.`,
      ),
    );
    return;
  }
  performance.mark("skinflint-data");
  skinflint.report = report;
  store.load();
  renderHeader(report, document.getElementById("header"));
  const shown = views.filter((view) => !(view.skip && view.skip(report)));
  const places = new Map(),
    dirty = new Map(), // view → keys that changed since it was drawn; null: all
    seen = new Set();
  const draw = (view) => {
    const changed = dirty.get(view),
      place = places.get(view);
    dirty.delete(view);
    place.removeAttribute("aria-busy");
    const focused = document.activeElement,
      label =
        place.contains(focused) && focused.tagName === "SELECT"
          ? focused.parentElement.firstChild.textContent
          : null;
    try {
      if (!changed || !view.keeps) place.replaceChildren();
      view.render(report, store.state, place, changed);
    } catch (error) {
      console.error(error);
      place.replaceChildren(
        el("h2", {}, view.title),
        el("p", { class: "warn" }, `This view failed: ${error.message}`),
      );
    }
    // A choice is made anew with its section: the keyboard stays where it was.
    if (label)
      for (const select of place.querySelectorAll("select"))
        if (select.parentElement.firstChild.textContent === label) select.focus();
  };
  const drawSeen = () => {
    for (const view of shown) if (dirty.has(view) && seen.has(view)) draw(view);
  };
  const idle = window.requestIdleCallback || ((f) => setTimeout(f, 50));
  let waiting = 0;
  // Not while a brush is being drawn: what cannot be seen waits until it rests.
  const later = (ms) => {
    clearTimeout(waiting);
    if (!dirty.size) return;
    waiting = setTimeout(
      () =>
        idle(() => {
          const view = shown.find((one) => dirty.has(one));
          if (view) draw(view);
          if (dirty.size) later(0);
          else if (!performance.getEntriesByName("skinflint-all").length) performance.mark("skinflint-all");
        }),
      ms,
    );
  };
  skinflint.settle = () => {
    for (const view of shown) if (dirty.has(view)) draw(view);
  };
  const watcher = new IntersectionObserver(
    (entries) => {
      for (const entry of entries) {
        const view = shown.find((one) => places.get(one) === entry.target);
        if (entry.isIntersecting) seen.add(view);
        else seen.delete(view);
      }
      drawSeen();
    },
    { rootMargin: "80px" },
  );
  for (const view of shown) {
    const section = el("section", {
      id: view.id,
      "aria-labelledby": view.id + "-title",
      "aria-busy": "true",
    });
    places.set(view, main.appendChild(section));
    section.style.minHeight = "160px";
    dirty.set(view, null);
  }
  navigation(shown, places);
  bar.render(report, store.state, document.getElementById("span"));
  // The first screen, from the top until it is full; the rest when the browser has nothing else to do.
  for (const view of shown) {
    if (places.get(view).getBoundingClientRect().top > innerHeight) break;
    draw(view);
  }
  for (const view of shown) watcher.observe(places.get(view));
  performance.mark("skinflint-ready");
  document.documentElement.dataset.ready = "yes";
  later(0);

  store.listeners.push((keys) => {
    const start = performance.now();
    if (keys.includes("span") || keys.includes("zoom"))
      bar.render(report, store.state, document.getElementById("span"));
    for (const view of shown) {
      if (!view.needs.some((key) => keys.includes(key))) continue;
      const before = dirty.has(view) ? dirty.get(view) : [];
      dirty.set(view, before && [...new Set([...before, ...keys])]);
      if (!seen.has(view)) places.get(view).setAttribute("aria-busy", "true");
    }
    drawSeen();
    performance.measure("skinflint-change", { start, end: performance.now() });
    later(250);
  });
  let timer = 0;
  const again = () => {
    for (const view of shown)
      if (view.id === "timeline" || view.id === "sizes") {
        dirty.set(view, null);
        later(0);
      } else if (view.resized && !dirty.has(view)) view.resized();
    drawSeen();
  };
  window.addEventListener("resize", () => {
    clearTimeout(timer);
    timer = setTimeout(again, 120);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
})();

function navigation(shown, places) {
  document.getElementById("nav").prepend(
    el(
      "ul",
      {},
      shown.map((view) =>
        el(
          "li",
          {},
          el(
            "a",
            {
              href: "#" + view.id,
              onclick: (event) => {
                // The hash holds the state, so sections are scrolled to rather than navigated to.
                event.preventDefault();
                const section = places.get(view);
                section.tabIndex = -1;
                section.scrollIntoView();
                section.focus({ preventScroll: true });
              },
            },
            view.title,
          ),
        ),
      ),
    ),
  );
}
