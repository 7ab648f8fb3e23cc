// Reporters in JavaScript, as a user of the npm package writes them; `skinflint memory` is their judge.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import test from "node:test";
import { promisify } from "node:util";
import { program } from "skinflint";
import { open, reporter } from "skinflint/reporters";

const memory = async (...words) => (await promisify(execFile)(program, ["memory", String(process.pid), ...words])).stdout;

test("what a reporter tells is in the report, and what V8 holds beside it", async () => {
  const store = Buffer.alloc(32 << 20, 1);
  const remove = reporter("store", (report) => report("explicit/store/pages", store.length, "Pages of the store.", "buffers"));
  reporter("torn", (report) => {
    report("explicit/torn", 1, "All or none.");
    throw new Error("no figure today");
  });
  const close = await open();
  await assert.rejects(open(), /open already/);
  const told = await memory();
  assert.match(told, /32\.00 MiB \([\d.]+%\) ── store\/pages/);
  assert.doesNotMatch(told, /explicit\/torn|All or none/);
  const { trees } = JSON.parse(await memory("--json")).processes[0];
  const of = (path) => path.split("/").reduce((at, name) => at.kids.find((kid) => kid.name === name), { kids: trees }).amount;
  assert.equal(of("explicit/store/pages"), store.length);
  assert.ok(of("explicit/v8/objects") > 1 << 20);
  // What a reporter tells of is in its line only.
  assert.ok(of("explicit/node/buffers") < 1 << 20);
  assert.ok(of("resident") > store.length);
  remove();
  assert.doesNotMatch(await memory("--json"), /store\/pages/);
  close();
  assert.doesNotMatch(await memory().catch(({ stderr }) => stderr), /v8/);
});

test("a line that is none is told with its reporter", async () => {
  const remove = reporter("wrong", (report) => report("explicit/wrong", Number.NaN, ""));
  const close = await open();
  const { stderr, stdout } = await promisify(execFile)(program, ["memory", String(process.pid)]);
  assert.match(stderr + stdout, /wrong: explicit\/wrong: NaN is no number of bytes/);
  remove();
  close();
  assert.ok(existsSync(program));
});
