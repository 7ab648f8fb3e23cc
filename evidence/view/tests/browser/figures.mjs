// The page's figures against the JSON of the same trace, for real recordings.
//   node figures.mjs MARKS.html MARKS.json CHURN.html CHURN.json
//
//   MARKS: tests/programs/marks.c, every block of which is predicted: windows between its marks, by hand
//   CHURN: ten million events: windows at seeded edges, against sums over the JSON's own arrays, which
//          share no code with the page's; and the report's instants
import { main, need, settle, start } from "./browser.mjs";
import { readFileSync } from "node:fs";

const [marksPage, marksJson, churnPage, churnJson] = process.argv.slice(2);
need(marksPage, marksJson, churnPage, churnJson);
const run = await start(),
  { check, equal } = run;
const read = (file) => JSON.parse(readFileSync(file, "utf8"));

/** What a window's figures are, by site, from the JSON alone: one walk over all changes. */
function judge(report, from, to) {
  const w = report.windows,
    sites = [...report.sites, null].map(() => ({ live: 0, acquired: 0, released: 0, blocks: 0 })),
    live = w.cells.map((cell) => cell.start),
    siteOf = (cell) => sites[cell.site === null ? report.sites.length : cell.site];
  let change = 0;
  for (let bucket = 0; bucket < to; bucket++)
    for (; change < w.bucket_ends[bucket]; change++) {
      const c = w.changed_cell[change],
        cell = w.cells[c],
        [a, r] = [w.acquired[change], w.released[change]];
      live[c] += a - r;
      if (bucket < from) continue;
      siteOf(cell).acquired += a * cell.usable;
      siteOf(cell).released += r * cell.usable;
      siteOf(cell).blocks += a * cell.blocks;
    }
  w.cells.forEach((cell, c) => (siteOf(cell).live += live[c] * cell.usable));
  return sites;
}

const sum = (rows, field) => rows.reduce((total, row) => total + row[field], 0);

/** What the page has for a span: by site, and in all. */
const pageAmounts = (page, span) =>
  page.evaluate((text) => {
    store.set({ span: text });
    const report = skinflint.report,
      amounts = span.amounts(report, span.of(report, store.state));
    const of = (id) => [...amounts.bySite(id)];
    return {
      live: of("live_usable_bytes"),
      acquired: of("acquired_bytes"),
      released: of("released_bytes"),
      blocks: of("acquired_blocks"),
    };
  }, span);

/** Each instant's figures are those of the edge that it is, and what the page says of it. */
async function instants(page, report, name) {
  for (const [index, instant] of report.instants.entries()) {
    const edge = report.windows.edges.findIndex((one) => one.instants.includes(index));
    const own = index === report.at ? "" : `i${index}`;
    const of = await pageAmounts(page, own);
    const live = of.live.reduce((a, b) => a + b, 0);
    equal(
      [edge >= 0, live],
      [true, instant.live_usable_bytes],
      `${name}: live bytes at ${instant.label.slice(0, 12) || "(no name)"}`,
    );
    await settle(page);
    const said = await page.textContent("#books .head p"),
      words = await page.evaluate(
        (i) => [figures.bytes(i.live_usable_bytes), figures.count(i.live_blocks)],
        instant,
      );
    check(
      words.every((word) => said.includes(word)),
      `${name}: the books say so (${words.join(", ")})`,
    );
    if (instant.books) {
      const resident = await page.evaluate((bytes) => figures.bytes(bytes), instant.books.resident_bytes);
      equal(await page.textContent("#books tr.sum td.n"), resident, `${name}: resident`);
    }
    // The tree's roots are the same two figures, and children add up to their parent.
    const roots = await page.$$eval("#tree [aria-level='1'] > .tree-line .tree-figure", (all) =>
      all.map((e) => e.textContent),
    );
    equal(roots[roots.length - 1], words[0], `${name}: the tree's heap`);
  }
}

/** Both halves of the sandwich and the row of a function have one total; “itself” adds up to all. */
async function sandwiches(page, name) {
  const sums = await page.evaluate(() => {
    const report = skinflint.report,
      tree = chosenTree(report, store.state, "down").tree,
      rows = tree.functions();
    const wrong = rows.filter((row) => {
      const two = tree.sandwich(row.id),
        kids = (box) => tree.children(box).reduce((s, b) => s + b.value, 0);
      return two.value !== row.total || kids(two.callers) > two.value || kids(two.callees) > two.value;
    });
    const itself = rows.reduce((s, r) => s + r.self, 0) + tree.own[0] + tree.others;
    return { functions: rows.length, wrong: wrong.length, itself, total: tree.total };
  });
  equal([sums.wrong, sums.itself], [0, sums.total], `${name}: sandwiches of ${sums.functions} functions`);
}

await main(run, async () => {
  // usable(71) = 72, usable(73) = 88, usable(79) = 88 (glibc 2.36); see marks.c.
  const marks = read(marksJson),
    edgeOf = (label, nth = 0) => {
      const found = marks.instants.flatMap((one, index) =>
        one.label === label && one.kind === "mark" ? [index] : [],
      );
      return marks.windows.edges.findIndex((one) => one.instants.includes(found[nth]));
    };
  let page = await run.open(marksPage);
  await instants(page, marks, "marks");
  const window = async (from, to) => {
    await page.evaluate((text) => store.set({ span: text, change: "acquired_bytes" }), `e${from}-e${to}`);
    await settle(page);
    return page.evaluate(() => {
      const report = skinflint.report,
        amounts = span.amounts(report, span.of(report, store.state)),
        rows = chosenTree(report, store.state, "down").tree.functions();
      return {
        sums: [
          "acquired_blocks",
          "released_blocks",
          "net_blocks",
          "live_blocks",
          "acquired_bytes",
          "net_bytes",
        ].map((id) => amounts.total(id)),
        functions: rows
          .filter((row) => /^(load|work|thread)$/.test(row.frame.function))
          .map((row) => [row.frame.function, row.total]),
      };
    });
  };
  let got = await window(edgeOf("load begin"), edgeOf("load end"));
  equal(got.sums, [30, 10, 20, 20, 30 * 72, 20 * 72], "load: 30 x 71, 10 of them freed");
  equal(got.functions, [["load", 2160]], "load: its stack alone");
  check(
    (await page.textContent("#books .head p")).includes("30 allocations of 2.11 KiB (given), 10 frees"),
    "the books say so",
  );
  check(
    (await page.textContent("#sizes .head p")).includes("1.39 KiB in all"),
    "sizes: 20 x 71 live at its end",
  );
  equal(
    await page.$$eval("#sites tbody tr:first-child td.n", (all) => all.map((td) => td.textContent)),
    ["+1.41 KiB", "2.11 KiB", "720 B", "30", "10", "1.41 KiB", "20"],
    "sites: one row, load's",
  );
  got = await window(edgeOf("work begin", 1), edgeOf("work end"));
  equal(got.sums, [40, 40, 0, 20, 40 * 88, 0], "work: 40 x 73, all freed");
  got = await window(edgeOf("Größe"), edgeOf("end"));
  equal([got.sums[0], got.sums[1], got.sums[5]], [0, 15, -15 * 72], "15 of the 20 zombies are freed");
  await window(0, marks.windows.edges.length - 1);
  await sandwiches(page, "marks");
  await page.close();

  const churn = read(churnJson),
    w = churn.windows;
  page = await run.open(churnPage);
  await instants(page, churn, "churn");
  let state = 88172645463325252n;
  const below = (bound) => {
    state ^= (state << 13n) & 0xffffffffffffffffn;
    state ^= state >> 7n;
    state ^= (state << 17n) & 0xffffffffffffffffn;
    return Number((state >> 11n) % BigInt(bound));
  };
  for (let round = 0; round < 12; round++) {
    const [a, b] = [below(w.edges.length), below(w.edges.length)].sort((x, y) => x - y);
    if (a === b) continue;
    const got = await pageAmounts(page, `e${a}-e${b}`),
      want = judge(churn, a, b);
    const same = ["live", "acquired", "released", "blocks"].every((field) =>
      want.every((site, index) => site[field] === got[field][index]),
    );
    check(
      same && sum(want, "blocks") > 0,
      `churn: window e${a}-e${b} of ${w.edges.length - 1}, ${want.length - 1} sites`,
    );
    const all = ["acquired", "released"].map((field) => got[field].reduce((x, y) => x + y, 0)),
      at = (edge) => sum(judge(churn, 0, edge), "live");
    equal(all[0] - all[1], at(b) - at(a), "allocated − freed = live at its end − at its start");
  }
  const whole = await pageAmounts(page, `e0-e${w.edges.length - 1}`);
  equal(
    whole.blocks.reduce((x, y) => x + y, 0),
    churn.totals.allocations,
    "churn: the whole run's allocations",
  );
  await page.evaluate(() => store.set({ change: "grown_bytes" }));
  await sandwiches(page, "churn");
  await page.close();
});
