/**
 * Skinflint for pages: does what a page does again and again leave something behind, and what retains it?
 *
 *   import { checkPage, holdPage } from "skinflint/pages";
 *   const session = await page.context().newCDPSession(page);             // Playwright; Puppeteer: page.createCDPSession()
 *   await holdPage(session, () => openAndCloseDialog(page), { growth: "16KiB" });   // throws, with what retains it
 *
 *   action (warms up) ─► heap snapshot ─► action × rounds ─► heap snapshot ─► `skinflint heap --diff --paths` ─► per round
 *
 * P1  The page's own V8 counts: garbage is collected before each snapshot. The growth is that of all its objects.
 * P2  What warms up (compiled code, caches of the page) is in the first round, which is not counted.
 * P3  Detached nodes are those that V8 marks so, more of them than before: nodes that were taken out of the page and live on.
 *
 * Chromium only: snapshots are of the DevTools protocol. Not here: memory of the browser (`skinflint tabs`).
 */
import { createWriteStream } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { program, run } from "./index.js";

const UNITS = { "": 1, B: 1, k: 1e3, M: 1e6, G: 1e9, kB: 1e3, MB: 1e6, GB: 1e9, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30 };

/** A limit in bytes: a number, or text such as "16KiB". */
function bytes(limit, name) {
  if (Number.isFinite(limit) && limit >= 0) return limit;
  const [, number, unit] = /^\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*$/.exec(String(limit)) ?? [];
  if (!Object.hasOwn(UNITS, unit ?? "?")) throw new Error(`${name}: ${JSON.stringify(limit)} is no limit; write 16KiB or 16384`);
  return Number(number) * UNITS[unit];
}

/** Writes what lives in the session's page into a file. */
async function snapshot(session, file) {
  const out = createWriteStream(file);
  const take = ({ chunk }) => out.write(chunk);
  session.on("HeapProfiler.addHeapSnapshotChunk", take);
  try {
    // Twice: what a finalizer lets go of is garbage only then.
    await session.send("HeapProfiler.collectGarbage");
    await session.send("HeapProfiler.collectGarbage");
    await session.send("HeapProfiler.takeHeapSnapshot", { reportProgress: false });
  } finally {
    session.off("HeapProfiler.addHeapSnapshotChunk", take);
    await new Promise((resolve, reject) => out.on("error", reject).end(resolve));
  }
}

async function told(...words) {
  const ended = await run(program, ["heap", ...words, "--json"]);
  if (ended.status !== 0) throw new Error(ended.stderr.trim());
  return JSON.parse(ended.stdout);
}

const detachedOf = (table) => table.detached.reduce((sum, { objects }) => sum + objects, 0);
const named = ({ type, name, class: kind }) => (kind ? `detached ${kind}` : name || `(${type})`);
const steps = (path) => path.map(({ edge, name, type }) => `${edge ? `${edge} ` : ""}${name || type}`).join(" → ");

/**
 * Does something with a page again and again, and says what is left of it.
 *
 * @param {{ send: Function, on: Function, off: Function }} session a session of the DevTools protocol, of Playwright or Puppeteer
 * @param {() => any} action what is done; the first time warms up
 * @param {{ growth?: string | number, detached?: number, rounds?: number }} limits bytes that a round may leave behind, and
 *   detached nodes that all rounds may (0)
 * @returns {Promise<{ held: boolean, growth: number, detached: number, retained: object[], text: string }>}
 */
export async function checkPage(session, action, limits = {}) {
  const { rounds = 5, growth = "16KiB", detached = 0, ...unknown } = limits;
  const [word] = Object.keys(unknown);
  if (word) throw new Error(`no limit is called ${word}; there are growth, detached and rounds`);
  if (!Number.isInteger(rounds) || rounds < 1) throw new Error(`rounds: ${rounds}: a whole number from 1`);
  const allowed = bytes(growth, "growth");
  const folder = await mkdtemp(join(tmpdir(), "skinflint-"));
  const [before, after] = ["before", "after"].map((name) => join(folder, `${name}.heapsnapshot`));
  try {
    await session.send("HeapProfiler.enable");
    await action();
    await snapshot(session, before);
    for (let round = 0; round < rounds; round++) await action();
    await snapshot(session, after);
    const [diff, were, are] = [await told(before, "--diff", after, "--paths"), await told(before, "--detached"), await told(after, "--detached")];
    const grown = Math.max(0, Math.ceil((diff.after.bytes - diff.before.bytes) / rounds));
    const loose = Math.max(0, detachedOf(are) - detachedOf(were));
    const retained = [...(loose > detached ? are.detached : []), ...(grown > allowed ? diff.retained : [])];
    const held = grown <= allowed && loose <= detached;
    const lines = [
      `${held ? "held" : "BROKEN"}: ${grown} bytes a round of ${allowed} allowed, ${loose} detached nodes of ${detached}, in ${rounds} rounds`,
      ...retained.map((one) => `  ${named(one)}: ${steps(one.path)}`),
    ];
    return { held, growth: grown, detached: loose, retained, text: lines.join("\n") };
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** As `checkPage`; throws what is left, with what retains it. */
export async function holdPage(session, action, limits = {}) {
  const result = await checkPage(session, action, limits);
  if (!result.held) throw new Error(result.text);
  return result;
}
