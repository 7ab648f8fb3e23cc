/**
 * Skinflint's reporters in JavaScript: what a Node.js program's memory is for, as `skinflint memory PID` shows it.
 *
 *   import { open, reporter } from "skinflint/reporters";
 *   reporter("pages", (report) => report("explicit/store/pages", store.length, "Pages of the store.", "buffers"));
 *   await open();                                            // from now on `skinflint memory PID` is answered
 *
 *   `skinflint memory PID` ─ "measure" ─► PID.report, a socket of this user's folder ─► reporters, on this thread ─► lines
 *
 * J1  No addon: Node's own sockets speak the protocol of the reporters' library, and reporters run where all JavaScript runs,
 *     between two events. A loop that is busy answers when it is done; the asker waits a minute.
 * J2  Lines of a reporter are all there or none: one that throws is named in the answer, and its lines are left out.
 * J3  The socket is in a folder of the user's alone, mode 0700, which is checked; it is removed when the process ends, and keeps
 *     no process alive.
 * J4  What V8 and Node hold is told without a reporter, less what reporters say is theirs of it: no byte is in two lines of the
 *     sum, unless two reporters tell of it.
 *
 * Not here: what lines and paths mean (docs/memory.md); reporters of worker threads, which have no line yet.
 */
import { chmodSync, lstatSync, mkdirSync, statSync, unlinkSync } from "node:fs";
import { connect, createServer } from "node:net";
import { basename, isAbsolute, join } from "node:path";
import v8 from "node:v8";

/**
 * Where the bytes of a line lie, and its kind: objects of V8's heap; ArrayBuffers and Buffers, which malloc has; elsewhere, such as in
 * an addon's mappings; or in no sum, for figures whose path is not below `explicit/`.
 */
const WHERE = { objects: 0, buffers: 1, elsewhere: 0, figure: 2 };

const reporters = new Map();
let server = null;

/**
 * Adds a reporter. `measure` gets a function `report(path, bytes, description, where = "objects")`; a path that begins with
 * `explicit/` is part of the sum of what the program holds.
 *
 * @returns {() => void} takes it away again
 */
export function reporter(name, measure) {
  if (typeof measure !== "function") throw new TypeError(`reporter ${name}: a function is wanted`);
  const key = Symbol(name);
  reporters.set(key, { name: String(name), measure });
  return () => void reporters.delete(key);
}

function line(path, amount, description, where) {
  const bytes = Math.round(Number(amount));
  if (typeof path !== "string" || path === "") throw new TypeError("a path is wanted, such as explicit/cache");
  if (!Number.isSafeInteger(bytes)) throw new TypeError(`${path}: ${amount} is no number of bytes`);
  if (!Object.hasOwn(WHERE, where)) throw new TypeError(`${path}: ${where}: bytes are in ${Object.keys(WHERE).join(", ")}`);
  if (path.startsWith("explicit/") === (where === "figure")) throw new TypeError(`${path}: what is below explicit/ is no figure, and the rest is`);
  const name = `${basename(process.argv[1] ?? process.title)} (pid ${process.pid})`;
  return { where, line: { process: name, path, kind: WHERE[where], units: 0, amount: bytes, description: String(description ?? "") } };
}

/** What V8 and Node say of themselves, less what reporters have told of (J4). */
function own(report, told) {
  const of = (where) => told.filter((one) => one.where === where).reduce((sum, { line: { amount } }) => sum + amount, 0);
  let used = 0;
  let free = 0;
  for (const space of v8.getHeapSpaceStatistics()) {
    used += space.space_used_size;
    free += Math.max(0, space.physical_space_size - space.space_used_size);
  }
  const { rss, arrayBuffers, external } = process.memoryUsage();
  report("explicit/v8/objects", Math.max(0, used - of("objects")), "Objects that no reporter tells of; dead ones that are not collected are among them.");
  report("explicit/v8/free", free, "Resident pages of V8's heap without objects.", "elsewhere");
  report("explicit/node/buffers", Math.max(0, arrayBuffers - of("buffers")), "ArrayBuffers and Buffers that no reporter tells of.", "buffers");
  report("explicit/node/external", Math.max(0, external - arrayBuffers), "What else objects hold outside of V8's heap.", "buffers");
  report("resident", rss, "Resident memory of the process.", "figure");
}

function measured() {
  const faults = [];
  const lines = [];
  for (const { name, measure } of [...reporters.values(), { name: "v8", measure: own }]) {
    const these = [];
    try {
      measure((path, bytes, description, where = "objects") => void these.push(line(path, bytes, description, where)), lines);
      lines.push(...these);
    } catch (error) {
      faults.push(`fault ${name}: ${String(error?.message ?? error).replaceAll(/\s+/g, " ")}\n`);
    }
  }
  const file = { version: 1, hasMozMallocUsableSize: true, reports: lines.map((one) => one.line) };
  return `report\n${faults.join("")}\n${JSON.stringify(file)}\n`;
}

function answer(request) {
  if (request === "measure" || request === "measure-blocks") return measured();
  if (request === "gc" || request === "minimize") {
    if (typeof globalThis.gc !== "function") return "no\nstart node with --expose-gc";
    globalThis.gc();
    return "done\ncollected";
  }
  return "no\na request is measure, minimize or gc";
}

/** The folder of this user's sockets, made if it is not there (J3). */
function folder() {
  const runtime = process.env.XDG_RUNTIME_DIR;
  const is_there = runtime && isAbsolute(runtime) && statSync(runtime, { throwIfNoEntry: false })?.isDirectory();
  const path = is_there ? join(runtime, "skinflint") : `/tmp/skinflint-${process.geteuid()}`;
  try {
    mkdirSync(path, { mode: 0o700 });
  } catch (error) {
    if (error.code !== "EEXIST") throw error;
  }
  const found = lstatSync(path);
  if (!found.isDirectory() || found.uid !== process.geteuid() || (found.mode & 0o077) !== 0) {
    throw new Error(`${path}: not a folder of this user's alone (mode 0700): no socket is opened there`);
  }
  return path;
}

function listen(path) {
  const made = createServer((socket) => {
    let request = "";
    socket.setEncoding("latin1").setTimeout(10_000, () => socket.destroy());
    socket.on("error", () => {});
    socket.on("data", (text) => {
      request += text;
      const end = request.indexOf("\n");
      if (end >= 0) socket.removeAllListeners("data").end(answer(request.slice(0, end)));
      else if (request.length > 32) socket.destroy();
    });
    socket.unref();
  });
  return new Promise((resolve, reject) => made.once("error", reject).listen(path, () => resolve(made)));
}

/** Reports whether a process listens at a socket. */
const is_answered = (path) =>
  new Promise((resolve) => {
    const socket = connect(path, () => resolve(true) ?? socket.destroy()).on("error", () => resolve(false));
  });

/**
 * Opens the socket at which `skinflint memory` is answered; once a process.
 *
 * @returns {Promise<() => void>} closes it again
 */
export async function open() {
  if (server) throw new Error("the reporters' socket is open already");
  const path = join(folder(), `${process.pid}.report`);
  // Left by a process of this number that is gone; one that answers is another library's.
  if (statSync(path, { throwIfNoEntry: false })) {
    if (await is_answered(path)) throw new Error(`${path}: another library of this process answers there`);
    unlinkSync(path);
  }
  server = await listen(path);
  chmodSync(path, 0o600);
  server.unref();
  const close = () => {
    server?.close();
    server = null;
    process.off("exit", close);
  };
  process.on("exit", close);
  return close;
}
