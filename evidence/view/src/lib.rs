//! Reports for readers: one screen of text, JSON, and one self-contained HTML file.
//!
//! ```text
//!   analysis::model::Report ──► text::render   (terminal)
//!                           ──► json::render   (tools; SCHEMA.md)
//!                           ──► html::render   (browser; the same JSON, its long tables as columns)
//!   what_if::WhatIf ──► what_if::render              analysis::processes ──► processes::render, page
//! ```
//!
//! V1  A view reads a `Report` and nothing else: what one view can show, a user of the JSON can too.
//! V2  How complete the trace is comes before any figure.
//! V3  A percentage is of a whole that is named beside it; a shortened list says what is left out.
//! V4  Text from the program (names, paths) is data: no terminal escapes, no markup.
//!
//! Not here: computing figures (analysis), reading traces (trace), flags and files (cli).

mod advice;
pub mod brief;
pub mod brief_processes;
pub mod columns;
pub mod concordance;
pub mod html;
pub mod json;
mod pinned;
pub mod plot;
pub mod processes;
pub mod reach;
pub mod sampled;
mod screen;
pub mod stack;
mod style;
pub mod text;
mod through;
pub mod units;
mod verdict;
pub mod what_if;

pub use screen::clean;
