// A page in Chromium for the checks: what it says and asks for is collected, and checks are counted.
//
//   const run = await start();  const page = await run.open(file);  run.check(holds, what);  await run.end();
//
// Exit status: 0 if everything held, 1 if something did not, 2 if it could not be run.
import { chromium } from "playwright-core";
import { pathToFileURL } from "node:url";
import { existsSync, mkdirSync } from "node:fs";
import { join } from "node:path";

const LIMIT_MS = 60_000;

/** Stops with the reason if a file that a check needs is not there. */
export function need(...files) {
  for (const file of files)
    if (!file || !existsSync(file)) {
      console.error(`no such file: ${file}`);
      process.exit(2);
    }
}

export async function start({ shots } = {}) {
  const executablePath = process.env.CHROMIUM || "/usr/bin/chromium";
  if (!existsSync(executablePath)) {
    console.error(`no browser at ${executablePath}: install chromium, or set CHROMIUM`);
    process.exit(2);
  }
  if (shots) mkdirSync(shots, { recursive: true });
  process.stdout.on("error", () => {}); // a closed pipe must not leave the browser behind
  const browser = await chromium.launch({
    executablePath,
    args: ["--no-sandbox", "--disable-gpu"],
    timeout: LIMIT_MS,
  });
  const run = {
    browser,
    failures: 0,
    errors: [],
    requests: [],
    check(holds, what) {
      console.log(`${holds ? "ok  " : "FAIL"} ${what}`);
      if (!holds) run.failures++;
    },
    equal(got, want, what) {
      const same = JSON.stringify(got) === JSON.stringify(want);
      run.check(
        same,
        same
          ? `${what}: ${JSON.stringify(got)}`.slice(0, 150)
          : `${what}: ${JSON.stringify(got)}, expected ${JSON.stringify(want)}`,
      );
    },
    async page(options = {}) {
      const page = await browser.newPage({ viewport: { width: 1280, height: 900 }, ...options });
      page.setDefaultTimeout(LIMIT_MS);
      page.on("console", (m) => {
        if (["error", "warning"].includes(m.type())) run.errors.push(m.text());
      });
      page.on("pageerror", (e) => run.errors.push(String(e)));
      page.on("request", (r) => {
        if (!/^(file|data|blob):/.test(r.url())) run.requests.push(r.url());
      });
      page.on("dialog", (d) => {
        run.errors.push(`dialog: ${d.message()}`);
        d.dismiss();
      });
      return page;
    },
    /** The report in a page, as soon as it takes clicks; `hash` is the state. */
    async open(file, { hash = "", ...options } = {}) {
      const page = await run.page(options);
      await page.goto(pathToFileURL(file).href + hash, { waitUntil: "commit" });
      await page.waitForSelector("html[data-ready=yes]");
      return page;
    },
    shot: (page, name, fullPage = false) =>
      shots ? page.screenshot({ path: join(shots, name), fullPage }) : null,
    async end() {
      await browser.close();
      run.check(run.errors.length === 0, `no errors ${run.errors.join(" | ")}`);
      run.check(run.requests.length === 0, `no requests ${run.requests.join(" ")}`);
      process.exit(run.failures ? 1 : 0);
    },
  };
  return run;
}

/** Draws every view that is not yet drawn. */
export const settle = (page) => page.evaluate(() => skinflint.settle());

/** Runs the body, whatever happens closes the browser, and ends the process with the verdict. */
export async function main(run, body) {
  try {
    await body();
  } catch (error) {
    run.check(false, String(error.stack || error));
  }
  await run.end();
}
