//! Which engine answers: the one that a user names.
//!
//! ```text
//!   none, `embedded` ─► embedded.rs          `ballista://HOST:PORT` ─► ballista.rs, if it was built in
//! ```
//!
//! Not here: what an engine is (engine.rs).

use anyhow::{Result, bail};
use skinflint_fleet_tables::files::Root;

use crate::embedded::Embedded;
use crate::engine::Engine;

/// How an engine of several machines is named.
const BALLISTA: &str = "ballista://";

/// Opens the engine that a user names: none for the embedded one. `memory`: bytes that a question may hold in this
/// process.
///
/// # Errors
/// If there is no such engine, or a table cannot be made known to it.
pub fn open(root: &Root, named: Option<&str>, memory: usize) -> Result<Box<dyn Engine>> {
    match named {
        None | Some("embedded") => Ok(Box::new(Embedded::open(root, memory)?)),
        Some(name) => match name.strip_prefix(BALLISTA) {
            Some(address) => ballista(root, address),
            None => {
                bail!("`{name}`: no such engine; there are `embedded` and `{BALLISTA}HOST:PORT`")
            }
        },
    }
}

#[cfg(feature = "ballista")]
fn ballista(root: &Root, address: &str) -> Result<Box<dyn Engine>> {
    Ok(Box::new(crate::ballista::Ballista::open(root, address)?))
}

#[cfg(not(feature = "ballista"))]
fn ballista(_root: &Root, address: &str) -> Result<Box<dyn Engine>> {
    bail!(
        "`{BALLISTA}{address}`: this skinflint-fleet was built without Ballista; in the source folder, `make fleet-ballista` \
         builds it with Ballista"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_of(name: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::create(folder.path()).unwrap();
        let opened = open(&root, Some(name), 1 << 26);
        opened.err().map(|error| format!("{error:#}")).unwrap()
    }

    #[test]
    fn an_engine_that_is_not_there_is_an_error_that_says_which_are() {
        let error = error_of("spark");
        assert!(error.contains("`spark`") && error.contains("ballista://HOST:PORT"));
        for name in ["ballista://", "ballista://nowhere", "ballista://h:x"] {
            assert!(error_of(name).contains(name), "{name}");
        }
    }
}
