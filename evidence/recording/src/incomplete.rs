//! A command's words before its figures: what is missing from the recording, and what the command leaves out.
//!
//! ```text
//!   Recording::verdict ─► one sentence each        a copy (fork) ─► what it began with
//! ```
//!
//! I1  Every command that counts says the same of the same trace.
//!
//! Not here: what can be missing (`analysis::missing`).

use skinflint_analysis::missing::Missing;
use skinflint_view::units::{bytes, plural};

use crate::opened::Recording;

impl Recording {
    /// Returns the reasons why counts may be too low, one sentence each; `acquired` is whether any block was counted.
    /// Cost: that of [`Recording::verdict`].
    pub fn incomplete(&self, acquired: bool) -> Vec<String> {
        let mut missing = Vec::new();
        if !acquired {
            missing.push(
                "nothing was recorded up to then; `skinflint report` says why that may be".into(),
            );
        }
        let all = self.verdict().missing.iter();
        let all = all.filter(|one| !matches!(one, Missing::Everything(_)));
        missing.extend(all.map(|one| format!("incomplete: {one}")));
        missing
    }

    /// Returns what a command says if it looks only at a process's own blocks and the process began with others, and if
    /// blocks are no allocator's of the kind that it compares.
    pub fn left_out(&self) -> Vec<String> {
        let inherited = self.inherited();
        let copied = (inherited.blocks > 0).then(|| {
            format!(
                "began with {} of {} of the process that it was copied from (fork): they are left out",
                plural(inherited.blocks, "block"),
                bytes(inherited.requested_bytes)
            )
        });
        let mut notes = self.trace.ending.iter().flat_map(|ending| &ending.notes);
        let objects = notes
            .any(|note| note.contains("small objects of Python are blocks of their own"))
            .then(|| {
                "small objects of Python, which malloc never sees, count as blocks of malloc here: record without \
                 --python-objects for this"
                    .to_owned()
            });
        copied.into_iter().chain(objects).collect()
    }
}
