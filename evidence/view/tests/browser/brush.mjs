// The brush by pointer and by keyboard, the zoom, search, and the keys of the tree; on a real recording.
//   node brush.mjs CHURN.html [FOLDER for screenshots]
import { main, need, settle, start } from "./browser.mjs";

const [file, shots] = process.argv.slice(2);
need(file);
const run = await start({ shots }),
  { check, equal } = run;

await main(run, async () => {
  const page = await run.open(file);
  await settle(page);
  const state = (key) => page.evaluate((k) => store.state[k], key),
    edges = async () => ((await state("span")).match(/\d+/g) || []).map(Number),
    sums = () => page.textContent("#span .sums");
  const last = await page.evaluate(() => skinflint.report.windows.last);
  const frame = () =>
    page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
  const chart = page.locator("#timeline svg.chart");
  await chart.scrollIntoViewIfNeeded();
  const box = await chart.boundingBox(),
    x = (share) => box.x + 64 + (box.width - 72) * share,
    y = box.y + box.height / 2;
  const drag = async (from, to) => {
    await page.mouse.move(x(from), y);
    await page.mouse.down();
    for (let i = 1; i <= 8; i++) await page.mouse.move(x(from + ((to - from) * i) / 8), y);
    await page.mouse.up();
    await frame();
  };

  const before = await page.textContent("#flame .head p");
  await drag(0.25, 0.5);
  let [a, b] = await edges();
  const share = await page.evaluate(
    ([i, j]) => {
      const { time, last } = skinflint.report.windows;
      return [time[i] / time[last], time[j] / time[last]];
    },
    [a, b],
  );
  const near = 0.04; // an edge each sixtieth of the run at least
  check(
    Math.abs(share[0] - 0.25) < near && Math.abs(share[1] - 0.5) < near,
    `a drag is a window (e${a}-e${b} of ${last})`,
  );
  check(
    /allocated .* freed .* net .* live at its end/.test(await sums()),
    `its sums are said (${await sums()})`,
  );
  await settle(page);
  for (const id of ["books", "flame", "functions", "tree", "sizes", "sites"])
    check(
      /in the window from|of the window from/i.test(await page.textContent(`#${id} .head`)),
      `${id}: says that it is of the window`,
    );
  check(
    /In the window:/.test(await page.textContent("#findings")) || !(await page.$("#findings .finding")),
    "findings: say what their stacks did",
  );
  check((await page.textContent("#flame .head p")) !== before, "stacks: other figures");
  await run.shot(page, "window.png");

  await chart.scrollIntoViewIfNeeded();
  await drag(0.37, 0.57);
  const moved = await edges();
  check(moved[0] > a && moved[1] > b, `dragging the window moves it (e${moved.join("-e")})`);
  const end = await page.locator("#timeline .brush-end[data-end='1']").boundingBox();
  await page.mouse.move(end.x + 3, y);
  await page.mouse.down();
  await page.mouse.move(end.x + 90, y, { steps: 4 });
  await page.mouse.up();
  await frame();
  const longer = await edges();
  check(
    longer[0] === moved[0] && longer[1] > moved[1],
    `dragging an end stretches it (e${longer.join("-e")})`,
  );
  await page.click("#span button:has-text('Zoom to it')");
  await settle(page);
  check(/^\d+-\d+$/.test(await state("zoom")), "the chart zooms to the window");
  await page.click("#timeline button:has-text('Whole run')");
  await page.click("#span button:has-text('Reset')");
  equal([await state("span"), await state("zoom")], ["", ""], "reset");

  await page.mouse.click(x(0.6), y);
  [a] = await edges();
  check(/^e\d+$|^i\d+$/.test(await state("span")), `a click is a moment (${await state("span")})`);
  await chart.focus();
  await page.evaluate(() => store.set({ span: "e10" }));
  await page.keyboard.press("ArrowRight");
  equal(await edges(), [11], "→ goes to the next edge");
  await page.keyboard.press("Shift+ArrowRight");
  await page.keyboard.press("Shift+ArrowRight");
  equal(await edges(), [11, 13], "Shift → makes a window");
  await page.keyboard.press("Shift+ArrowLeft");
  equal(await edges(), [11, 12], "Shift ← takes it back");
  await page.keyboard.press("Alt+ArrowRight");
  equal(await edges(), [12, 13], "Alt → moves it");
  await page.keyboard.press("Shift+End");
  equal(await edges(), [12, last], "Shift End: to the end");
  check(
    (await chart.getAttribute("aria-valuetext")).includes(" to "),
    "the window is said to a screen reader",
  );
  await page.keyboard.press("Escape");
  equal(await state("span"), "", "Escape resets");
  await page.keyboard.press("+");
  check((await state("zoom")) !== "", "+ zooms in");
  await page.keyboard.press("-");
  equal(await state("zoom"), "", "- zooms out");

  await page.evaluate((e) => store.set({ span: `e3-e${e}`, change: "acquired_bytes" }), last);
  await settle(page);
  await page.fill("#flame input[type=search]", "level0");
  await settle(page);
  const found = await page.textContent("#flame");
  check(
    /“level0” is on the stacks of [\d.]+ .iB, (9\d\.\d|100\.0)%/.test(found),
    "search: nearly all of churn's blocks come through level0",
  );
  await page.fill("#functions input[type=search]", "level3");
  await settle(page);
  await page.click("#function-list .pick");
  check(
    /^level3 — /.test(await page.textContent("#sandwich-name")),
    "a click on a function makes it the sandwich",
  );
  await page.focus("#callers-canvas");
  await page.keyboard.press("ArrowUp");
  check(/^level4 /.test(await page.textContent("#callers-readout")), "above level3: level4, which calls it");
  await page.focus("#callees-canvas");
  await page.keyboard.press("ArrowDown");
  check(/^level2 /.test(await page.textContent("#callees-readout")), "below it: level2, which it calls");
  await page.locator("#functions").scrollIntoViewIfNeeded();
  await run.shot(page, "sandwich.png");

  await page.focus("#tree [role=treeitem][tabindex='0']");
  const level = () => page.evaluate(() => document.activeElement.getAttribute("aria-level"));
  await page.keyboard.press("ArrowRight");
  equal(await level(), "2", "tree: → goes in");
  await page.keyboard.press("ArrowLeft");
  equal(await level(), "1", "tree: ← goes out");
  await page.keyboard.press("ArrowLeft");
  equal(
    await page.evaluate(() => document.activeElement.getAttribute("aria-expanded")),
    "false",
    "tree: ← closes",
  );
  const hash = await page.evaluate(() => location.hash),
    said = await sums();
  const again = await run.open(file, { hash });
  equal(await again.textContent("#span .sums"), said, "a copied address shows the same window");
});
