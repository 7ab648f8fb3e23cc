// What a page leaves behind, as a user of Playwright writes it; needs playwright-core and Debian's chromium.
import assert from "node:assert/strict";
import test from "node:test";
import { chromium } from "playwright-core";
import { checkPage, holdPage } from "skinflint/pages";

const PAGE = `<!doctype html><body><script>
  const kept = [];
  function open(keeps) {
    const dialog = document.createElement("section");
    dialog.textContent = "x".repeat(50000) + Math.random();
    document.body.append(dialog);
    const data = new Array(20000).fill(keeps ? 1.5 : 2.5);
    dialog.remove();
    if (keeps) kept.push({ dialog, data });
  }
</script>`;

test("a page that leaks is broken, and what retains it is told", async () => {
  const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox"] });
  try {
    const page = await browser.newPage();
    await page.setContent(PAGE);
    const session = await page.context().newCDPSession(page);
    const held = await holdPage(session, () => page.evaluate("open(false)"), { growth: "32KiB" });
    assert.deepEqual([held.held, held.detached, held.retained], [true, 0, []]);

    const leak = await checkPage(session, () => page.evaluate("open(true)"), { growth: "32KiB", rounds: 4 });
    assert.equal(leak.held, false, leak.text);
    assert.ok(leak.growth > 100_000, leak.text);
    assert.ok(leak.detached >= 4, leak.text);
    assert.match(leak.text, /detached <section>: .*kept/);
    await assert.rejects(holdPage(session, () => page.evaluate("open(true)"), { growth: "32KiB" }), /BROKEN.*\n.*kept/);
    await assert.rejects(checkPage(session, () => {}, { grows: 1 }), /no limit is called grows/);
    await assert.rejects(checkPage(session, () => {}, { growth: "much" }), /16KiB/);
  } finally {
    await browser.close();
  }
});
