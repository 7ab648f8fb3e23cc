//! x
use skinflint_gc::policy::{Compaction, Origin, Settings, Strategy, replay::*};
use skinflint_objects as o;
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let seed: u64 = args[2].parse().unwrap();
    let shape = o::synthetic::Shape::ALL
        .into_iter()
        .find(|s| s.name() == args[1])
        .unwrap();
    let only = args
        .get(3)
        .map(|s| s.split(',').map(String::from).collect::<Vec<_>>());
    let check = args.iter().any(|a| a == "--check");
    let purge = args.iter().any(|a| a == "--purge");
    let compaction = if args.iter().any(|a| a == "--compact") {
        Compaction::Sparse
    } else {
        Compaction::Never
    };
    let law = o::Law::new(shape, seed);
    let script = Script::new(
        o::Synthetic::new(law).filter_map(|e| match e {
            o::Event::Alloc {
                id, bytes, origin, ..
            } => Some(Step::Alloc {
                id,
                bytes,
                origin: Origin::ALL[origin as usize],
            }),
            o::Event::Death { id } => Some(Step::Death { id }),
            _ => None,
        }),
        u64::MAX,
    );
    println!(
        "steps {} objects {} bytes {} MB peak live {} MB",
        script.len(),
        script.objects,
        script.bytes >> 20,
        script.peak_live_bytes >> 20
    );
    let mut base = None;
    for s in Strategy::all() {
        if let Some(only) = &only {
            if !only.iter().any(|o| o == s.name || o == "all") {
                continue;
            }
        }
        let plan = Plan {
            check,
            settings: Settings {
                purge,
                compaction,
                ..Settings::default()
            },
            ..Plan::default()
        };
        let r = match run(&script, *s, plan) {
            Ok(r) => r,
            Err(e) => {
                println!("{:24} {e}", s.name);
                continue;
            }
        };
        let b = *base.get_or_insert((r.committed.mean, r.total().as_secs_f64()));
        println!(
            "{:22} mut {:6.1} pro {:6.1} cpu {:6.1} ({:.3}) lat {:5.2} sweep {:5.1} | mean {:6.2} ({:.4}) tab {:6.2} peak {:6.2} after {:6.2} res {:6.2} need {:6.2} waste {:5.2} refills {} coll {}",
            s.name,
            r.mutator.as_secs_f64() * 1e3,
            r.promotion.as_secs_f64() * 1e3,
            r.total().as_secs_f64() * 1e3,
            r.total().as_secs_f64() / b.1,
            r.latency_max.as_secs_f64() * 1e3,
            r.sweeping.as_secs_f64() * 1e3,
            r.committed.mean / 1048576.,
            r.committed.mean / b.0,
            r.with_tables.mean / 1048576.,
            r.committed.peak as f64 / 1048576.,
            r.committed.after / 1048576.,
            r.resident.mean / 1048576.,
            r.needed.mean / 1048576.,
            r.wasted.mean / 1048576.,
            r.figures.refills_total,
            r.collections
        );
    }
}
