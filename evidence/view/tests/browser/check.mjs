// Opens a generated report in Chromium and checks it: no errors, no requests, keyboard, dark, narrow.
//   cargo run -p skinflint-view --example sample > x.html; node check.mjs x.html [FOLDER for screenshots [OTHER.html ...]]
// Of the other reports (empty, hostile) it checks that they open, fit 400 px, and stay quiet.
// Exits 0 if everything holds, 1 if something does not, 2 if it cannot be run.
import { main, need, settle, start } from "./browser.mjs";
import { readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { pathToFileURL } from "node:url";

const [file, shots, ...others] = process.argv.slice(2);
need(file, ...others);
const run = await start({ shots }),
  { check } = run;

await main(run, async () => {
  const page = await run.open(file);
  await settle(page);
  const shot = (name, fullPage) => run.shot(page, name, fullPage);
  check(
    await page.$$eval("p.warn", (all) => all.every((p) => !p.textContent.includes("failed"))),
    "every view rendered",
  );
  check(
    await page.$eval(".status", (e) => /^(Complete|Incomplete)/.test(e.textContent)),
    "completeness is said",
  );
  for (const width of [1400, 1000, 420]) {
    const wide = await run.open(file, { viewport: { width, height: 900 } });
    const first = await wide.evaluate(() => {
      const place = document.querySelector(".verdict"),
        report = skinflint.report,
        box = place.getBoundingClientRect(),
        savings = [...place.querySelectorAll("li .saves")].map((e) => e.textContent);
      return {
        says: place.querySelector("p").textContent === report.verdict && report.verdict.length > 0,
        seen: box.top >= 0 && place.querySelector("p").getBoundingClientRect().bottom < innerHeight,
        fits: box.left >= 0 && box.right <= innerWidth && document.documentElement.scrollWidth <= innerWidth,
        before: box.bottom <= document.getElementById("books").getBoundingClientRect().top,
        largest: savings.length > 0 && savings.length <= 3 && savings.every((text, at) => text === figures.bytes(largestSavings(report)[at].saved_bytes)),
        sorted: largestSavings(report).every((f, at, all) => !at || all[at - 1].saved_bytes >= f.saved_bytes),
      };
    });
    check(Object.values(first).every(Boolean), `at ${width} px the first screen begins with the verdict (${JSON.stringify(first)})`);
    await run.shot(wide, `verdict-${width}.png`);
    await wide.close();
  }
  const words = await page.evaluate(
    () =>
      [1023, 1024, 1000 * 1024, 1048575, 134742016].map(figures.bytes).join("|") +
      "|" +
      figures.count(4463142) +
      "|" +
      figures.percent(1, 1e6) +
      "|" +
      figures.duration(245e9),
  );
  check(
    words === "1023 B|1.00 KiB|1,000 KiB|1.00 MiB|129 MiB|4,463,142|<0.1%|4 min 05 s",
    `figures read as in the text view (${words})`,
  );
  await shot("light-top.png");
  await shot("light-full.png", true);

  const readout = () => page.textContent("#flame-readout");
  await page.focus("#flame-canvas");
  await page.keyboard.press("ArrowDown");
  const child = await readout();
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Enter");
  const zoomed = await readout();
  check(child !== zoomed && zoomed.includes("of the zoomed box"), `keyboard zooms (${zoomed.slice(0, 60)})`);
  await page.locator("#flame").scrollIntoViewIfNeeded();
  await shot("flame-zoom.png");
  for (let i = 0; i < 5; i++) await page.keyboard.press("Escape");
  check((await readout()).startsWith("all"), "escape zooms out");

  await page.locator("#flame input[type=search]").pressSequentially("PostingList");
  check(
    (await page.$eval("#flame", (e) => e.textContent)).includes("is on the stacks of"),
    "search says how much it found",
  );
  check((await page.evaluate(() => location.hash)).includes("search=PostingList"), "state is in the address");
  check(await page.evaluate(() => document.activeElement.type === "search"), "typing keeps the focus");
  await page.$eval("#flame input[type=search]", (e) => {
    e.value = "";
    e.dispatchEvent(new Event("input"));
  });
  await page.evaluate(() => store.set({ direction: "up", measure: "allocations" }));
  const sums = await page.evaluate(() => {
    const v = views.find((x) => x.id === "flame"),
      r = v.tree;
    return [
      r.children(r.root).reduce((s, b) => s + b.value, 0),
      r.total,
      v.report.sites.reduce((s, x) => s + x.allocations, 0),
    ];
  });
  check(sums[0] === sums[1] && sums[1] === sums[2], `bottom-up adds up (${sums})`);
  await page.evaluate(() => store.set({ direction: "down", measure: "live_usable_bytes" }));
  const down = await page.evaluate(() => {
    const v = views.find((x) => x.id === "flame"),
      r = v.tree;
    return [
      r.children(r.root).reduce((s, b) => s + b.value, 0),
      r.total,
      v.report.instants[v.report.at].live_usable_bytes,
    ];
  });
  check(down[0] === down[1] && down[1] === down[2], `top-down adds up to the instant (${down})`);
  const pinned = await page.evaluate(() => {
    const all = report_of().instants[report_of().at].fragments,
      sum = (rows) => rows.reduce((s, row) => s + row.free_bytes, 0),
      cell = () => [...document.querySelectorAll("#pinned tr.sum")].pop().querySelector("td.n").textContent;
    const functions = cell();
    store.set({ pins: "stack" });
    skinflint.settle();
    const stacks = cell();
    const note = document.querySelector("#pinned > p:last-of-type").textContent;
    store.set({ pins: "function" });
    skinflint.settle();
    return [
      functions === figures.bytes(sum(all.functions)),
      stacks === figures.bytes(sum(all.pins)),
      sum(all.pins) + all.others.free_bytes === all.pinned_bytes,
      note.includes(figures.bytes(all.others.free_bytes)),
    ];
    function report_of() {
      return views.find((x) => x.id === "flame").report;
    }
  });
  check(pinned.every(Boolean), `what blocks pin adds up, by function and by stack (${pinned})`);
  await page.evaluate(() => (store.set({ span: "i1" }), skinflint.settle()));
  check(
    (await page.$eval("#pinned", (e) => e.textContent)).includes("is known at some instants only"),
    "an instant whose pages are not known says so",
  );
  await page.evaluate(() => (store.set({ span: "" }), skinflint.settle()));
  await page.locator("#timeline svg.chart").hover();
  check(
    (await page.textContent("#timeline .readout")).includes("Resident"),
    "the timeline is read by pointer",
  );
  check(
    await page.evaluate(() =>
      [...document.querySelectorAll("select,input,canvas,svg[role=slider],[role=tree]")].every(
        (e) => e.getAttribute("aria-label") || e.closest("label"),
      ),
    ),
    "every control has a name",
  );

  const paper = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await paper();
  await page.emulateMedia({ colorScheme: "dark" });
  check((await paper()) !== light, "dark mode differs");
  await shot("dark-full.png", true);
  await page.setViewportSize({ width: 400, height: 800 });
  await page
    .waitForFunction(() => document.documentElement.scrollWidth <= 400)
    .catch(() => {});
  const wide = await page.evaluate(() => document.documentElement.scrollWidth);
  check(wide <= 400, `fits 400 px (${wide})`);
  await shot("narrow-full.png", true);
  for (const other of others) {
    const page = await run.open(other, { viewport: { width: 400, height: 800 } });
    await settle(page);
    check(
      await page.$$eval("p.warn", (all) => all.every((p) => !p.textContent.includes("failed"))),
      `${other}: every view rendered`,
    );
    check(
      await page.$$eval("img,b:not(.status b)", (all) => all.length === 0),
      `${other}: no markup from names`,
    );
    await page.evaluate(() => {
      for (const d of document.querySelectorAll("details")) d.open = true;
    });
    const width = await page.evaluate(() => document.documentElement.scrollWidth);
    check(width <= 400, `${other}: fits 400 px (${width})`);
  }

  const silent = await run.page({ javaScriptEnabled: false });
  await silent.goto(pathToFileURL(file).href);
  const summary = silent.locator("noscript pre");
  check(
    (await summary.isVisible()) && (await summary.textContent()).includes("= resident"),
    "without scripts the text report is there",
  );

  // Cut in the middle of its tables, as a copy that was interrupted is.
  const whole = readFileSync(file, "utf8"),
    start = whole.indexOf('id="report-columns">') + 20,
    end = whole.indexOf("</script>", start),
    cut = join(dirname(file), "cut.html");
  writeFileSync(cut, whole.slice(0, start + ((end - start) >> 3) * 4) + whole.slice(end));
  const broken = await run.page();
  await broken.goto(pathToFileURL(cut).href);
  await broken.waitForSelector("p.warn");
  const said = await broken.textContent("#main p.warn");
  check(
    said.includes("cannot be read") && said.includes("skinflint report --html"),
    `a cut page says so (${said.slice(0, 90)})`,
  );
});
