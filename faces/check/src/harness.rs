//! The standard harness of Rust's tests: what its main thread takes to wait for the test is in no figure.
//!
//! ```text
//!   main thread:  test::run_tests ─► recv ─┬─► the test's thread has ended before: nothing
//!                                          └─► waits: std's channel takes four blocks, of which one lives on
//! ```
//!
//! J1  Which of the two it is, the scheduler decides: 639 allocations and 920 bytes at the end in one run of a test, 635 and 864
//!     in the next. So what is below the harness's waiting is taken out of sites, sums and moments alike, and both runs have
//!     the same figures. A test's own channels are its own: they are not called by the harness's loop.
//!
//! Not here: what else the harness takes, which is the same in each run.

use skinflint_analysis::model::{Frame, InstantKind, Report};
use skinflint_view::stack::path;

/// Takes the waiting out of a report as of its end (J1); returns how many blocks that were.
pub fn leave_out_waiting(report: &mut Report) -> u64 {
    let (waiting, rest) = std::mem::take(&mut report.sites)
        .into_iter()
        .partition::<Vec<_>, _>(|site| is_waiting(&path(report, site.node)));
    report.sites = rest;
    for site in &waiting {
        for instant in &mut report.instants {
            let (blocks, requested, usable) = match instant.kind {
                InstantKind::End => (
                    site.end_blocks,
                    site.end_requested_bytes,
                    site.end_usable_bytes,
                ),
                InstantKind::HeapPeak => (
                    site.heap_peak_blocks,
                    site.heap_peak_requested_bytes,
                    site.heap_peak_usable_bytes,
                ),
                _ => continue,
            };
            instant.live_blocks = instant.live_blocks.saturating_sub(blocks);
            instant.live_requested_bytes = instant.live_requested_bytes.saturating_sub(requested);
            instant.live_usable_bytes = instant.live_usable_bytes.saturating_sub(usable);
        }
    }
    let blocks = waiting.iter().map(|site| site.allocations).sum();
    report.totals.allocations = report.totals.allocations.saturating_sub(blocks);
    blocks
}

/// Reports whether a stack, innermost first, is of std's channel below the harness's loop, and not of the test.
fn is_waiting(stack: &[&Frame]) -> bool {
    let has = |frame: &&Frame, part: &str| frame.function.contains(part);
    let Some(at) = stack.iter().position(|one| has(one, "test::run_tests")) else {
        return false;
    };
    let inner = &stack[..at];
    inner.iter().any(|one| has(one, "sync::mpmc"))
        && !inner
            .iter()
            .any(|one| has(one, "__rust_begin_short_backtrace"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Kind;
    use crate::figures::{Range, figure, tests::report};
    use skinflint_analysis::model::{Node, Site};

    /// The report of the other tests, and a stack of these functions, outermost first, with a block of 56 bytes.
    fn with(functions: &[&str]) -> Report {
        let mut report = report();
        for function in functions {
            report.frames.push(Frame {
                function: (*function).into(),
                ..Frame::default()
            });
            let parent = match report.nodes.len() {
                4 => 0,
                last => last as u32 - 1,
            };
            let frame = report.frames.len() as u32 - 1;
            report.nodes.push(Node { parent, frame });
        }
        report.sites.push(Site {
            node: report.nodes.len() as u32 - 1,
            allocations: 4,
            heap_peak_blocks: 1,
            heap_peak_usable_bytes: 56,
            heap_peak_requested_bytes: 48,
            end_blocks: 1,
            end_usable_bytes: 56,
            end_requested_bytes: 48,
            ..Site::default()
        });
        report.totals.allocations += 4;
        for at in [0, 2] {
            report.instants[at].live_blocks += 1;
            report.instants[at].live_usable_bytes += 56;
            report.instants[at].live_requested_bytes += 48;
        }
        report
    }

    #[test]
    fn a_run_that_waited_has_the_figures_of_one_that_did_not() {
        let mut waited = with(&[
            "main",
            "std::sys::backtrace::__rust_begin_short_backtrace::<fn(), ()>",
            "test::run_tests::<test::console::run_tests_console::{closure#2}>",
            "<std::sync::mpsc::Receiver<test::event::CompletedTest>>::recv",
            "<std::sync::mpmc::context::Context>::new",
        ]);
        assert_eq!(leave_out_waiting(&mut waited), 4);
        let plain = report();
        for kind in [
            Kind::Allocations,
            Kind::PeakLive,
            Kind::PeakBlocks,
            Kind::PeakSlop,
            Kind::LiveAtEnd,
            Kind::BlocksAtEnd,
            Kind::SlopAtEnd,
        ] {
            assert_eq!(figure(&waited, &kind), figure(&plain, &kind), "{kind}");
        }
        assert_eq!(waited.sites.len(), plain.sites.len());
        assert_eq!(leave_out_waiting(&mut waited), 0);
    }

    #[test]
    fn channels_of_a_test_are_its_own() {
        let own = [
            // In a thread of its own, and where the harness calls the test itself.
            vec![
                "start_thread",
                "tests::mine",
                "std::sync::mpmc::list::Channel::recv",
            ],
            vec![
                "test::run_tests",
                "test::__rust_begin_short_backtrace",
                "tests::mine",
                "std::sync::mpmc::context::Context::new",
            ],
            // What the harness takes otherwise.
            vec!["test::run_tests", "alloc::vec::Vec::push"],
        ];
        for stack in own {
            let mut report = with(&stack);
            assert_eq!(leave_out_waiting(&mut report), 0, "{stack:?}");
            assert_eq!(figure(&report, &Kind::LiveAtEnd), Ok(Range::exact(206)));
        }
    }
}
