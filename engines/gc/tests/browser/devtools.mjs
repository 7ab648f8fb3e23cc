// Opens a heap snapshot in the DevTools of a real Chromium, and compares what they count with what was written.
//   node devtools.mjs FILE.heapsnapshot FIGURES.json [SHOTS]
//
//   FIGURES.json is what `cargo run --example snapshot` prints: nodes, bytes of cells, a class and its objects.
//   The file goes in as by hand: DevTools, Memory, Load profile. Read back are the row of the list of snapshots, the rows
//   of the summary, and what DevTools' own worker says: nodes, bytes, distance from the roots, retained bytes.
//
// Exit status: 0 if everything held, 1 if something did not, 2 if it could not be run.
import { readFileSync } from "node:fs";
import { main, need, start } from "../../../../evidence/view/tests/browser/browser.mjs";

const [file, figures, shots] = process.argv.slice(2);
need(file, figures);
const want = JSON.parse(readFileSync(figures, "utf8"));
const LIMIT_MS = 60_000;
const run = await start({ shots });
const DEVTOOLS = "devtools://devtools/bundled/";

await main(run, async () => {
  const page = await run.browser.newPage({ viewport: { width: 1400, height: 900 } });
  page.setDefaultTimeout(LIMIT_MS);
  page.on("pageerror", (e) => run.errors.push(String(e)));
  await page.goto(DEVTOOLS + "js_app.html");
  await page.locator("[role=tab][aria-label=Memory]").click();
  const chooser = page.waitForEvent("filechooser");
  await page.locator('button[aria-label^="Load profile"]').click();
  const begun = Date.now();
  await (await chooser).setFiles(file);
  // Its size stands behind its name when it is loaded.
  const row = page.locator(".heap-snapshot-sidebar-tree-item", { hasText: /\([\d,.]+\s.?B\)/ });
  await row.waitFor();
  const title = (await row.innerText()).replace(/\s+/g, " ");
  console.log(`     ${title}, loaded in ${Date.now() - begun} ms`);

  const got = await page.evaluate(async (base) => {
    const { HeapProfilerPanel } = await import(base + "panels/profiler/profiler.js");
    const panel = HeapProfilerPanel.HeapProfilerPanel.instance();
    const profile = panel.selectedProfileType.getProfiles()[0];
    const view = panel.showProfile(profile);
    const snapshot = profile.snapshotProxy;
    const classes = Object.values(await snapshot.aggregatesWithFilter({}));
    // The table is filled a little later.
    const rows = () => view.element.innerText.replace(/[\t\n]+/g, " ");
    for (let tries = 0; tries < 200 && !rows().includes("×"); tries++)
      await new Promise((done) => setTimeout(done, 100));
    return {
      nodes: snapshot.nodeCount,
      bytes: snapshot.totalSize,
      statistics: (await snapshot.getStatistics()).total,
      classes: classes.map(({ name, count, self, maxRet, distance }) => ({ name, count, self, maxRet, distance })),
      rows: rows(),
    };
  }, DEVTOOLS);
  if (shots) await run.shot(page, "devtools.png");
  const of = got.classes.find(({ name }) => name === want.class) ?? {};
  run.equal(got.nodes, want.nodes, "nodes");
  run.equal(got.bytes, want.cell_bytes, "bytes of all nodes are the heaps' live bytes");
  run.equal(got.statistics, want.heap_cell_bytes, "DevTools' statistics sum to them");
  run.equal(of.count, want.class_objects, `objects of ${want.class}`);
  run.check(of.distance === 2, `the nearest is two edges from the root: a tenant's handle (${of.distance})`);
  run.equal(of.maxRet, want.cell_bytes, "they retain everything");
  const shown = `${want.class}×${want.class_objects.toLocaleString("en-US")}`;
  run.check(got.rows.includes(shown), `the summary has the row ${shown}`);
  await page.close();
});
