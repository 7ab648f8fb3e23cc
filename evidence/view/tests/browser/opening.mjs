// How long a page takes to open, and a change of its window to be drawn.
//   node opening.mjs [--strict] REPORT.html ...
//
//   opening: from the start of the navigation until the first screen stands and takes clicks
//   brushing: script time of each of forty steps of a drag, with the timeline, the books and findings
//             in view, and again with the flame graph in view; the median and the worst
//
// Without --strict times are printed and not judged: they are the machine's, and of what else it does. What is judged is
// that the page opens and that each step is drawn. --strict: 2 s and 50 ms (median), on a quiet machine.
import { main, need, settle, start } from "./browser.mjs";

const strict = process.argv.includes("--strict"),
  files = process.argv.slice(2).filter((word) => word !== "--strict");
need(...files);
const OPEN_MS = strict ? 2000 : Infinity,
  BRUSH_MS = strict ? 50 : Infinity,
  ROUNDS = strict ? 5 : 1;
const run = await start();
const median = (values) => [...values].sort((a, b) => a - b)[values.length >> 1];

await main(run, async () => {
  // The browser's own start is no part of a page's.
  await (await run.page()).close();
  for (const file of files) {
    const opened = [];
    let page;
    for (let round = 0; round < ROUNDS; round++) {
      if (page) await page.close();
      page = await run.open(file);
      opened.push(await page.evaluate(() => performance.getEntriesByName("skinflint-ready")[0].startTime));
    }
    const what = await page.evaluate(() => {
      const { windows: w, completeness: c, sites } = skinflint.report;
      return `${figures.count(c.events)} events, ${figures.count(sites.length)} stacks, ${w.last} buckets, ${figures.count(w.cell.length)} changes`;
    });
    console.log(`     ${file}: ${what}`);
    run.check(
      median(opened) < OPEN_MS,
      `opens in ${median(opened).toFixed(0)} ms (${strict ? `bound ${OPEN_MS}` : "not judged"}; ${opened.map((ms) => ms.toFixed(0)).join(", ")})`,
    );
    await settle(page);
    for (const id of ["timeline", "flame"]) {
      const times = await page.evaluate(async (target) => {
        document.getElementById(target).scrollIntoView({ behavior: "instant" });
        const frame = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
        await frame();
        await frame();
        const last = skinflint.report.windows.last,
          times = [];
        for (let step = 0; step < 40; step++) {
          const from = Math.floor((last * (5 + step / 2)) / 60),
            to = Math.max(from + 1, Math.floor((last * (20 + step)) / 60));
          performance.clearMeasures("skinflint-change");
          store.set({ span: `e${from}-e${to}` });
          times.push(performance.getEntriesByName("skinflint-change")[0]?.duration);
          await frame();
        }
        return times;
      }, id);
      run.check(times.every((ms) => ms !== undefined), `each of ${times.length} steps at the ${id} is drawn`);
      const worst = Math.max(...times);
      run.check(
        median(times) < BRUSH_MS,
        `brushes at the ${id} in ${median(times).toFixed(1)} ms (${strict ? `bound ${BRUSH_MS}` : "not judged"}; worst ${worst.toFixed(1)})`,
      );
    }
    await page.close();
  }
});
