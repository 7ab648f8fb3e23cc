// The live page of `skinflint memory --page` in Chromium, with a program whose figures are known.
//
//   node memory.mjs SKINFLINT CACHE LIBRARY SHOTS      (tests/reporters/cache.c, libskinflint_report.so)
//
// Figures are those of the program's own count; every button is pressed, once by keyboard; the doors that must be
// shut (no token, another host, another origin) are tried from outside. Not here: what a tree is (ground/reporters).
import { spawn } from "node:child_process";
import { mkdtempSync, chmodSync, writeFileSync, readFileSync } from "node:fs";
import { request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { main, need, start } from "./browser.mjs";

const [skinflint, cache, library, shots] = process.argv.slice(2);
need(skinflint, cache, library);
const LIMIT_MS = 60_000;

/** The first line that a child prints. */
const first_line = (child) =>
  new Promise((done, failed) => {
    let text = "";
    child.stdout.on("data", (part) => {
      text += part;
      if (text.includes("\n")) done(text.split("\n")[0]);
    });
    child.on("exit", (status) => failed(new Error(`it ended with ${status}: ${text}`)));
    setTimeout(() => failed(new Error(`no line: ${text}`)), LIMIT_MS).unref();
  });

/** Status of a request with headers of one's own. */
const status = (url, headers = {}, method = "GET") =>
  new Promise((done, failed) => {
    const asked = request(url, { method, headers }, (answer) => {
      answer.resume();
      done(answer.statusCode);
    });
    asked.on("error", failed);
    asked.end();
  });

const run = await start({ shots });
const children = [];
const begin = (command, args, options = {}) => {
  const child = spawn(command, args, { stdio: ["pipe", "pipe", "inherit"], ...options });
  children.push(child);
  return child;
};

// However this ends, nothing stays behind.
process.on("exit", () => children.forEach((child) => child.kill()));

await main(run, async () => {
  const folder = mkdtempSync(join(tmpdir(), "page-"));
  chmodSync(folder, 0o700);
  const program = begin(cache, [folder], { env: { ...process.env, LD_PRELOAD: library } });
  const held = Number((await first_line(program)).replace("ready ", ""));
  const server = begin(skinflint, ["memory", String(program.pid), "--page"]);
  const url = await first_line(server);
  const { host, origin, searchParams } = new URL(url);
  const query = `?token=${searchParams.get("token")}`;

  run.equal(await status(`${origin}/`), 403, "without its token nothing is answered");
  run.equal(await status(`${origin}/measure?token=${"0".repeat(32)}`), 403, "nor with another one");
  run.equal(await status(`${origin}/measure${query}`, { Host: `evil.example:${new URL(url).port}` }), 403, "nor by another host's name");
  run.equal(await status(`${origin}/minimize${query}`, { Origin: "http://evil.example" }, "POST"), 403, "nor to another page");
  run.equal(await status(`${origin}/minimize${query}`), 404, "what changes something is a POST");
  run.equal(await status(`${origin}/nothing${query}`), 404, "what is not there is not there");
  run.check(!host.startsWith("0.0.0.0"), `it listens on loopback: ${host}`);

  const page = await run.page();
  const has = (text) => page.waitForFunction((wanted) => document.body.innerText.includes(wanted), text);
  const said = (text) => page.waitForFunction((wanted) => document.getElementById("status").textContent.includes(wanted), text);
  await page.goto(url);
  await said("Measured");
  await page.check("#exact");
  await has(`${held.toLocaleString("en")} B`);
  const row = (name) => page.locator("main .leaf, main summary", { hasText: name }).first().innerText();
  run.check((await row("caches/images")).startsWith(`${held.toLocaleString("en")} B`), "the program's own figure is shown");
  run.check((await page.innerText("#notes")).includes('reporter "wrong" left out'), "who was left out is named");
  run.check((await row("arena")).startsWith("33,554,432 B"), "and so is its mapping");
  await run.shot(page, "memory-light.png", true);

  // By keyboard alone: the first button, and a row of the tree.
  await page.focus("#measure");
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => document.getElementById("legend").textContent.includes("2 measurements"));
  const summary = page.locator("main summary").first();
  const before = await summary.evaluate((one) => one.parentElement.open);
  await summary.focus();
  await page.keyboard.press("Enter");
  run.equal(await summary.evaluate((one) => one.parentElement.open), !before, "a row opens and closes by keyboard");
  const order = [];
  await page.focus("#measure");
  for (let n = 0; n < 4; n++) {
    order.push(await page.evaluate(() => document.activeElement.id));
    await page.keyboard.press("Tab");
  }
  run.equal(order, ["measure", "minimize", "gc", "cc"], "Tab goes from button to button");

  const [download] = await Promise.all([page.waitForEvent("download"), page.click("#save")]);
  const saved = readFileSync(await download.path(), "utf8");
  const lines = JSON.parse(saved).reports;
  run.equal(lines.find((line) => line.path === "explicit/caches/images").amount, held, "what is saved is what was measured");

  await page.click("#gc");
  await said("offers no gc");
  await page.click("#minimize");
  await said(`dropped ${held} bytes`);
  await page.waitForFunction(() => document.getElementById("legend").textContent.includes("3 measurements"));
  writeFileSync(join(folder, "before.json"), saved);
  await page.setInputFiles("#diff", join(folder, "before.json"));
  await said("less before.json");
  run.check((await row("caches/images")).startsWith(`-${held.toLocaleString("en")} B`), "the difference is what was dropped");

  const hostile = { process: "p <img src=x onerror=alert(1)>", path: "explicit/<script>alert(2)</script>", kind: 1, units: 0, amount: 5, description: "\"><b>" };
  writeFileSync(join(folder, "hostile.json"), JSON.stringify({ version: 1, reports: [hostile] }));
  await page.setInputFiles("#load", join(folder, "hostile.json"));
  await said("Shown: hostile.json");
  run.check((await page.innerText("#title")).includes("<img src=x"), "a hostile process name is text");
  run.check((await page.innerText("main")).includes("<script>alert(2)"), "and so is a hostile path");
  writeFileSync(join(folder, "bad.json"), '{"version":2}');
  await page.setInputFiles("#load", join(folder, "bad.json"));
  await said("only 1 is known");

  const dark = await run.page({ colorScheme: "dark" });
  await dark.goto(url);
  await dark.waitForFunction(() => document.getElementById("status").textContent.includes("Measured"));
  const paper = await dark.evaluate(() => getComputedStyle(document.body).backgroundColor);
  run.equal(paper, "rgb(20, 23, 27)", "dark by the system's choice");
  await run.shot(dark, "memory-dark.png", true);
  const narrow = await run.page({ viewport: { width: 400, height: 800 } });
  await narrow.goto(url);
  await narrow.waitForFunction(() => document.getElementById("status").textContent.includes("Measured"));
  run.check(await narrow.evaluate(() => document.documentElement.scrollWidth <= 400), "400 columns are enough");

  // The sentence on top adds up, the picture has its axes within the card, and paper has no buttons.
  for (const width of [1400, 1000, 420]) {
    const sized = await run.page({ viewport: { width, height: 900 } });
    await sized.goto(url);
    await sized.waitForFunction(() => document.getElementById("status").textContent.includes("Measured"));
    const seen = await sized.evaluate(() => {
      const of = (one) => one.getBoundingClientRect();
      const card = of(document.querySelector("section"));
      const words = [...document.querySelectorAll("#timeline text")];
      return {
        within: words.every((one) => of(one).left >= card.left && of(one).right <= card.right),
        ticks: words.filter((one) => one.classList.contains("y")).map((one) => one.textContent),
        size: Math.min(...words.map((one) => of(one).height)),
        wide: document.documentElement.scrollWidth,
        verdict: document.getElementById("verdict").textContent,
        resident: document.querySelector("#legend .resident").textContent.replace("resident ", ""),
      };
    });
    run.check(seen.within && seen.wide <= width, `the picture is within its card at ${width}`);
    run.check(seen.ticks.length >= 3 && seen.ticks[0] === "0 B" && seen.ticks.every((tick) => /^[\d.,]+ [KMGT]?i?B$/.test(tick)), `round figures on its axis at ${width}: ${seen.ticks}`);
    run.check(seen.size >= 11, `its words can be read at ${width}: ${seen.size} px`);
    run.check(seen.verdict.startsWith(`${seen.resident} resident: `), `the sentence on top has the figure of the legend: ${seen.verdict}`);
    if (width === 1400) {
      await sized.emulateMedia({ media: "print" });
      run.equal(await sized.locator("[role=toolbar]").isVisible(), false, "paper has no buttons");
    }
  }

  // The tool reads the page's address, too.
  const tool = begin(skinflint, ["memory", url, "--json"]);
  const shown = JSON.parse(await first_line(tool));
  run.check(shown.processes[0].process.startsWith("cache (pid "), "skinflint memory URL");

  // A program that has ended is said to have.
  const ended = new Promise((done) => program.on("exit", done));
  program.stdin.end();
  await ended;
  await page.click("#measure");
  await said("no such process");

  // What the page asked for was itself; what it was refused on purpose is no error.
  const elsewhere = run.requests.filter((asked) => !asked.startsWith(origin));
  run.equal(elsewhere, [], "nothing is asked of anybody else");
  run.requests.length = 0;
  run.errors = run.errors.filter((error) => !/status of (502|400)/.test(error));
});
