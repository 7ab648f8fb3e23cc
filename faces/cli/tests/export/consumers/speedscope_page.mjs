// speedscope_page.mjs FILE: opens FILE in speedscope itself, in Chromium without a window, and prints the
// text of its sandwich view (a table of functions with their totals).
//
//   FILE ─► base64 in a script, as speedscope's own command does it ─► index.html#localProfilePath=… ─► DOM
//
// Not here: what the table should hold (the caller knows).
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";

const file = process.argv[2];
const index = fileURLToPath(new URL("node_modules/speedscope/dist/release/index.html", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "skinflint-speedscope-"));
try {
  const script = join(folder, "profile.js");
  const args = [basename(file), readFileSync(file).toString("base64")].map((text) => JSON.stringify(text));
  writeFileSync(script, `speedscope.loadFileFromBase64(${args.join(", ")})`);
  const dom = execFileSync(
    "chromium",
    [
      "--headless", "--no-sandbox", "--disable-gpu", "--use-gl=swiftshader", "--enable-unsafe-swiftshader",
      "--allow-file-access-from-files", "--window-size=1600,2400", "--virtual-time-budget=20000",
      `--user-data-dir=${join(folder, "profile")}`, "--dump-dom",
      `file://${index}#view=sandwich&localProfilePath=${script}`,
    ],
    { encoding: "utf8", maxBuffer: 1 << 28, stdio: ["ignore", "pipe", "ignore"], timeout: 120000 },
  );
  const text = dom.replace(/<(script|style)[^>]*>[^]*?<\/\1>/g, "").replace(/<[^>]*>/g, "\n");
  process.stdout.write(text.replace(/\n\s*\n+/g, "\n"));
} finally {
  rmSync(folder, { recursive: true, force: true });
}
