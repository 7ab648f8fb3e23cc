// Pictures of the live page of `skinflint memory --page` for the docs, in light and in dark, each under 300 KB.
//   node memory_screenshots.mjs SKINFLINT COMMAND FOLDER
// COMMAND is a shell's, under `skinflint exec --memory`; it is measured some times while it runs, and ended.
// Exits 0 if both were written, 1 if one is too large, 2 if it cannot be run.
import { spawn } from "node:child_process";
import { mkdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { main, need, start } from "./browser.mjs";

const LIMIT_BYTES = 300_000;
const [skinflint, command, folder] = process.argv.slice(2);
need(skinflint);
mkdirSync(folder, { recursive: true });
const children = [];
process.on("exit", () => children.forEach((child) => child.kill()));

const begin = (...words) => {
  const child = spawn(words[0], words.slice(1), { stdio: ["pipe", "pipe", "inherit"] });
  children.push(child);
  return child;
};
const line = (child) => new Promise((done) => child.stdout.once("data", (text) => done(String(text).split("\n")[0])));

const run = await start();
await main(run, async () => {
  const program = begin(skinflint, "exec", "--memory", "--", "sh", "-c", `exec ${command}`);
  await wait(3000);
  const url = await line(begin(skinflint, "memory", String(program.pid), "--page"));
  for (const scheme of ["light", "dark"]) {
    const page = await run.page({ viewport: { width: 1120, height: 1000 }, colorScheme: scheme });
    await page.goto(url);
    for (let times = 0; times < 6; times++) {
      await page.waitForFunction(() => document.getElementById("status").textContent.includes("Measured"));
      await wait(1000);
      await page.getByRole("button", { name: "Measure", exact: true }).click();
    }
    await page.waitForFunction(() => document.getElementById("status").textContent.includes("Measured"));
    const path = join(folder, `memory-${scheme}.png`);
    await page.screenshot({ path });
    const size = statSync(path).size;
    run.check(size <= LIMIT_BYTES, `${path}  ${size} bytes`);
    await page.close();
  }
  // A page that is served asks for its parts, and for nothing else (memory.mjs).
  run.requests.length = 0;
});
