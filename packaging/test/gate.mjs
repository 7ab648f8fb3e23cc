// Memory as a test, as a user of the npm package writes it: what is held, what is broken, what fails.
import assert from "node:assert/strict";
import test from "node:test";
import { check, hold } from "skinflint";

const load = ["node", "-e", "globalThis.kept = Buffer.alloc(80_000_000, 1)"];

test("what is small enough is held", async () => {
  const { held, status } = await hold(["node", "-e", "0"], { peakLive: "400MiB" });
  assert.deepEqual([held, status], [true, 0]);
});

test("what is too large is broken, and the error has the stacks", async () => {
  await assert.rejects(hold(load, { peakLive: "60MiB" }), /BROKEN[^]*peak-live[^]*by /);
  const { held, status, verdict } = await check(load, { "peak-live": "60MiB", stack: { no_such_function: "1MiB" } });
  assert.deepEqual([held, status], [false, 3]);
  assert.equal(verdict.schema, 1);
});

test("what is not decided is not held", async () => {
  const { held, status } = await check(["node", "-e", "0"], { growthPer: { request: "4KiB" } });
  assert.deepEqual([held, status], [false, 4]);
});

test("a program that fails, and a limit that is none", async () => {
  await assert.rejects(check(["node", "-e", "process.exit(3)"], { peakLive: "1GiB" }), /status 3/);
  await assert.rejects(check(["node", "-e", "0"], { peakLife: "1GiB" }), /peak-life/);
});
