// Pictures of a report for the README: the first screen in light and in dark, each under 300 KB.
//   node screenshots.mjs REPORT.html FOLDER
// Exits 0 if both were written, 1 if one is too large, 2 if it cannot be run.
import puppeteer from "puppeteer-core";
import { pathToFileURL } from "node:url";
import { existsSync, mkdirSync, statSync } from "node:fs";
import { join } from "node:path";

const LIMIT_BYTES = 300_000;
const [file, folder] = process.argv.slice(2);
const executablePath = process.env.CHROMIUM || "/usr/bin/chromium";
if (!file || !folder || !existsSync(file)) {
  console.error("usage: node screenshots.mjs REPORT.html FOLDER");
  process.exit(2);
}
if (!existsSync(executablePath)) {
  console.error(`no browser at ${executablePath}: install chromium, or set CHROMIUM`);
  process.exit(2);
}
mkdirSync(folder, { recursive: true });
const browser = await puppeteer.launch({
  executablePath,
  args: ["--no-sandbox", "--disable-gpu"],
  timeout: 60_000,
});
let large = 0;
try {
  const page = await browser.newPage();
  page.setDefaultTimeout(30_000);
  await page.setViewport({ width: 1120, height: 1240 });
  await page.goto(pathToFileURL(file).href, { waitUntil: "load" });
  await page.waitForSelector("html[data-ready=yes]");
  for (const scheme of ["light", "dark"]) {
    await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
    for (const [view, id] of [
      ["report", null],
      ["stacks", "timeline"],
    ]) {
      await page.evaluate((target) => {
        if (target) document.getElementById(target).scrollIntoView({ behavior: "instant" });
        else window.scrollTo({ top: 0, behavior: "instant" });
      }, id);
      const path = join(folder, `${view}-${scheme}.png`);
      await page.screenshot({ path });
      const size = statSync(path).size;
      console.log(`${path}  ${size} bytes`);
      if (size > LIMIT_BYTES) {
        console.error(`${path} is larger than ${LIMIT_BYTES} bytes`);
        large++;
      }
    }
  }
} finally {
  await browser.close();
}
process.exit(large ? 1 : 0);
