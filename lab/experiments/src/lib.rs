//! Experiments: claims that posts and talks made about memory, each beside what a command of this repository shows today.
//!
//! ```text
//!   table/*.toml ─► Experiment { steps, rows } ─► run ─► commands that exist already ─► take ─► figures ─► NAME.json
//!                                                                         all NAME.json ─► judge ─► table, page
//! ```
//!
//! E1  Experiments are data: the table of table/*.toml, which is the checkout's. A new one needs no code here unless its command is new.
//! E2  A figure is taken out of what its command printed or wrote; none is typed.
//! E3  What could not be run is "not run", with what to install, and never agreement.
//!
//! Not here: what is measured (the commands, `bench/`), flags (`cli`).

pub mod agreement;
pub mod checkout;
pub mod experiment;
pub mod need;
pub mod outcome;
pub mod report_page;
pub mod run;
pub mod shown;
pub mod table;
pub mod take;
