// The report's long tables, which come as columns: sites, sizes, the stack tree, and the windows.
//
//   base64 ──► inflate (raw) ──► name · kind · count · bytes · numbers …       (columns.rs has every byte)
//
// C1  A column that is not known is skipped; one that is cut off is an error, not a short table.
// C2  The tree is two typed arrays, `report.parents` and `report.frameOf`: four hundred thousand nodes
//     as objects would cost more than everything else that the page does when it opens.
// C3  The sites of the report come first and in their order: the windows know them by their place.
// Not here: what windows mean (windows.js).

async function inflate(text) {
  if (typeof DecompressionStream === "undefined")
    throw new Error("this browser has no DecompressionStream; use one from 2023 or later");
  let bytes;
  if (Uint8Array.fromBase64) bytes = Uint8Array.fromBase64(text);
  else {
    const packed = atob(text);
    bytes = new Uint8Array(packed.length);
    for (let i = 0; i < bytes.length; i++) bytes[i] = packed.charCodeAt(i);
  }
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  try {
    return new Uint8Array(await new Response(stream).arrayBuffer());
  } catch (_) {
    throw new Error("its packed tables are damaged or end early"); // the browser's own words are of fetching
  }
}

/** All columns by name. Numbers beyond 2^53 lose their last digits, as in JSON. */
function readColumns(bytes) {
  const columns = new Map();
  let at = 0;
  const number = () => {
    let value = 0,
      scale = 1,
      byte;
    do {
      if (at >= bytes.length) throw new Error("the tables end in the middle of a number");
      byte = bytes[at++];
      value += (byte & 127) * scale;
      scale *= 128;
    } while (byte > 127);
    return value;
  };
  while (at < bytes.length) {
    const length = number(),
      name = String.fromCharCode(...bytes.subarray(at, at + length));
    at += length;
    const kind = number(),
      count = number(),
      size = number();
    if (at + size > bytes.length || count > size) throw new Error(`the column ${name} is cut off`);
    const values = new Float64Array(count);
    let last = 0;
    for (let i = 0; i < count; i++) {
      // Nearly all numbers are one or two bytes long.
      const first = bytes[at];
      let value;
      if (first < 128) {
        value = first;
        at++;
      } else value = number();
      if (kind) value = value % 2 ? -(value + 1) / 2 : value / 2;
      values[i] = kind === 1 ? (last += value) : value;
    }
    columns.set(name, values);
  }
  return columns;
}

/** The rows of a table as objects, if it has any. */
function rowsOf(columns, table) {
  const fields = [...columns.keys()].filter((name) => name.startsWith(table + "."));
  if (!fields.length) return [];
  const names = fields.map((name) => name.slice(table.length + 1)),
    values = fields.map((name) => columns.get(name));
  return Array.from(values[0], (_, row) => {
    const out = {};
    for (let i = 0; i < names.length; i++) {
      const value = values[i][row];
      out[names[i]] = value ? value - 1 : null;
    }
    return out;
  });
}

/** The figures that a page may ask of a site, for a report that has none. */
const NO_SITE = {
  allocations: 0,
  requested_bytes: 0,
  usable_bytes: 0,
  temporaries: 0,
  live_blocks: 0,
  live_requested_bytes: 0,
  live_usable_bytes: 0,
  live_resident_bytes: 0,
  heap_peak_usable_bytes: 0,
  end_usable_bytes: 0,
};

/** What stacks mapped, as figures of their sites; a stack that only mapped becomes a site without blocks (C3). */
function addMappers(report, mappers) {
  const known = new Map(report.sites.map((site) => [site.node, site])),
    fields = Object.keys(report.sites[0] || NO_SITE);
  report.knowsMapped = mappers.some((one) => one.resident_bytes !== null);
  for (const one of mappers) {
    let site = known.get(one.node);
    if (!site) {
      site = Object.fromEntries(fields.map((field) => [field, 0]));
      site.node = one.node;
      report.sites.push(site);
      known.set(one.node, site);
    }
    site.mapped_bytes = one.mapped_bytes;
    site.mapped_resident_bytes = one.resident_bytes;
  }
}

/** Puts the tables back into the report, and beside them what views look up again and again. */
async function fillReport(report, text) {
  const columns = readColumns(await inflate(text));
  report.sites = rowsOf(columns, "sites");
  addMappers(report, rowsOf(columns, "mappers"));
  report.sizes = rowsOf(columns, "sizes");
  report.parents = Uint32Array.from(columns.get("nodes.parent") || []);
  report.frameOf = Uint32Array.from(columns.get("nodes.frame") || []);
  // A damaged tree: a parent that does not come before its child counts as the root (K4).
  for (let n = 0; n < report.parents.length; n++) if (report.parents[n] >= n) report.parents[n] = 0;
  report.siteNodes = Uint32Array.from(report.sites, (site) => site.node);
  report.siteOf = new Map(report.sites.map((site, index) => [site.node, index]));
  report.windows = columns.has("edges.time_ns") ? new Windows(report, columns) : null;
}
