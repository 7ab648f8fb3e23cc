//! The names of stacks.
//!
//! ```text
//!   stack ids ─► stacks: leaf, frames ─► frames: function, module ─► "parse_row ‹ serve ‹ main"
//! ```
//!
//! D1  A stack that no table names has its id as its name: a figure is shown, whatever is missing.
//!
//! Not here: figures.

use std::collections::{HashMap, HashSet};

use anyhow::Result;

use crate::engine::Engine;

/// Frames of stacks, with their functions.
#[derive(Default)]
pub struct Names {
    stacks: HashMap<i64, (i64, Vec<i64>)>,
    functions: HashMap<i64, String>,
}

/// The most ids in one statement.
const AT_ONCE: usize = 1_000;

impl Names {
    /// Looks up some stacks.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn of_stacks(engine: &dyn Engine, stacks: &[i64]) -> Result<Names> {
        let mut names = Names::default();
        for some in stacks.chunks(AT_ONCE) {
            // As text: the order of a list is lost where it is unnested.
            let sql = format!(
                "SELECT stack, leaf, CAST(frames AS VARCHAR) AS frames FROM stacks WHERE stack IN ({})",
                list(some)
            );
            for row in engine.answer(&sql)?.each() {
                let frames = row.text("frames")?;
                let frames = frames
                    .split(['[', ']', ',', ' '])
                    .filter_map(|id| id.parse().ok());
                names
                    .stacks
                    .insert(row.int("stack")?, (row.int("leaf")?, frames.collect()));
            }
        }
        let frames: HashSet<i64> = names
            .stacks
            .values()
            .flat_map(|(_, frames)| frames.clone())
            .collect();
        let mut frames: Vec<i64> = frames.into_iter().collect();
        frames.sort_unstable();
        names.add_functions(engine, &frames)?;
        Ok(names)
    }

    /// Looks up some frames.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn of_frames(engine: &dyn Engine, frames: &[i64]) -> Result<Names> {
        let mut names = Names::default();
        names.add_functions(engine, frames)?;
        Ok(names)
    }

    fn add_functions(&mut self, engine: &dyn Engine, frames: &[i64]) -> Result<()> {
        for some in frames.chunks(AT_ONCE) {
            let sql = format!(
                "SELECT frame, function FROM frames WHERE frame IN ({})",
                list(some)
            );
            for row in engine.answer(&sql)?.each() {
                self.functions
                    .insert(row.int("frame")?, row.text("function")?);
            }
        }
        Ok(())
    }

    /// Returns the function of a frame.
    pub fn function(&self, frame: i64) -> String {
        self.functions
            .get(&frame)
            .cloned()
            .unwrap_or_else(|| format!("frame {frame:016x}"))
    }

    /// Returns the functions of a stack, outermost first.
    pub fn whole(&self, stack: i64) -> Vec<String> {
        match self.stacks.get(&stack) {
            Some((_, frames)) => frames
                .iter()
                .rev()
                .map(|frame| self.function(*frame))
                .collect(),
            None => vec![format!("stack {stack:016x}")],
        }
    }

    /// Returns what a stack is called in a line: its naming function and some of its callers.
    pub fn short(&self, stack: i64) -> String {
        let Some((leaf, frames)) = self.stacks.get(&stack) else {
            return match stack {
                0 => "the process as a whole".to_owned(),
                _ => format!("stack {stack:016x}"),
            };
        };
        let from = frames.iter().position(|frame| frame == leaf).unwrap_or(0);
        let some = frames[from..]
            .iter()
            .take(3)
            .map(|frame| self.function(*frame));
        some.collect::<Vec<_>>().join(" < ")
    }
}

fn list(ids: &[i64]) -> String {
    let ids: Vec<String> = ids.iter().map(i64::to_string).collect();
    ids.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::{Answer, Value};

    /// An engine that knows one stack, of two frames, and one of these.
    struct Canned;

    impl Engine for Canned {
        fn answer(&self, sql: &str) -> Result<Answer> {
            let (columns, row): (&[&str], _) = match sql.contains("FROM stacks") {
                true => (
                    &["stack", "leaf", "frames"],
                    vec![
                        Value::Int(7),
                        Value::Int(-2),
                        Value::Text("[-2, 3]".to_owned()),
                    ],
                ),
                false => (
                    &["frame", "function"],
                    vec![Value::Int(-2), Value::Text("serve".to_owned())],
                ),
            };
            Ok(Answer {
                columns: columns.iter().map(|name| (*name).to_owned()).collect(),
                rows: vec![row],
            })
        }
    }

    #[test]
    fn a_stack_has_its_functions_and_what_has_no_name_has_its_id() {
        let names = Names::of_stacks(&Canned, &[7, 8]).unwrap();
        assert_eq!(names.short(7), "serve < frame 0000000000000003");
        assert_eq!(names.whole(7), ["frame 0000000000000003", "serve"]);
        assert_eq!(names.short(8), "stack 0000000000000008");
        assert_eq!(names.whole(8), ["stack 0000000000000008"]);
        assert_eq!(names.short(0), "the process as a whole");
    }
}
