//! Runs scripts on Boa, one context after the other, and reports what the collector did.
//!
//! ```text
//!   boa-smoke FILE… ─► result of each ─► sums ─► pauses by step: how many, the longest, in CPU time
//! ```
//!
//! Not here: benchmarks and tabs (the host in `js/`).

use std::collections::BTreeMap;

use boa_engine::{Context, Source};
use boa_gc::skinflint;

fn main() {
    for file in std::env::args().skip(1) {
        let text = match std::fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) => {
                eprintln!("{file}: {error}");
                std::process::exit(2);
            }
        };
        let mut context = Context::default();
        match context.eval(Source::from_bytes(&text)) {
            Ok(value) => println!("{}", value.display()),
            Err(error) => println!("error: {error}"),
        }
    }
    println!("{:?}", skinflint::stats());
    let mut steps: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for event in skinflint::collections() {
        let step = format!("{:?} {:?}", event.step, event.reason);
        steps.entry(step).or_default().push(event.cpu_ns);
    }
    for (step, mut pauses) in steps {
        pauses.sort_unstable();
        let at = |share: f64| pauses[((pauses.len() - 1) as f64 * share) as usize] as f64 / 1e6;
        println!(
            "{step:28} {:6} p50 {:.3} p99 {:.3} max {:.3} ms",
            pauses.len(),
            at(0.5),
            at(0.99),
            at(1.0)
        );
    }
}
