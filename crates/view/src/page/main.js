// Starts the page: reads the data, makes a section for each view, and draws again what a change needs.
//
// A1  A view that fails says so in its own section and leaves the others alone.

(() => {
  const main = document.getElementById("main");
  let report;
  try {
    report = JSON.parse(document.getElementById("report-data").textContent);
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
  store.load(report);
  renderHeader(report, document.getElementById("header"));
  const shown = views.filter((view) => !(view.skip && view.skip(report)));
  const places = new Map();
  const draw = (view, changed) => {
    const place = places.get(view);
    const focused = document.activeElement,
      label =
        place.contains(focused) && focused.tagName === "SELECT" ? focused.parentElement.textContent : null;
    try {
      if (!changed || !["sites", "flame"].includes(view.id)) place.replaceChildren();
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
        if (select.parentElement.textContent === label) select.focus();
  };
  for (const view of shown) {
    places.set(view, main.appendChild(el("section", { id: view.id, "aria-labelledby": view.id + "-title" })));
    draw(view);
  }
  document.getElementById("nav").append(
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
  store.listeners.push((keys) => {
    for (const view of shown) if (view.needs.some((key) => keys.includes(key))) draw(view, keys);
  });
  let timer = 0;
  const again = () => {
    for (const view of shown)
      if (view.id === "timeline" || view.id === "sizes") draw(view);
      else if (view.resized) view.resized();
  };
  window.addEventListener("resize", () => {
    clearTimeout(timer);
    timer = setTimeout(again, 120);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  document.documentElement.dataset.ready = "yes";
})();
