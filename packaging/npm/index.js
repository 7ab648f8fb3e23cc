/**
 * Skinflint for Node.js: memory as a test.
 *
 *   import { check, hold } from "skinflint";
 *   await hold(["node", "load.js"], { peakLive: "256MiB", allocations: "2M" });     // throws, with the stacks that broke it
 *   const verdict = await check(["node", "load.js"], { "growth-per": { request: "4KiB" } });
 *
 *   command ─► `skinflint record` ─► trace in a temporary folder ─► `skinflint check --json` ─► { held, verdict, text }
 *
 * K1  The program's streams are the caller's (`stdio`); the verdict is read from the trace afterwards, so nothing that the
 *     program prints is taken for it.
 * K2  What is not decided is not held: `held` is true only if every budget is.
 *
 * Not here: limits and figures (`skinflint check --help`); pages of a browser (pages.js); windows and tabs (`skinflint tabs`).
 */
import { spawn } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

/** The program. */
export const program = fileURLToPath(new URL("bin/skinflint", import.meta.url));
/** The allocator's library, for LD_PRELOAD; `skinflint exec` does without. */
export const library = fileURLToPath(new URL("lib/libskinflint.so", import.meta.url));

/** Options of `skinflint check`: `peakLive` or `peak-live`; an object for those that have a name of their own. */
function words(limits) {
  return Object.entries(limits).flatMap(([name, limit]) => {
    const option = "--" + name.replace(/[A-Z]/g, (letter) => "-" + letter.toLowerCase());
    if (limit !== null && typeof limit === "object") {
      return Object.entries(limit).map(([part, value]) => `${option}=${part}=${value}`);
    }
    return [`${option}=${limit}`];
  });
}

/** Runs a command (for pages.js); its end, and what it printed if that is read here. */
export function run(file, args, options = {}) {
  return new Promise((resolve, reject) => {
    const child = spawn(file, args, options);
    let stdout = "";
    let stderr = "";
    child.stdout?.setEncoding("utf8").on("data", (text) => (stdout += text));
    child.stderr?.setEncoding("utf8").on("data", (text) => (stderr += text));
    child.on("error", reject);
    child.on("close", (status, signal) => resolve({ status, signal, stdout, stderr }));
  });
}

/**
 * Records a command and holds it to limits.
 *
 * @param {string[]} command the program and its arguments
 * @param {object} limits of `skinflint check`, such as { peakLive: "64MiB", stack: { "load_*": "8MiB" } }
 * @param {{ stdio?: any, env?: object, cwd?: string }} options of the command
 * @returns {Promise<{ held: boolean, status: number, verdict: object, text: string }>} `status` is that of the check: 0
 *   held, 3 broken, 4 not decided
 */
export async function check(command, limits, options = {}) {
  const folder = await mkdtemp(join(tmpdir(), "skinflint-"));
  const trace = join(folder, "check.sft");
  try {
    const ran = await run(program, ["record", "-o", trace, "--", ...command], { stdio: "inherit", ...options });
    if (ran.status !== 0) {
      throw new Error(`${command.join(" ")}: ${ran.signal ?? `status ${ran.status}`}: a program that fails is not held`);
    }
    const judged = await run(program, ["check", "--json", ...words(limits), trace], { cwd: options.cwd });
    if (judged.status === 1 || judged.status === 2) throw new Error(judged.stderr.trim());
    const text = await run(program, ["check", ...words(limits), trace], { cwd: options.cwd });
    return { held: judged.status === 0, status: judged.status, verdict: JSON.parse(judged.stdout), text: text.stdout };
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** As `check`; throws what broke the limits, with its stacks. */
export async function hold(command, limits, options = {}) {
  const result = await check(command, limits, options);
  if (!result.held) throw new Error(result.text.trim());
  return result;
}
