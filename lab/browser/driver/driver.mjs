// One browser, driven by lines of JSON: requests on stdin, answers on stdout, in any order, matched by id.
//
//   {"id":1,"do":"connect","protocol":"cdp","endpoint":"ws://…"}   ►  {"id":1,"ok":{"version":"…"}}
//   {"id":2,"do":"open","kind":"window","url":…,"ready":…,"timeout_ms":…} ► {"id":2,"ok":{"tab":"1","load_ms":800}}
//   {"id":3,"do":"close","tab":"1"}     {"id":4,"do":"gc"}     {"id":5,"do":"dump"}     {"id":6,"do":"eval",…}
//
// D1  The browser is started by skinflint, which measures it; this process is not part of what is measured.
// D2  No answer is made up: what the browser refuses is {"id":…,"error":"…"} with its words.
// D3  When stdin ends, so does this process, whatever is under way. It never ends the browser.
//
// Not here: which page when, limits of a whole run, what becomes of a browser that does not answer (skinflint).
import { createWriteStream } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import puppeteer from 'puppeteer-core';

let browser = null;
let first = null; // the tab that the browser began with
let cdp = false;
let made = 0;
const tabs = new Map();

function tab(id) {
  if (id === 'first') return first;
  const page = tabs.get(id);
  if (!page) throw new Error(`no tab ${id}`);
  return page;
}

async function connect({ protocol, endpoint, timeout_ms }) {
  cdp = protocol === 'cdp';
  browser = await puppeteer.connect({
    browserWSEndpoint: endpoint,
    protocol: cdp ? 'cdp' : 'webDriverBiDi',
    defaultViewport: null,
    protocolTimeout: timeout_ms ?? 120000,
    acceptInsecureCerts: false,
  });
  first = (await browser.pages())[0] ?? null;
  return { version: await browser.version() };
}

async function open({ kind, url, ready, timeout_ms }) {
  const began = performance.now();
  const page = await browser.newPage(kind === 'window' ? { type: 'window' } : {});
  const id = String(++made);
  tabs.set(id, page);
  // The answer names the tab even if the load fails: it is open, and somebody has to close it.
  const answer = { tab: id, load_ms: 0, failed: null };
  try {
    const response = await page.goto(url, { waitUntil: 'load', timeout: timeout_ms });
    if (response && response.status() >= 400) answer.failed = `status ${response.status()}`;
    else if (ready) {
      const left = Math.max(500, timeout_ms - (performance.now() - began));
      await page.waitForFunction(ready, { timeout: left, polling: 100 });
    }
  } catch (error) {
    answer.failed = String(error.message ?? error);
  }
  answer.load_ms = Math.round(performance.now() - began);
  return answer;
}

async function close({ tab: id }) {
  const page = tab(id);
  tabs.delete(id);
  // A page that hangs may never say that it is closed; skinflint counts those.
  await within(page.close({ runBeforeUnload: false }), 20000);
  return {};
}

async function navigate({ tab: id, url, timeout_ms }) {
  await tab(id).goto(url, { waitUntil: 'load', timeout: timeout_ms });
  return {};
}

async function evaluate({ tab: id, script }) {
  return { value: await tab(id).evaluate(script) };
}

// A collection that has not ended after this time is counted as silent.
const COLLECT_MS = 10000;

function within(promise, ms) {
  let timer;
  const limit = new Promise((_, fail) => { timer = setTimeout(() => fail(new Error(`no answer for ${ms / 1000} s`)), ms); });
  return Promise.race([promise, limit]).finally(() => clearTimeout(timer));
}

// V8 of every page collects; what Chromium calls critical memory pressure is simulated.
async function gc() {
  if (!cdp) throw new Error('this protocol has no garbage collection');
  // A page that hangs does not collect; the others do. All at once: one after the other, thirty pages on a busy machine
  // took longer than the call may, and went on collecting while the next step was measured.
  const one = async (page) => {
    const session = await page.createCDPSession();
    await session.send('HeapProfiler.collectGarbage');
    await session.detach();
  };
  const all = [first, ...tabs.values()].filter(Boolean);
  const done = await Promise.allSettled(all.map((page) => within(one(page), COLLECT_MS)));
  const collected = done.filter(({ status }) => status === 'fulfilled').length;
  const silent = all.length - collected;
  const session = await browser.target().createCDPSession();
  try {
    await within(session.send('Memory.forciblyPurgeJavaScriptMemory'), COLLECT_MS).catch(() => {});
    await within(session.send('Memory.simulatePressureNotification', { level: 'critical' }), COLLECT_MS).catch(() => {});
  } finally {
    await session.detach().catch(() => {});
  }
  return { collected, silent };
}

// Chromium's memory-infra: one detailed dump of all its processes, as its trace events.
async function dump() {
  if (!cdp) throw new Error('this protocol has no memory dump');
  const session = await browser.target().createCDPSession();
  const events = [];
  session.on('Tracing.dataCollected', ({ value }) => events.push(...value));
  const ended = new Promise((resolve) => session.once('Tracing.tracingComplete', resolve));
  try {
    await session.send('Tracing.start', {
      transferMode: 'ReportEvents',
      traceConfig: {
        includedCategories: ['disabled-by-default-memory-infra'],
        excludedCategories: ['*'],
        memoryDumpConfig: {},
      },
    });
    const { success } = await session.send('Tracing.requestMemoryDump', { deterministic: true, levelOfDetail: 'detailed' });
    await session.send('Tracing.end');
    await ended;
    return { success, events: events.filter((event) => event.ph === 'v' || event.name === 'process_name') };
  } finally {
    await session.detach().catch(() => {});
  }
}

// What lives in the pages that are open, as V8 tells it: left-1.heapsnapshot, left-2.heapsnapshot …
async function snapshots({ folder }) {
  if (!cdp) throw new Error('this protocol has no heap snapshots');
  const files = [];
  for (const page of tabs.values()) {
    const session = await page.createCDPSession();
    const name = `left-${files.length + 1}.heapsnapshot`;
    const file = createWriteStream(join(folder, name));
    try {
      session.on('HeapProfiler.addHeapSnapshotChunk', ({ chunk }) => file.write(chunk));
      await session.send('HeapProfiler.collectGarbage');
      await session.send('HeapProfiler.takeHeapSnapshot', { reportProgress: false });
    } finally {
      await new Promise((resolve, reject) => file.on('error', reject).end(resolve));
      await session.detach().catch(() => {});
    }
    files.push(name);
  }
  return { files };
}

// One page load as HAR 1.2, bodies included; requests that had not ended are left out and counted.
async function record({ urls, timeout_ms, settle_ms }) {
  if (!cdp) throw new Error('recording needs Chromium');
  const entries = [];
  const pages = [];
  let unfinished = 0;
  for (const [at, url] of urls.entries()) {
    const page = await browser.newPage();
    const session = await page.createCDPSession();
    const under_way = new Map();
    const bodies = [];
    await session.send('Network.enable', { maxTotalBufferSize: 1 << 28, maxResourceBufferSize: 1 << 26 });
    session.on('Network.requestWillBeSent', (event) => {
      const known = under_way.get(event.requestId);
      if (event.redirectResponse && known) entries.push(entry(known, event.redirectResponse, null, at));
      under_way.set(event.requestId, { request: event.request, wall: event.wallTime, began: event.timestamp });
    });
    session.on('Network.responseReceived', (event) => {
      const known = under_way.get(event.requestId);
      if (known) known.response = event.response;
    });
    session.on('Network.loadingFinished', (event) => {
      const known = under_way.get(event.requestId);
      if (!known?.response) return;
      known.ended = event.timestamp;
      under_way.delete(event.requestId);
      bodies.push(
        session.send('Network.getResponseBody', { requestId: event.requestId }).then(
          (body) => entries.push(entry(known, known.response, body, at)),
          () => entries.push(entry(known, known.response, null, at)),
        ),
      );
    });
    const began = new Date();
    await page.goto(url, { waitUntil: 'load', timeout: timeout_ms });
    await new Promise((resolve) => setTimeout(resolve, settle_ms));
    await Promise.all(bodies);
    unfinished += under_way.size;
    pages.push({ startedDateTime: began.toISOString(), id: `page_${at}`, title: url, pageTimings: {} });
    await page.close();
  }
  const creator = { name: 'skinflint tabs', version: '1' };
  return { unfinished, har: { log: { version: '1.2', creator, pages, entries } } };
}

const pairs = (headers) => Object.entries(headers ?? {}).map(([name, value]) => ({ name, value: String(value) }));

function entry(known, response, body, at) {
  const time = Math.max(0, ((known.ended ?? known.began) - known.began) * 1000);
  const content = { size: 0, mimeType: response.mimeType ?? '' };
  if (body) {
    content.text = body.body;
    if (body.base64Encoded) content.encoding = 'base64';
    content.size = body.base64Encoded ? Buffer.from(body.body, 'base64').length : Buffer.byteLength(body.body);
  }
  return {
    pageref: `page_${at}`,
    startedDateTime: new Date(known.wall * 1000).toISOString(),
    time,
    request: {
      method: known.request.method,
      url: known.request.url,
      httpVersion: 'HTTP/1.1',
      cookies: [],
      headers: pairs(known.request.headers),
      queryString: [...new URL(known.request.url).searchParams].map(([name, value]) => ({ name, value })),
      headersSize: -1,
      bodySize: -1,
    },
    response: {
      status: response.status,
      statusText: response.statusText ?? '',
      httpVersion: 'HTTP/1.1',
      cookies: [],
      headers: pairs(response.headers),
      content,
      redirectURL: response.headers?.location ?? response.headers?.Location ?? '',
      headersSize: -1,
      bodySize: -1,
    },
    cache: {},
    timings: { send: 0, wait: time, receive: 0 },
  };
}

const able = { connect, open, close, navigate, eval: evaluate, gc, dump, snapshots, record };

async function answer(line) {
  let request;
  try {
    request = JSON.parse(line);
  } catch (error) {
    return { id: null, error: `not JSON: ${error.message}` };
  }
  try {
    const act = able[request.do];
    if (!act) throw new Error(`unknown request ${request.do}`);
    return { id: request.id, ok: await act(request) };
  } catch (error) {
    return { id: request.id, error: String(error?.message ?? error) };
  }
}

process.on('unhandledRejection', (error) => process.stderr.write(`driver: ${error?.message ?? error}\n`));
const lines = createInterface({ input: process.stdin });
lines.on('line', async (line) => process.stdout.write(JSON.stringify(await answer(line)) + '\n'));
lines.on('close', () => process.exit(0));
