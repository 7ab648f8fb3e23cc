//! Chooses the allocators of a comparison: those that were asked for, as far as they are there, and the reference.
//!
//! ```text
//!   names, reference ─► peers::SearchPaths ─► allocators in the order of columns, missing ones with the reason
//! ```
//!
//! H1  The reference is among them, or there is no comparison.
//! H2  A name that is given twice is one column; two allocators of one name are an error.
//!
//! Not here: where allocators are looked for (peers.rs).

use anyhow::{Result, bail};

use crate::model::{Allocator, Missing};
use crate::peers::{self, SearchPaths};

/// The columns of a comparison.
pub struct Chosen {
    /// Allocators that are there, in the order of columns.
    pub allocators: Vec<Allocator>,
    /// Allocators that are not there.
    pub missing: Vec<Missing>,
    /// The name of the reference's column.
    pub reference: String,
}

/// Finds the allocators named `with` (all known ones if none are named), and the reference.
///
/// # Errors
/// If the reference is not there, or two allocators would have one name.
pub fn choose(with: &[String], wanted: &str, paths: &SearchPaths) -> Result<Chosen> {
    let mut names: Vec<String> = match with.is_empty() {
        true => peers::DEFAULT
            .iter()
            .map(|name| (*name).to_owned())
            .collect(),
        false => with.to_vec(),
    };
    if !names.iter().any(|name| name == wanted) {
        names.insert(0, wanted.to_owned());
    }
    let (mut found, mut missing): (Vec<Allocator>, Vec<Missing>) = (Vec::new(), Vec::new());
    let mut reference = wanted.to_owned();
    let mut seen: Vec<&String> = Vec::new();
    for name in &names {
        if seen.contains(&name) {
            continue;
        }
        seen.push(name);
        match paths.find(name) {
            Ok(allocator) => {
                if found.iter().any(|other| other.name == allocator.name) {
                    bail!(
                        "--with {name}: another allocator is called {} already; rename the file",
                        allocator.name
                    );
                }
                if name == wanted {
                    reference.clone_from(&allocator.name);
                }
                found.push(allocator);
            }
            Err(why) => missing.push(why),
        }
    }
    if let Some(missing) = missing.iter().find(|missing| missing.name == wanted) {
        bail!("--ref {}: {}; {}", missing.name, missing.why, missing.get);
    }
    Ok(Chosen {
        allocators: found,
        missing,
        reference,
    })
}
