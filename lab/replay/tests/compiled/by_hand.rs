//! Traces by hand: what is missing in them is counted, and the script is the one that was worked out.

use skinflint_compare::compile::{CompileError, LeftOut, compile};
use skinflint_replay::script::{Op, point};
use skinflint_trace::*;

use crate::machine::Read;
use crate::made::Made;

fn ops(script: &[u8]) -> Vec<Op> {
    Read::of(script).ops().map(|(_, op)| op).collect()
}

#[test]
fn a_small_program_is_what_it_was() {
    let mut made = Made::new();
    made.malloc(0, 0x1000, 24)
        .by(0, AllocFn::Calloc, 0x2000, 100)
        .free(0, 0x1000)
        .malloc(0, 0x1000, 30);
    made.realloc_begins(0, 0x2000)
        .realloc_ends(0, 0x3000, 500)
        .free(0, 0x1000);
    let (script, compiled) = made.compiled();
    let wanted = [
        Op::Malloc { slot: 0, size: 24 },
        Op::Calloc { slot: 1, size: 100 },
        Op::Free { slot: 0 },
        Op::Malloc { slot: 0, size: 30 },
        Op::Realloc { slot: 1, size: 500 },
        Op::Free { slot: 0 },
    ];
    assert_eq!(ops(&script), wanted);
    assert_eq!((compiled.ops, compiled.slots, compiled.threads), (6, 2, 1));
    assert_eq!(compiled.peak_live_bytes, 530);
    assert!(compiled.notes().is_empty(), "{:?}", compiled.notes());
    assert_eq!(script, made.compiled().0, "the same trace, the same script");
}

#[test]
fn what_is_missing_is_counted_and_said() {
    let mut made = Made::new();
    made.free(0, 0x9000); // never seen acquired
    made.realloc_begins(0, 0x8000).realloc_ends(0, 0x8100, 10); // nor this
    made.malloc(0, 0x1000, 20).malloc(0, 0x1000, 30); // its release was lost
    made.realloc_ends(0, 0x5000, 40); // its beginning was lost
    made.realloc_begins(0, 0x5000)
        .malloc(0, 0x6000, 7)
        .free(0, 0x6000); // its end was lost, and then another
    made.realloc_begins(0, 0x1000)
        .push(0, EventKind::ReallocCancel { addr: 0x1000 }); // failed
    made.malloc(0, 1 << 50, 8).malloc(0, 0, 8); // cannot be
    made.free(0, 0); // null is no block
    let (script, compiled) = made.compiled();
    let left_out = LeftOut {
        unknown_frees: 1,
        unknown_reallocs: 1,
        lost_frees: 1,
        lost_reallocs: 2,
        damaged_events: 2,
    };
    assert_eq!(compiled.left_out, left_out);
    assert_eq!(compiled.notes().len(), 5, "{:?}", compiled.notes());
    let wanted = [
        Op::Malloc { slot: 0, size: 10 },
        Op::Malloc { slot: 1, size: 20 },
        Op::Free { slot: 1 },
        Op::Malloc { slot: 1, size: 30 },
        Op::Malloc { slot: 2, size: 40 },
        Op::Malloc { slot: 3, size: 7 },
        Op::Free { slot: 3 },
        // The lost end: the block of 40 is released when the thread begins another realloc.
        Op::Free { slot: 2 },
    ];
    assert_eq!(ops(&script), wanted);
}

#[test]
fn a_trace_cut_anywhere_compiles_up_to_there() {
    let mut made = Made::new();
    for n in 0..3000 {
        made.malloc(n as u32 % 3, 0x10000 + n * 64, 50 + n);
    }
    let whole = made.bytes();
    let mut compiled_some = 0;
    for len in (100..whole.len()).step_by(whole.len() / 40) {
        let Ok(trace) = Trace::from_bytes(whole[..len].to_vec(), "cut.sft") else {
            continue;
        };
        let mut script = Vec::new();
        match compile(&trace, &mut script) {
            Ok(compiled) => {
                assert_eq!(compiled.ops, trace.event_count());
                Read::of(&script);
                compiled_some += 1;
            }
            Err(CompileError::Nothing(_)) => assert_eq!(trace.event_count(), 0),
            Err(error) => panic!("{error}"),
        }
    }
    assert!(compiled_some > 10, "{compiled_some}");
}

#[test]
fn damaged_blocks_are_left_out() {
    let mut made = Made::new();
    for n in 0..2000 {
        made.malloc(0, 0x10000 + n * 64, 50);
    }
    let mut bytes = made.bytes();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    let trace = Trace::from_bytes(bytes, "damaged.sft").expect("opens");
    let compiled = compile(&trace, &mut Vec::new()).expect("compiles");
    assert_eq!(compiled.ops, 1500);
    // What is missing is the recording's verdict, and none of the script's.
    assert_eq!(compiled.notes(), [""; 0]);
}

#[test]
fn nothing_to_replay_is_said() {
    let mut none = Made::new();
    none.free(0, 0x1000);
    let mut without_addresses = Made::new();
    for _ in 0..10 {
        without_addresses.malloc(0, 0, 10);
    }
    for (made, what) in [
        (Made::new(), "no allocation"),
        (none, "no allocation"),
        (without_addresses, "no addresses"),
    ] {
        let error = made.try_compiled().expect_err("nothing");
        assert!(error.to_string().contains(what), "{error}");
    }
}

#[test]
fn a_full_disk_is_said() {
    struct Full;
    impl std::io::Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::Error::from_raw_os_error(28))
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut made = Made::new();
    made.malloc(0, 0x1000, 24);
    let trace = Trace::from_bytes(made.bytes(), "made.sft").expect("opens");
    let error = compile(&trace, &mut Full).expect_err("full");
    assert!(error.to_string().contains("cannot be written"), "{error}");
}

#[test]
fn alignments_are_what_a_stack_s_addresses_have_in_common() {
    let mut made = Made::new();
    let aligned = |node, addr| EventKind::Alloc {
        func: AllocFn::Memalign,
        node: NodeId(node),
        addr,
        size: 100,
        usable: 100,
    };
    // 64 by chance 128; nine times 2 MiB; once 2 MiB, which is not believed beyond a page.
    made.push(0, aligned(0, 0x10080))
        .push(0, aligned(0, 0x10040));
    for n in 1..10 {
        made.push(0, aligned(1, n << 21));
    }
    made.push(0, aligned(2, 0x7f00_0000_0000));
    made.push(
        0,
        EventKind::Alloc {
            func: AllocFn::Valloc,
            node: NodeId(3),
            addr: 0x5000,
            size: 5,
            usable: 5,
        },
    );
    let log2: Vec<u32> = ops(&made.compiled().0)
        .iter()
        .filter_map(|op| {
            if let Op::Memalign { log2, .. } = op {
                Some(*log2)
            } else {
                None
            }
        })
        .collect();
    assert_eq!(log2, [6, 6, 21, 21, 21, 21, 21, 21, 21, 21, 21, 12, 12]);
}

#[test]
fn points_stand_where_they_are_due() {
    let mut made = Made::new();
    made.marks = 1;
    made.malloc(0, 0x1000, 100)
        .malloc(0, 0x2000, 900)
        .free(0, 0x1000); // peak after the 2nd
    made.push(0, EventKind::Mark { mark: 0 });
    made.free(0, 0x2000)
        .malloc(0, 0x3000, 5)
        .malloc(0, 0x4000, 500); // fewest after the 5th event
    let (script, _) = made.compiled();
    let points: Vec<(u32, u64, u64)> = Read::of(&script)
        .epochs
        .iter()
        .map(|(epoch, _)| {
            (
                epoch.flags & !point::PROGRESS,
                epoch.first_op,
                epoch.live_bytes,
            )
        })
        .collect();
    let wanted = [
        (0, 0, 0),
        (point::PEAK, 2, 1000),
        (point::MARK, 3, 900),
        (point::AFTER_FREE, 4, 0),
        (point::END, 6, 505),
    ];
    assert_eq!(points, wanted);
}
