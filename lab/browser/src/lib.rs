//! Memory tests in real browsers: many windows, many pages, and what is left when they are closed.
//!
//! ```text
//!   plan ─┐                        ┌─► drive: CDP, BiDi (node), Marionette, WebDriver, a page that opens windows
//!   pages ┼─► run: start, load … ──┤
//!         │   close, rest          └─► sampler: PSS of every process of the browser ─► samples.jsonl
//!   site ◄┘ (the pages' server)                 │
//!                        figures, zombies ◄─────┴──► result.json ─► series ─► page: picture, table, JSON
//! ```
//!
//! B1  Memory is that of the whole process tree, each page of memory once (PSS); a sum of RSS is never a headline.
//! B2  A run writes to disk what it has measured as it goes; a run that was complete is not done again.
//! B3  No program that we started is left running, and no other is ended (family.rs).
//! B4  Every output names the browser, version, driver, plan, pages and machine.
//!
//! Not here: flags and where output goes (`cli`).

pub mod corpus;
pub mod drive;
pub mod exchange;
pub mod fail_if;
pub mod family;
pub mod figures;
pub mod har;
pub mod pages;
pub mod plan;
pub mod png;
pub mod proof;
pub mod recording;
pub mod report_page;
pub mod request;
pub mod result;
pub mod run;
pub mod sampler;
pub mod series;
pub mod site;
pub mod start;
pub mod subjects;
pub mod table;
pub mod tree;
pub mod warc;
pub mod zombies;
