// Pictures of a report for the README: its first screen and its stacks in light and in dark, a
// window, and a sandwich, each under 300 KB.
//   node screenshots.mjs REPORT.html FOLDER
// Exits 0 if both were written, 1 if one is too large, 2 if it cannot be run.
import { main, need, settle, start } from "./browser.mjs";
import { mkdirSync, statSync } from "node:fs";
import { join } from "node:path";

const LIMIT_BYTES = 300_000;
const [file, folder] = process.argv.slice(2);
need(file);
mkdirSync(folder, { recursive: true });
const run = await start();

await main(run, async () => {
  for (const scheme of ["light", "dark"]) {
    const page = await run.open(file, { viewport: { width: 1120, height: 1240 }, colorScheme: scheme });
    await settle(page);
    const take = async (view, id) => {
      await page.evaluate((target) => {
        if (target) document.getElementById(target).scrollIntoView({ behavior: "instant" });
        else window.scrollTo({ top: 0, behavior: "instant" });
        skinflint.settle();
      }, id);
      const path = join(folder, `${view}-${scheme}.png`);
      await page.screenshot({ path });
      const size = statSync(path).size;
      run.check(size <= LIMIT_BYTES, `${path}  ${size} bytes`);
    };
    await take("report", null);
    await take("stacks", "flame");
    // A window: the middle half of the run.
    await page.evaluate(() => {
      const w = skinflint.report.windows,
        end = w.time[w.last];
      store.set({ span: span.text(skinflint.report, end * 0.3, end * 0.62), change: "acquired_bytes" });
      skinflint.settle();
    });
    if (scheme === "light") await take("window", null);
    else await take("functions", "functions");
  }
});
