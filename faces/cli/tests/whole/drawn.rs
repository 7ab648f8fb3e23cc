//! Live blocks drawn at random from programs in C++: each frame of each stack is what addr2line gives for its
//! address, and the function that names it is the first of the program's own source.
//!
//! ```text
//!   tests/drawn ─► record ─► live blocks ─draw 200 of each program─┬─► return addresses ─┬─► our names    ─┐
//!                                                                  │                     └─► addr2line -fi ┴─ equal
//!                                                                  └─► report ─┬─► the culprit              ─┐
//!                                                                              └─► first frame in NAME.cpp   ┴─ equal
//! ```
//!
//! D1  The judge is another reader of DWARF: which functions, inlined ones included, at which lines. It gives mangled
//!     names, since ours are deliberately shorter than c++filt's; for a function without one it has only the bare
//!     name.
//! D2  All frames of the program itself are compared, with those that were inlined: names, files and lines.
//! D3  The seed is printed; SEED=… draws again what a failure drew.
//! D5  The culprit is judged by where the source lies, which the report does not look at: it goes by names.
//! D4  If addr2line names one function twice in a row, only the place is compared.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use skinflint_analysis::ledger::Ledger;
use skinflint_base::random::Random;
use skinflint_symbols::{Frame, SymbolOptions, Symbols, demangle};
use skinflint_trace::{NodeId, Trace};

use crate::report::{Report, number, text};
use crate::tool::{Bench, made, run};

/// The number of blocks drawn from each program.
const DRAWN: usize = 200;
const PROGRAMS: [&str; 5] = ["containers", "expressions", "classes", "workers", "parser"];

/// Reports whether a frame of the program is on a stack.
fn is_own(trace: &Trace, program: &Path, mut node: NodeId) -> bool {
    let mut own = trace.modules.iter();
    let own = own.find(|module| Path::new(&module.path) == program);
    let own = own.expect("the program's own module");
    while let Some((parent, pc)) = trace.node(node).filter(|_| node.0 != 0) {
        if (own.start..own.end).contains(&(pc - 1)) {
            return true;
        }
        node = parent;
    }
    false
}

/// Draws live blocks that the program made, not its libraries as they began, and returns the stack of each.
fn draw(trace: &Trace, program: &Path, dice: &mut Random) -> Vec<NodeId> {
    let mut ledger = Ledger::new(16);
    trace
        .events()
        .for_each(|event| ledger.apply(event, &mut |_, _| {}));
    let cells = ledger.cells();
    let own: Vec<bool> = cells
        .keys()
        .iter()
        .map(|key| is_own(trace, program, key.node))
        .collect();
    let live = cells.counts().zip(&own).filter(|(_, own)| **own);
    let all: u64 = live.map(|(count, _)| u64::from(count.live)).sum();
    assert!(all >= DRAWN as u64, "{all} live blocks");
    let mut drawn = Vec::new();
    for _ in 0..DRAWN {
        let mut number = dice.below(all);
        let of = cells.keys().iter().zip(cells.counts()).zip(&own);
        let mut of = of.filter(|(_, own)| **own).map(|(cell, _)| cell);
        let cell = of.find(|(_, count)| {
            let live = u64::from(count.live);
            let here = number < live;
            number = number.saturating_sub(live);
            here
        });
        drawn.push(cell.expect("within all").0.node);
    }
    drawn
}

/// The content of one frame: function, file without its folder, line.
type Said = (String, String, Option<u32>);

fn file_name(path: &str) -> String {
    let path = Path::new(path).file_name();
    path.map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

fn ours(frame: &Frame) -> Said {
    let file = frame.file.as_deref().map_or_else(String::new, file_name);
    (frame.function.clone(), file, frame.line)
}

fn same(ours: &Said, judged: &Said) -> bool {
    let name = match judged.0.starts_with("_Z") {
        true => ours.0 == demangle(&judged.0),
        false => ours.0.contains(&judged.0),
    };
    name && (&ours.1, ours.2) == (&judged.1, judged.2)
}

/// Reports whether D4 applies: at some addresses binutils 2.40 gives the function that was inlined the name of the
/// one around it, beside the line of the inlined one; then only the place is compared.
fn is_named_twice(ours: &Said, judged: &[Said]) -> bool {
    let [inner, outer, ..] = judged else {
        return false;
    };
    inner.0 == outer.0 && (&ours.1, ours.2) == (&inner.1, inner.2)
}

/// Returns what addr2line gives for addresses in a file, innermost first.
fn judged(program: &Path, addresses: &[u64]) -> BTreeMap<u64, Vec<Said>> {
    let mut all = BTreeMap::new();
    for some in addresses.chunks(500) {
        let mut command = Command::new("addr2line");
        command.args(["-a", "-f", "-i", "-e"]).arg(program);
        command.args(some.iter().map(|at| format!("{at:#x}")));
        let done = run(command);
        assert_eq!(
            done.status.code(),
            Some(0),
            "apt-get install binutils: {done:#?}"
        );
        let mut lines = done.stdout.lines().peekable();
        while let Some(line) = lines.next() {
            let at = line.strip_prefix("0x").expect("an address");
            let at = u64::from_str_radix(at, 16).expect("hex");
            let mut frames = Vec::new();
            while let Some(function) = lines.next_if(|line| !line.starts_with("0x")) {
                let place = lines.next().expect("a place");
                let place = place.split(" (discriminator").next().unwrap_or(place);
                let (file, line) = place.rsplit_once(':').expect("file:line");
                let file = if file == "??" {
                    String::new()
                } else {
                    file_name(file)
                };
                frames.push((
                    function.to_owned(),
                    file,
                    line.parse().ok().filter(|l| *l > 0),
                ));
            }
            all.insert(at, frames);
        }
    }
    all
}

/// Compares the program's own frames of the drawn stacks, and returns how many frames there were.
fn compare(trace: &Trace, program: &Path, drawn: &[NodeId]) -> usize {
    let own = trace.modules.iter();
    let mut own = own.filter(|module| Path::new(&module.path) == program);
    let module = own.next().expect("the program's own module");
    let mut symbols = Symbols::new(&trace.modules, SymbolOptions::default());
    // Collects every address of the program on a drawn stack.
    let mut found: BTreeMap<u64, Vec<Said>> = BTreeMap::new();
    for &block in drawn {
        let mut node = block;
        let mut frames = 0;
        while let Some((parent, pc)) = trace.node(node).filter(|_| node.0 != 0) {
            if (module.start..module.end).contains(&(pc - 1)) {
                let said = symbols.frames(pc, node.0, true);
                found.insert(pc - 1 - module.bias, said.iter().map(ours).collect());
                frames += 1;
            }
            node = parent;
        }
        assert!(frames > 0, "a stack without a frame of the program");
    }
    let addresses: Vec<u64> = found.keys().copied().collect();
    let judged = judged(program, &addresses);
    assert_eq!(judged.len(), found.len());
    let is_doubled = |at: &&u64| judged[*at].windows(2).any(|pair| pair[0].0 == pair[1].0);
    let doubled = found.keys().filter(is_doubled).count();
    assert!(
        doubled <= 2,
        "D4 is for addresses here and there, not for {doubled}"
    );
    for (at, said) in &found {
        let other = &judged[at];
        let all_same = said.len() == other.len()
            && said.iter().enumerate().all(|(index, frame)| {
                same(frame, &other[index]) || is_named_twice(frame, &other[index..])
            });
        assert!(
            all_same,
            "{} at {at:#x}:\n{said:#?}\n{other:#?}",
            program.display()
        );
    }
    found.values().map(Vec::len).sum()
}

/// A frame of a stack: its index in the report, its function, the name of its file.
type Placed<'a> = (u64, &'a str, String);

/// Returns the frames of a stack of the report, innermost first.
fn placed(report: &Report, node: u64) -> Vec<Placed<'_>> {
    let (nodes, frames) = (report.list("nodes"), report.list("frames"));
    let mut found = Vec::new();
    let mut at = node;
    while at != 0 {
        let index = number(&nodes[at as usize], "frame");
        let frame = &frames[index as usize];
        let file = frame["file"].as_str().map_or_else(String::new, file_name);
        found.push((index, text(frame, "function"), file));
        at = number(&nodes[at as usize], "parent");
    }
    found
}

/// Draws live blocks of the report, and checks that each is named by the first frame of the program's own source;
/// returns how many have one (D5).
fn judge_culprits(report: &Report, source: &str, dice: &mut Random) -> usize {
    let plumbing = report.list("plumbing").iter();
    let plumbing: BTreeSet<u64> = plumbing.filter_map(serde_json::Value::as_u64).collect();
    let blocks = |site: &serde_json::Value| number(site, "end_blocks");
    let all: u64 = report.sites().iter().map(blocks).sum();
    let mut judged = 0;
    for _ in 0..DRAWN {
        let mut number_of = dice.below(all);
        let site = report.sites().iter().find(|site| {
            let here = number_of < blocks(site);
            number_of = number_of.saturating_sub(blocks(site));
            here
        });
        let stack = placed(report, number(site.expect("within all"), "node"));
        let own = stack.iter().find(|(_, _, file)| file == source);
        let culprit = stack.iter().find(|(index, ..)| !plumbing.contains(index));
        if own.is_some() {
            assert_eq!(culprit, own, "of {stack:#?}");
            judged += 1;
        }
    }
    judged
}

#[test]
fn frames_of_a_thousand_live_blocks_are_those_of_addr2line() {
    let seed = std::env::var("SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or(20_261_122u64);
    println!("SEED={seed}");
    let folder = made("tests/drawn", "drawn-programs");
    let mut dice = Random::new(seed);
    for name in PROGRAMS {
        let program: PathBuf = folder.join(name).canonicalize().expect("built");
        let bench = Bench::new();
        let done = bench.record([&program]);
        assert_eq!(done.status.code(), Some(0), "{name}: {done:#?}");
        let trace = Trace::open(bench.path("main.sft")).expect("opens");
        let drawn = draw(&trace, &program, &mut dice);
        let frames = compare(&trace, &program, &drawn);
        println!("{name}: {} blocks, {frames} frames", drawn.len());
        assert!(frames > 10, "{name}: {frames} frames");
        let source = format!("{name}.cpp");
        let judged = judge_culprits(&bench.report(), &source, &mut dice);
        println!("{name}: {judged} culprits");
        assert!(judged >= DRAWN - 2, "{name}: {judged} blocks of its own");
    }
}
