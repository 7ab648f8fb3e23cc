//! A report without names: functions, files, modules, commands, arguments, paths and marks are keyed hashes; sizes stay.
//!
//! ```text
//!   Report ─► Names: name ─► kind-0123456789abcdef ─► Report of hashes and figures ─► any format
//!                      └─► map (on request): hash ─► name, in a file of the user's alone
//! ```
//!
//! A1  What is not copied here on purpose is left out: a field that is added to the report does not leak a name. Left out
//!     are findings and notes (sentences with names in them), threads, environment, allocator and kernel.
//! A2  A name has one hash in an export, whatever it is the name of, and another in the next: the key is drawn anew each
//!     time, and kept nowhere. A reader of the file cannot try names out against it.
//! A3  Two names have two hashes: should they collide, the second is hashed again.
//! A4  Figures, lines, process ids and times of the recording are kept: they are what the file is for.
//!
//! Hashes are SipHash of the standard library (`RandomState`), 64 bits, under 128 bits of random key.
//! Not here: the formats.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};

use rustc_hash::FxHashMap;
use skinflint_analysis::model::{
    BookPart, BookRow, Books, Completeness, Frame, Instant, InstantKind, Program, Report,
};
use skinflint_trace::Module;

/// The hashes of an export, by name, and the way back (A2, A3).
#[derive(Default)]
pub struct Names {
    key: RandomState,
    hashes: FxHashMap<String, String>,
    names: BTreeMap<String, String>,
}

impl Names {
    /// Returns the hash of a name; that of no name is no name.
    fn hash(&mut self, kind: &str, name: &str) -> String {
        if name.is_empty() {
            return String::new();
        }
        if let Some(known) = self.hashes.get(name) {
            return known.clone();
        }
        let mut fresh =
            (0u64..).map(|again| format!("{kind}-{:016x}", self.key.hash_one((again, name))));
        let hash = fresh
            .find(|hash| !self.names.contains_key(hash))
            .unwrap_or_default();
        self.hashes.insert(name.to_owned(), hash.clone());
        self.names.insert(hash.clone(), name.to_owned());
        hash
    }

    /// Returns the names by their hashes.
    pub fn map(&self) -> &BTreeMap<String, String> {
        &self.names
    }

    /// Returns a report of figures and hashes (A1).
    pub fn report(&mut self, report: &Report) -> Report {
        let frames = report
            .frames
            .iter()
            .map(|frame| self.frame(frame))
            .collect();
        let instants = report
            .instants
            .iter()
            .map(|instant| self.instant(instant))
            .collect();
        let whole = &report.completeness;
        Report {
            schema: report.schema,
            analysed_by: report.analysed_by.clone(),
            program: self.program(&report.program),
            completeness: Completeness {
                notes: match whole.notes.len() {
                    0 => Vec::new(),
                    count => vec![format!("notes that are left out, as names are: {count}")],
                },
                ..whole.clone()
            },
            totals: report.totals.clone(),
            instants,
            at: report.at,
            sites: report.sites.clone(),
            timeline: report.timeline.clone(),
            nodes: report.nodes.clone(),
            frames,
            plumbing: report.plumbing.clone(),
            ..Report::default()
        }
    }

    fn frame(&mut self, frame: &Frame) -> Frame {
        Frame {
            function: self.hash("function", &frame.function),
            module: self.hash("module", &frame.module),
            file: frame.file.as_deref().map(|file| self.hash("file", file)),
            line: frame.line,
            inlined: frame.inlined,
        }
    }

    fn program(&mut self, program: &Program) -> Program {
        Program {
            name: self.hash("program", &program.name),
            pid: program.pid,
            argv: program
                .argv
                .iter()
                .map(|word| self.hash("argument", word))
                .collect(),
            exe: self.hash("module", &program.exe),
            cwd: self.hash("folder", &program.cwd),
            started_unix_ns: program.started_unix_ns,
            duration_ns: program.duration_ns,
            ended: program.ended.clone(),
            cpu_ns: program.cpu_ns,
            max_rss_bytes: program.max_rss_bytes,
            read_bytes: program.read_bytes,
            written_bytes: program.written_bytes,
            recorder_bytes: program.recorder_bytes,
            trace_bytes: program.trace_bytes,
            ..Program::default()
        }
    }

    fn instant(&mut self, instant: &Instant) -> Instant {
        Instant {
            // The labels of all other kinds are ours.
            label: match instant.kind {
                InstantKind::Mark => self.hash("mark", &instant.label),
                _ => instant.label.clone(),
            },
            books: instant.books.as_ref().map(|books| self.books(books)),
            fragments: None,
            ..instant.clone()
        }
    }

    fn books(&mut self, books: &Books) -> Books {
        let mut rows = |rows: &[BookRow]| rows.iter().map(|row| self.row(row)).collect();
        Books {
            rows: rows(&books.rows),
            beside: rows(&books.beside),
            notes: Vec::new(),
            ..books.clone()
        }
    }

    /// Returns a row; its id and label are ours, its parts are not, but for the last, which is the rest.
    fn row(&mut self, row: &BookRow) -> BookRow {
        let part = |part: &BookPart| BookPart {
            name: match part.name.as_str() {
                "others" => "others".into(),
                name => self.hash("part", name),
            },
            ..part.clone()
        };
        BookRow {
            id: row.id.clone(),
            label: row.label.clone(),
            bytes: row.bytes,
            meaning: String::new(),
            parts: row.parts.iter().map(part).collect(),
        }
    }

    /// Returns the objects that were loaded, by hashes, the executable first: addresses stay, build ids do not, since
    /// they tell which build it was to anyone that has it.
    pub fn modules(&mut self, exe: &str, modules: &[Module]) -> Vec<Module> {
        let one = |module: &Module| Module {
            // As frames name it: by its file's name.
            path: self.hash("module", module.path.rsplit('/').next().unwrap_or_default()),
            build_id: String::new(),
            ..module.clone()
        };
        let (first, others): (Vec<&Module>, Vec<&Module>) =
            modules.iter().partition(|module| module.path == exe);
        first.into_iter().chain(others).map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_hash_in_an_export_and_another_in_the_next() {
        let (mut one, mut other) = (Names::default(), Names::default());
        let hash = one.hash("function", "load_customers");
        assert_eq!(one.hash("function", "load_customers"), hash);
        assert_ne!(other.hash("function", "load_customers"), hash);
        assert_ne!(one.hash("function", "load_customer"), hash);
        assert_eq!(
            (hash.len(), one.hash("file", "")),
            ("function-".len() + 16, String::new())
        );
        assert_eq!(
            one.map().get(&hash).map(String::as_str),
            Some("load_customers")
        );
    }

    #[test]
    fn no_text_of_the_program_is_left_and_all_figures_are() {
        let secret = || "SECRET/x".to_owned();
        let row = BookRow {
            id: "mapped-files".into(),
            label: "mapped files".into(),
            bytes: 7,
            meaning: secret(),
            parts: vec![BookPart {
                name: secret(),
                bytes: 7,
                node: None,
            }],
        };
        let report = Report {
            program: Program {
                name: secret(),
                pid: 3,
                argv: vec![secret(); 2],
                exe: secret(),
                cwd: secret(),
                allocator: secret(),
                system: secret(),
                origin: Some(secret()),
                ..Program::default()
            },
            completeness: Completeness {
                notes: vec![secret()],
                lost_events: 4,
                ..Completeness::default()
            },
            instants: vec![Instant {
                label: secret(),
                kind: InstantKind::Mark,
                live_blocks: 5,
                books: Some(Books {
                    rows: vec![row],
                    notes: vec![secret()],
                    resident_bytes: 7,
                    ..Books::default()
                }),
                ..Instant::default()
            }],
            frames: vec![Frame {
                function: secret(),
                module: secret(),
                file: Some(secret()),
                line: Some(9),
                inlined: true,
            }],
            marks: vec![skinflint_analysis::model::MarkRow {
                name: secret(),
                ..Default::default()
            }],
            ..Report::default()
        };
        let mut names = Names::default();
        let hashed = names.report(&report);
        let text = serde_json::to_string(&hashed).expect("it is written");
        assert!(!text.contains("SECRET"), "{text}");
        assert_eq!(
            (
                hashed.program.pid,
                hashed.program.argv.len(),
                hashed.completeness.lost_events
            ),
            (3, 2, 4)
        );
        let instant = &hashed.instants[0];
        assert_eq!(
            (
                instant.live_blocks,
                instant.books.as_ref().map(|books| books.rows[0].bytes)
            ),
            (5, Some(7))
        );
        assert_eq!(hashed.frames[0].line, Some(9));
    }
}
