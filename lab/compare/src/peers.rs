//! Finds allocators by name: where each is, which version it is, and how to get one that is missing.
//!
//! ```text
//!   name ─► built by `cargo xtask peers` (peers.json) ─► the system's library folders ─► Missing { why, get }
//!   path ─► the file
//! ```
//!
//! N1  A library built from its authors' source comes before the system's: it is newer, and the same everywhere.
//! N2  Every allocator has a version: its authors', else the package's, else a digest of the file.
//! N3  Nothing is loaded into this process. Whether a library is an allocator is read from its symbols; whether it
//!     serves is counted in a run (`probe`).
//!
//! Not here: building (bench/alloc/peers.py), starting programs (run.rs).

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::hash::{DefaultHasher, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

use object::{Object, ObjectSymbol};
use serde::Deserialize;
use skinflint_launch::{glibc as libc_of_programs, installed};

use crate::model::{Allocator, Missing};

/// The names that are tried if none are given, in the order of the columns.
pub const DEFAULT: &[&str] = &[
    "glibc",
    "skinflint",
    "jemalloc",
    "mimalloc",
    "tcmalloc",
    "snmalloc",
    "rpmalloc",
];

/// The name of the program's own allocator, whatever it is linked with: nothing is preloaded.
pub const OWN: &str = "own";

/// A name, and where it may be found.
struct Known {
    name: &'static str,
    /// Names in peers.json, the preferred one first.
    built: &'static [&'static str],
    /// Files of the system, the preferred one first.
    files: &'static [&'static str],
    /// Debian's package, if there is one.
    package: &'static str,
}

const KNOWN: &[Known] = &[
    Known {
        name: "jemalloc",
        built: &["jemalloc"],
        files: &["libjemalloc.so.2"],
        package: "libjemalloc2",
    },
    // Version 2 is the one that its authors call stable.
    Known {
        name: "mimalloc",
        built: &["mimalloc2"],
        files: &["libmimalloc.so.2", "libmimalloc.so.3"],
        package: "libmimalloc2.0",
    },
    Known {
        name: "mimalloc2",
        built: &["mimalloc2"],
        files: &["libmimalloc.so.2"],
        package: "libmimalloc2.0",
    },
    Known {
        name: "mimalloc3",
        built: &["mimalloc3"],
        files: &["libmimalloc.so.3"],
        package: "",
    },
    Known {
        name: "tcmalloc",
        built: &["tcmalloc"],
        files: &["libtcmalloc_minimal.so.4", "libtcmalloc.so.4"],
        package: "libtcmalloc-minimal4",
    },
    Known {
        name: "gperftools",
        built: &[],
        files: &["libtcmalloc_minimal.so.4", "libtcmalloc.so.4"],
        package: "libtcmalloc-minimal4",
    },
    Known {
        name: "snmalloc",
        built: &["snmalloc"],
        files: &["libsnmallocshim.so"],
        package: "",
    },
    Known {
        name: "rpmalloc",
        built: &["rpmalloc"],
        files: &["librpmallocwrap.so", "librpmalloc.so"],
        package: "",
    },
];

/// The paths that are searched for allocators.
#[derive(Clone, Debug, Default)]
pub struct SearchPaths {
    /// `libskinflint.so`, or why it is missing.
    pub skinflint: Option<PathBuf>,
    /// Lists as `cargo xtask peers` writes them; the first that exists counts.
    pub lists: Vec<PathBuf>,
    /// Folders of libraries, the preferred one first.
    pub folders: Vec<PathBuf>,
}

impl SearchPaths {
    /// Returns the paths of this machine: our own library, the lists of built peers, the system's folders.
    pub fn installed() -> SearchPaths {
        SearchPaths::of_system(installed::allocator().ok(), installed::peers())
    }

    /// Returns the system's folders, and the lists beside a program of ours or named by the environment.
    pub fn of_system(skinflint: Option<PathBuf>, lists: Vec<PathBuf>) -> SearchPaths {
        let mut folders = vec![
            PathBuf::from("/usr/local/lib"),
            PathBuf::from("/usr/lib/x86_64-linux-gnu"),
            PathBuf::from("/usr/lib64"),
            PathBuf::from("/usr/lib"),
        ];
        folders.retain(|folder| folder.is_dir());
        SearchPaths {
            skinflint,
            lists,
            folders,
        }
    }

    /// Finds one allocator.
    ///
    /// # Errors
    /// Why there is no allocator of that name or at that path, and how to get one: this makes a row, and does not end
    /// the comparison.
    pub fn find(&self, name: &str) -> Result<Allocator, Missing> {
        if name.contains('/') {
            return at_path(name);
        }
        match name {
            "glibc" => Ok(glibc()),
            OWN => Ok(own()),
            "skinflint" => self.own_library(),
            _ => match KNOWN.iter().find(|known| known.name == name) {
                Some(known) => self.known(known),
                None => Err(unknown(name)),
            },
        }
    }

    fn own_library(&self) -> Result<Allocator, Missing> {
        let missing = |why: String| Missing {
            name: "skinflint".into(),
            why,
            get: "cargo build --release -p skinflint-malloc-so, or name it by SKINFLINT_ALLOCATOR"
                .into(),
        };
        let Some(path) = &self.skinflint else {
            return Err(missing(
                "libskinflint.so is neither beside skinflint nor in ../lib/skinflint".into(),
            ));
        };
        check(path).map_err(missing)?;
        let version = format!("{} ({})", env!("CARGO_PKG_VERSION"), digest(path));
        Ok(library("skinflint", version, path, "this project"))
    }

    fn known(&self, known: &Known) -> Result<Allocator, Missing> {
        let get = match known.package {
            "" => "cargo xtask peers (in a clone of Skinflint)".to_owned(),
            package => {
                format!("apt-get install {package}, or cargo xtask peers (in a clone of Skinflint)")
            }
        };
        let missing = |why: String| Missing {
            name: known.name.into(),
            why,
            get: get.clone(),
        };
        if let Some(found) = self.built(known).map_err(missing)? {
            return Ok(found);
        }
        let mut candidates = self.folders.iter().flat_map(|folder| {
            let files = known.files.iter();
            files.map(move |file| folder.join(file))
        });
        let Some(path) = candidates.find(|path| path.exists()) else {
            return Err(missing(format!(
                "not built, and no {} in the system's library folders",
                known.files.join(" or ")
            )));
        };
        check(&path).map_err(missing)?;
        let (version, source) = packaged(&path);
        Ok(library(known.name, version, &path, &source))
    }

    /// Finds an allocator in the list of what was built; an error if the list cannot be read.
    fn built(&self, known: &Known) -> Result<Option<Allocator>, String> {
        let Some(list) = self.lists.iter().find(|list| list.exists()) else {
            return Ok(None);
        };
        let listed = read_list(list)?;
        let folder = list.parent().unwrap_or(Path::new("."));
        for wanted in known.built {
            let Some(entry) = listed.peers.iter().find(|peer| peer.name == *wanted) else {
                continue;
            };
            let path = folder.join(&entry.file);
            if path.exists() {
                check(&path)?;
                let mut found = library(known.name, entry.version.clone(), &path, &entry.source);
                found.environment = entry.environment.clone();
                return Ok(Some(found));
            }
        }
        Ok(None)
    }
}

/// The list that `cargo xtask peers` writes.
#[derive(Deserialize)]
struct List {
    peers: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    name: String,
    version: String,
    source: String,
    file: String,
    #[serde(default)]
    environment: BTreeMap<String, String>,
}

fn read_list(path: &Path) -> Result<List, String> {
    let shown = path.display();
    let text = fs::read_to_string(path).map_err(|error| format!("{shown}: {error}"))?;
    serde_json::from_str(&text).map_err(|error| {
        format!("{shown}: not a list of allocators: {error}; run cargo xtask peers again")
    })
}

fn unknown(name: &str) -> Missing {
    let mut names = vec!["glibc", OWN, "skinflint"];
    names.extend(KNOWN.iter().map(|known| known.name));
    Missing {
        name: name.into(),
        why: "no allocator of that name is known".into(),
        get: format!(
            "one of {}, or a path with a slash, as ./lib{name}.so",
            names.join(", ")
        ),
    }
}

/// Returns the C library's malloc. It is named first in `LD_PRELOAD`, so that it wins over an allocator that the
/// program is linked with (Debian's redis-server is linked with jemalloc).
fn glibc() -> Allocator {
    Allocator {
        name: "glibc".into(),
        version: libc_of_programs::version().unwrap_or_default(),
        library: Some("libc.so.6".into()),
        source: "the system's C library".into(),
        environment: BTreeMap::new(),
    }
}

fn own() -> Allocator {
    Allocator {
        name: OWN.into(),
        version: String::new(),
        library: None,
        source: "whatever the program is linked with".into(),
        environment: BTreeMap::new(),
    }
}

fn library(name: &str, version: String, path: &Path, source: &str) -> Allocator {
    Allocator {
        name: name.into(),
        version,
        library: Some(path.to_string_lossy().into_owned()),
        source: source.into(),
        environment: BTreeMap::new(),
    }
}

fn at_path(name: &str) -> Result<Allocator, Missing> {
    let missing = |why: String| Missing {
        name: name.into(),
        why,
        get: "name a 64-bit shared library that exports malloc".into(),
    };
    let path = fs::canonicalize(name).map_err(|error| missing(error.to_string()))?;
    // The path is already the name of the row.
    let prefix = format!("{}: ", path.display());
    check(&path).map_err(|why| missing(why.strip_prefix(&prefix).unwrap_or(&why).to_owned()))?;
    let file = path.file_name().map_or_else(
        || name.to_owned(),
        |file| file.to_string_lossy().into_owned(),
    );
    let (version, source) = packaged(&path);
    Ok(library(&file, version, &path, &source))
}

/// Checks that the loader can preload a library and that it exports `malloc` and `free`.
///
/// # Errors
/// The reason why it is not usable.
fn check(path: &Path) -> Result<(), String> {
    let shown = path.display().to_string();
    if shown.contains([':', ' ']) {
        return Err(format!(
            "{shown}: LD_PRELOAD cannot name a path with spaces or colons; move it"
        ));
    }
    let bytes = fs::read(path).map_err(|error| format!("{shown}: {error}"))?;
    let file =
        object::File::parse(&*bytes).map_err(|error| format!("{shown}: not a library: {error}"))?;
    if file.kind() != object::ObjectKind::Dynamic
        || file.architecture() != object::Architecture::X86_64
    {
        return Err(format!("{shown}: not a shared library for x86-64"));
    }
    for wanted in ["malloc", "free"] {
        let exported =
            |symbol: object::Symbol<'_, '_>| symbol.is_definition() && symbol.name() == Ok(wanted);
        if !file.dynamic_symbols().any(exported) {
            return Err(format!(
                "{shown}: exports no {wanted}, so it is no allocator for LD_PRELOAD"
            ));
        }
    }
    Ok(())
}

/// Returns the first eight digits of a digest of the file: they distinguish two builds, no more.
fn digest(path: &Path) -> String {
    let mut hasher = DefaultHasher::new();
    hasher.write(&fs::read(path).unwrap_or_default());
    format!("{:08x}", hasher.finish() >> 32)
}

/// Returns version and source from the package manager, else a digest.
fn packaged(path: &Path) -> (String, String) {
    let real = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let owner = ask("dpkg-query", &["-S".into(), real.clone().into()])
        .and_then(|line| Some(line.split_once(": ")?.0.to_owned()));
    if let Some(package) = owner {
        let version = ask(
            "dpkg-query",
            &["-W".into(), "-f=${Version}".into(), package.clone().into()],
        );
        if let Some(version) = version {
            let name = package.split(':').next().unwrap_or(&package).to_owned();
            return (version, format!("Debian {name}"));
        }
    }
    let format = "--queryformat=%{VERSION}-%{RELEASE}\n%{NAME}";
    if let Some(text) = ask("rpm", &["-qf".into(), format.into(), real.clone().into()])
        && let Some((version, name)) = text.split_once('\n')
    {
        return (version.into(), format!("package {name}"));
    }
    (format!("({})", digest(&real)), real.display().to_string())
}

/// Returns the stdout of a command that succeeded.
fn ask(program: &str, arguments: &[OsString]) -> Option<String> {
    let done = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8(done.stdout).ok()?;
    (done.status.success() && !text.trim().is_empty()).then(|| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(folder: &Path) -> SearchPaths {
        SearchPaths {
            skinflint: None,
            lists: vec![folder.join("peers.json")],
            folders: vec![folder.to_owned()],
        }
    }

    #[test]
    fn what_is_not_there_says_how_to_get_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let here = paths(folder.path());
        for name in DEFAULT.iter().filter(|name| **name != "glibc") {
            let missing = here.find(name).expect_err("nothing is there");
            assert_eq!(missing.name, *name);
            assert!(missing.get.contains("cargo"), "{missing:?}");
        }
        let typo = here.find("jemaloc").expect_err("a typing error");
        assert!(typo.get.contains("jemalloc, mimalloc"), "{typo:?}");
        assert!(here.find("./no/such.so").is_err());
        assert!(
            here.find("glibc")
                .is_ok_and(|found| found.version.starts_with("2."))
        );
    }

    #[test]
    fn what_is_no_allocator_is_told_apart() {
        let folder = tempfile::tempdir().expect("a folder");
        let text = folder.path().join("text.so");
        fs::write(&text, "no library").expect("written");
        let why = |path: &str| paths(folder.path()).find(path).expect_err("refused").why;
        assert!(why(&text.to_string_lossy()).contains("not a library"));
        let own = std::env::current_exe().expect("this test");
        let said = why(&own.to_string_lossy());
        assert!(said.contains("exports no malloc"), "{said}");
        let spaced = folder.path().join("a b.so");
        fs::copy(&text, &spaced).expect("copied");
        assert!(why(&spaced.to_string_lossy()).contains("spaces"));
    }

    #[test]
    fn a_damaged_list_is_an_error_and_not_an_absence() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("peers.json"), "{\"peers\": 3}").expect("written");
        let missing = paths(folder.path()).find("jemalloc").expect_err("damaged");
        assert!(missing.why.contains("not a list"), "{missing:?}");
    }
}
