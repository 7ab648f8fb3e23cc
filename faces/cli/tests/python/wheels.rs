//! Libraries of real wheels that bring allocators of their own: pyarrow, polars (tests/linked/requirements.txt).
//!
//! ```text
//!   python ─► import ─► dlopen ─► hooked before its constructors ─► buffers of sizes that nothing else has
//! ```
//!
//! W1  Python prints what it prints alone; its own count of bytes is the report's.
//! W2  A function of the library stands on the stack.
//!
//! `make frames-deps` fetches them (0.4 GB), and `make frames-test` runs these with `SKINFLINT_LONG=1`. Not here: planted libraries (cli whole/linked.rs).

use skinflint_test_support::need;

use crate::report::number;
use crate::tool::{Bench, root, run};

/// Arrow rounds 99,991 bytes up to a multiple of 64: 100,032. 60 of 100 live on: Python's own end, which drops them, is left out.
const ARROW: &str = "\
import os, sys
import pyarrow as pa
pool = getattr(pa, sys.argv[1] + '_memory_pool')()
kept = [pa.allocate_buffer(99_991, memory_pool=pool) for _ in range(100)]
del kept[60:]
print(pool.backend_name, pool.bytes_allocated(), flush=True)
os._exit(0)
";

/// 40 columns of 123,457 words, of which 25 live on.
const POLARS: &str = "\
import os
import polars as pl
kept = [pl.zeros(123_457, dtype=pl.Int64, eager=True) for _ in range(40)]
del kept[25:]
print(sum(len(one) for one in kept), flush=True)
os._exit(0)
";

const PYTHON: &str = "/usr/bin/python3";

/// Runs a script alone and recorded (W1), and checks its blocks of one size.
fn holds(
    script: &str,
    arguments: &[&str],
    says: &str,
    told: &str,
    (size, all, live): (u64, u64, u64),
) {
    if !cfg!(target_arch = "x86_64") || std::env::var_os("SKINFLINT_LONG").is_none() {
        return;
    }
    let wheels = root().join("target/wheels");
    if !need::file(&wheels.join("duckdb"), "make frames-deps") || !need::program(PYTHON) {
        return;
    }
    let bench = Bench::new();
    // Without the packages of the machine, whose numpy may be too old for them.
    let mut command = vec![PYTHON, "-S", "-B", "-c", script];
    command.extend(arguments);
    let mut alone = bench.command(command[0]);
    alone.args(&command[1..]).env("PYTHONPATH", &wheels);
    let alone = run(alone);
    assert_eq!(
        (alone.status.code(), alone.stdout.as_str()),
        (Some(0), says),
        "{alone:#?}"
    );
    let mut recorded = bench.recording(&[], &command);
    recorded.env("PYTHONPATH", &wheels);
    let done = run(recorded);
    assert_eq!(
        (done.status, done.stdout.as_str()),
        (alone.status, says),
        "{done:#?}"
    );
    let report = bench.report_at("main.sft", "end");
    report.is_complete();
    assert!(report.notes().contains(&told), "{:?}", report.notes());
    assert_eq!(report.blocks_of(size), (all, live), "blocks of {size}");
    assert_eq!(number(report.size(size), "live_blocks"), live);
    let module = told
        .split(" in ")
        .nth(1)
        .and_then(|rest| rest.split(' ').next());
    let module = module.expect("a library");
    let of_library = report.sites().iter().filter(|site| {
        let bytes = number(site, "live_requested_bytes");
        let blocks = number(site, "live_blocks");
        blocks > 0 && bytes == blocks * size
    });
    for site in of_library {
        let frames = report.frames(number(site, "node"));
        assert!(frames.iter().any(|frame| frame.1 == module), "{frames:?}");
    }
    let heaps = report.list("own_heaps");
    let of_allocators = heaps.iter().filter(|heap| heap["allocator"] == true);
    assert_eq!(of_allocators.count(), 0, "{heaps:#?}");
}

const OF_ARROW: &str = "blocks of mimalloc and jemalloc in libarrow.so.2600 are recorded, too";

#[test]
fn arrows_buffers_on_mimalloc_are_blocks() {
    holds(
        ARROW,
        &["mimalloc"],
        "mimalloc 6001920\n",
        OF_ARROW,
        (100_032, 100, 60),
    );
}

#[test]
fn arrows_buffers_on_jemalloc_are_blocks() {
    holds(
        ARROW,
        &["jemalloc"],
        "jemalloc 6001920\n",
        OF_ARROW,
        (100_032, 100, 60),
    );
}

#[test]
fn polars_columns_are_blocks() {
    let told = "blocks of jemalloc in _polars_runtime.abi3.so are recorded, too";
    holds(POLARS, &[], "3086425\n", told, (987_656, 40, 25));
}
