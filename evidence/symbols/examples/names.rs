//! Prints the names of addresses of one ELF file, as a trace of it would get them, and the cost.
//!
//! ```text
//!   names FILE ADDRESS…            addresses of the file, hexadecimal
//!   names FILE --every BYTES       one address per so many bytes of the file's symbols' range
//! ```
//!
//! For looking at a single file by hand and for measuring; traces are read by `skinflint report`.

use std::time::Instant;

use skinflint_symbols::{SymbolOptions, Symbols, short_name};
use skinflint_trace::Module;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, rest @ ..] = arguments.as_slice() else {
        eprintln!("names: expected FILE ADDRESS… or FILE --every BYTES");
        std::process::exit(2);
    };
    let length = std::fs::metadata(file).map_or(0, |m| m.len());
    let module = Module {
        start: 0,
        end: u64::MAX,
        bias: 0,
        path: file.clone(),
        build_id: String::new(),
        first_node: 0,
    };
    let mut symbols = Symbols::new(&[module], SymbolOptions::default());
    let addresses: Vec<u64> = match rest {
        [flag, step] if flag == "--every" => {
            let step = step.parse().ok().filter(|&s| s > 0).unwrap_or(4096);
            (0x1000..length).step_by(step).collect()
        }
        list => list
            .iter()
            .filter_map(|a| u64::from_str_radix(a.trim_start_matches("0x"), 16).ok())
            .collect(),
    };
    let quiet = addresses.len() > 100;
    let start = Instant::now();
    let mut first = None;
    let mut frames = 0;
    for &address in &addresses {
        let found = symbols.frames(address, 0, false);
        first.get_or_insert_with(|| start.elapsed());
        frames += found.len();
        for frame in found.iter().filter(|_| !quiet) {
            let place = match (&frame.file, frame.line) {
                (Some(file), Some(line)) => format!(" at {file}:{line}"),
                _ => String::new(),
            };
            let inlined = if frame.inlined { " (inlined)" } else { "" };
            println!(
                "{address:#x} {}{place}{inlined}",
                short_name(&frame.function)
            );
        }
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let memory: Vec<&str> = status
        .lines()
        .filter(|l| l.starts_with("RssAnon") || l.starts_with("VmHWM"))
        .collect();
    eprintln!(
        "{} addresses, {frames} frames; first {:?}, all {:?}; {memory:?}",
        addresses.len(),
        first.unwrap_or_default(),
        start.elapsed()
    );
    for row in symbols.summary() {
        eprintln!("{row:?}");
    }
    for hint in symbols.hints() {
        eprintln!("{hint}");
    }
}
