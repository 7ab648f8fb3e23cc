//! The floors: folders of crates at the root of the repository, from the ground up.
//!
//! ```text
//!   testing ─► examples ─► faces ─► lab ─► evidence ─► record ─► engines ─► ground
//!                                                    a crate depends on its own floor and on those below
//! ```
//!
//! Not here: which crate may depend on which (tidy/edges.rs).

use std::path::{Path, PathBuf};

/// The names of the floors, the lowest first.
pub const FLOORS: &[&str] = &[
    "ground", "engines", "record", "evidence", "lab", "faces", "examples", "testing",
];

/// Returns the crate of a file, and the file's path within it.
pub fn crate_of(file: &str) -> Option<(&str, &str)> {
    let (floor, rest) = file.split_once('/')?;
    FLOORS.contains(&floor).then(|| rest.split_once('/'))?
}

/// Returns the same of a file of any crate of ours, those of the fleet's workspace included.
pub fn any_crate_of(file: &str) -> Option<(&str, &str)> {
    let beside = || file.strip_prefix("fleet/")?.split_once('/');
    crate_of(file).or_else(beside)
}

/// Returns the folder of a crate, relative to the root.
pub fn folder(root: &Path, name: &str) -> Option<PathBuf> {
    let mut all = FLOORS.iter().map(|floor| Path::new(floor).join(name));
    all.find(|folder| root.join(folder).join("Cargo.toml").exists())
}

/// Returns the height of a crate's floor, from the folder of its manifest.
pub fn height(manifest: &str) -> Option<usize> {
    let floor = Path::new(manifest).parent()?.parent()?.file_name()?;
    FLOORS.iter().position(|name| floor == *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_of_the_crate_beneath_a_floor() {
        assert_eq!(crate_of("engines/gc/src/a.rs"), Some(("gc", "src/a.rs")));
        assert_eq!(crate_of("attic/gc/src/a.rs"), None);
        assert_eq!(crate_of("engines/README"), None);
        assert_eq!(crate_of("fleet/tables/src/a.rs"), None);
        let of_fleet = Some(("tables", "src/a.rs"));
        assert_eq!(any_crate_of("fleet/tables/src/a.rs"), of_fleet);
        assert_eq!(any_crate_of("fleet/Cargo.toml"), None);
    }

    #[test]
    fn heights_rise_from_the_ground() {
        assert_eq!(height("/r/ground/base/Cargo.toml"), Some(0));
        assert_eq!(height("/r/faces/cli/Cargo.toml"), Some(5));
        assert_eq!(height("/r/xtask/Cargo.toml"), None);
    }
}
