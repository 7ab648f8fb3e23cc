//! Reads a trace to the very end: every event, the report, its three views; and checks what must hold.
//!
//! ```text
//!   bytes ─► Trace ─► events ─► Analyzer ─► Report ─► text, JSON, HTML
//!              └ refused: the message          └ books add up, nothing is lost in silence
//! ```
//!
//! W1  A trace that cannot be opened is refused with a message that names the file and says what to do.
//! W2  Events that the headers announce are either delivered or in a damage that says how many. They come by ticket;
//!     two events with one ticket can only be from blocks of different traces.
//! W3  The rows of every books add up to its resident bytes; every instant is an edge of the windows, once; the JSON
//!     can be read back.
//!
//! Not here: names of functions; files.

use skinflint_analysis::model::{Frame, Report};
use skinflint_analysis::{Analyzer, Facts, Options, Symbolizer, WindowLimits};
use skinflint_trace::Trace;
use skinflint_view::{html, json, text};

/// The result of reading.
#[derive(Debug)]
pub enum Outcome {
    /// There was nothing to read; this is the message.
    Refused(String),
    /// A report was made.
    Read {
        /// Events that were delivered.
        events: u64,
        /// Events that a damage counts.
        lost: u64,
        /// The number of sentences about what is missing.
        said: usize,
    },
}

struct Nameless;

impl Symbolizer for Nameless {
    fn frames(&mut self, _pc: u64, _node: u32) -> Vec<Frame> {
        Vec::new()
    }
}

/// Reads a trace to its end and writes its report in all forms.
///
/// # Panics
/// If something does not hold that has to hold for every input (damage.F2).
pub fn whole(bytes: &[u8]) -> Outcome {
    const NAME: &str = "under-test.sft";
    let trace = match Trace::from_bytes(bytes.to_vec(), NAME) {
        Ok(trace) => trace,
        Err(refusal) => {
            let message = refusal.to_string();
            assert!(message.contains(NAME), "which file? {message}");
            return Outcome::Refused(message);
        }
    };
    let options = Options {
        windows: Some(WindowLimits::default()),
        ..Options::default()
    };
    let mut analyzer = Analyzer::new(Facts::of(&trace), options)
        .unwrap_or_else(|error| panic!("no moment was asked for: {error}"));
    let mut reader = trace.events();
    let mut events = 0;
    let mut ticket = None;
    reader.for_each(|event| {
        assert!(
            ticket <= Some(event.ticket),
            "order of tickets at {event:?}"
        );
        ticket = Some(event.ticket);
        events += 1;
        analyzer.event(event);
    });
    let lost: u64 = reader.damage().iter().map(|damage| damage.events).sum();
    assert_eq!(events + lost, trace.event_count(), "events lost in silence");
    for damage in reader.damage() {
        analyzer.damaged(damage.to_string());
    }
    let said = trace.damage.len() + reader.damage().len();
    let report = analyzer.finish(&mut Nameless);
    hold(&report);
    views(&report);
    Outcome::Read { events, lost, said }
}

fn hold(report: &Report) {
    for instant in &report.instants {
        let Some(books) = &instant.books else {
            continue;
        };
        let rows: u64 = books.rows.iter().map(|row| row.bytes).sum();
        assert_eq!(rows, books.resident_bytes, "books of {instant:?}");
    }
    let Some(windows) = &report.windows else {
        return;
    };
    let edges = windows.edges.iter();
    let mut at: Vec<u32> = edges
        .flat_map(|edge| edge.instants.iter().copied())
        .collect();
    at.sort_unstable();
    let all: Vec<u32> = (0..report.instants.len() as u32).collect();
    assert_eq!(at, all, "edges of the instants");
}

fn views(report: &Report) {
    let text = text::render(report, &text::Style::default());
    assert!(!text.is_empty());
    let json = json::render(report, false).unwrap_or_else(|error| panic!("JSON: {error}"));
    let again: Result<Report, _> = serde_json::from_str(&json);
    again.unwrap_or_else(|error| panic!("JSON that is not read again: {error}"));
    html::render(report, &html::HtmlOptions::default())
        .unwrap_or_else(|error| panic!("HTML: {error}"));
}
