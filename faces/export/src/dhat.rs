//! DHAT's JSON, version 2, for `dh_view.html` of Valgrind.
//!
//! ```text
//!   site ─► PP { tb tbk: ever   tl: lifetimes   mb mbk: its largest moment
//!                gb gbk: at the largest heap    eb ebk: at the end       fs: frames, innermost first }
//! ```
//!
//! D1  Bytes are requested bytes, as in DHAT's own files; sums over PPs are the report's totals.
//! D2  No two PPs have the same frames (dh_view refuses that): stacks that differ only by address are
//!     distinguished by `#2`, `#3` … at the innermost frame. If they were merged, they would have no
//!     largest moment.
//! D3  `t-gmax` is the largest heap in bytes given, as everywhere in Skinflint.
//! D4  Accesses are not recorded (`bkacc` is false). Times are microseconds.
//!
//! The format is described in the comments of Valgrind's `dhat/dh_main.c`. Not here: the instant that a
//! report is about, which the format has no place for.

use std::io::{self, Write};

use rustc_hash::FxHashMap;
use serde::Serialize;
use skinflint_analysis::model::{Frame, InstantKind};

use crate::source::{NO_STACK, Source, name};

#[derive(Serialize)]
struct File<'a> {
    #[serde(rename = "dhatFileVersion")]
    version: u32,
    mode: &'a str,
    verb: &'a str,
    bklt: bool,
    bkacc: bool,
    tu: &'a str,
    #[serde(rename = "Mtu")]
    mtu: &'a str,
    tuth: u64,
    cmd: String,
    pid: u32,
    te: u64,
    tg: u64,
    pps: Vec<Pp>,
    ftbl: Vec<String>,
}

#[derive(Serialize)]
struct Pp {
    tb: u64,
    tbk: u64,
    tl: u64,
    mb: u64,
    mbk: u64,
    gb: u64,
    gbk: u64,
    eb: u64,
    ebk: u64,
    fs: Vec<u32>,
}

/// The frames in the file's order: entry 0 is the root.
struct Frames {
    table: Vec<String>,
    known: FxHashMap<String, u32>,
}

impl Frames {
    fn index(&mut self, text: String) -> u32 {
        if let Some(&index) = self.known.get(&text) {
            return index;
        }
        let index = self.table.len() as u32;
        self.table.push(text.clone());
        self.known.insert(text, index);
        index
    }
}

fn shown(frame: &Frame) -> String {
    let function = name(frame);
    match (&frame.file, frame.line) {
        (Some(file), Some(line)) => format!("{function} ({file}:{line})"),
        (Some(file), None) => format!("{function} ({file})"),
        (None, _) if frame.module.is_empty() => function.to_owned(),
        (None, _) => format!("{function} (in {})", frame.module),
    }
}

/// Writes the file. Memory: about 100 bytes per stack and frame.
///
/// # Errors
/// Those of `out`.
pub fn write(source: Source<'_>, out: &mut dyn Write) -> io::Result<()> {
    let mut frames = Frames {
        table: vec!["[root]".into()],
        known: FxHashMap::default(),
    };
    let mut seen: FxHashMap<Vec<u32>, u32> = FxHashMap::default();
    let mut pps = Vec::new();
    for (index, site) in source.report.sites.iter().enumerate() {
        let path = source.path(site.node);
        let texts = path.iter().map(|&frame| shown(source.frame(frame)));
        let mut fs: Vec<u32> = texts.map(|text| frames.index(text)).collect();
        if fs.is_empty() {
            fs.push(frames.index(NO_STACK.into()));
        }
        let times = seen.entry(fs.clone()).or_default();
        *times += 1;
        if *times > 1 {
            let again = format!("{} #{times}", frames.table[fs[0] as usize]);
            fs[0] = frames.index(again);
        }
        let lives = source.lives.sites.get(index).copied().unwrap_or_default();
        pps.push(Pp {
            tb: site.requested_bytes,
            tbk: site.allocations,
            tl: lives.lifetime_us,
            mb: lives.max_bytes,
            mbk: lives.max_blocks,
            gb: site.heap_peak_requested_bytes,
            gbk: site.heap_peak_blocks,
            eb: site.end_requested_bytes,
            ebk: site.end_blocks,
            fs,
        });
    }
    if pps.is_empty() {
        // The viewer has no other way to show a program that allocated nothing.
        let fs = vec![frames.index(NO_STACK.into())];
        pps.push(Pp {
            tb: 0,
            tbk: 0,
            tl: 0,
            mb: 0,
            mbk: 0,
            gb: 0,
            gbk: 0,
            eb: 0,
            ebk: 0,
            fs,
        });
    }
    let program = &source.report.program;
    let mut instants = source.report.instants.iter();
    let peak = instants.find(|instant| instant.kind == InstantKind::HeapPeak);
    let file = File {
        version: 2,
        mode: "skinflint-heap",
        verb: "Allocated",
        bklt: true,
        bkacc: false,
        tu: "µs",
        mtu: "s",
        // A block that lives less than this many microseconds is "short-lived" to the viewer.
        tuth: 500,
        cmd: program.argv.join(" "),
        pid: program.pid,
        te: program.duration_ns / 1000,
        tg: peak.map_or(0, |instant| instant.time_ns / 1000),
        pps,
        ftbl: frames.table,
    };
    serde_json::to_writer(&mut *out, &file)?;
    out.write_all(b"\n")?;
    out.flush()
}
