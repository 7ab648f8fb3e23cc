//! The five questions on the embedded engine, before their judge.
//!
//! ```text
//!   judge/mod.rs: law ─► events ─► sums, a minute at a time ─► the same as DataFusion's answers
//! ```
//!
//! Not here: the judge (judge/mod.rs); Ballista before the same one (fleet/cluster/tests/ballista.rs).

mod judge;

#[test]
fn top_is_what_the_events_add_up_to_by_every_key() {
    judge::top_is_what_the_events_add_up_to_by_every_key(None);
}

#[test]
fn the_period_is_that_of_the_law_and_shares_are_of_all() {
    judge::the_period_is_that_of_the_law_and_shares_are_of_all(None);
}

#[test]
fn pinned_is_what_the_events_add_up_to() {
    judge::pinned_is_what_the_events_add_up_to(None);
}

#[test]
fn where_is_top_of_the_rows_for_which_the_condition_is_true() {
    judge::where_is_top_of_the_rows_for_which_the_condition_is_true(None);
}

#[test]
fn whatif_is_what_the_findings_of_the_events_promise() {
    judge::whatif_is_what_the_findings_of_the_events_promise(None);
}

#[test]
fn regressions_are_those_of_the_processes_means() {
    judge::regressions_are_those_of_the_processes_means(None);
}

#[test]
fn a_statement_may_only_read() {
    judge::a_statement_may_only_read(None);
}

#[test]
fn books_are_what_the_events_add_up_to() {
    judge::books_are_what_the_events_add_up_to(None);
}
