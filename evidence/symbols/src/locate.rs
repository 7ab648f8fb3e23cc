//! Finds the files on this machine that belong to a module of a trace.
//!
//! ```text
//!   module of the trace ──► its own file       only if the build id is the trace's
//!                       ──► its debug file     DIR/.build-id/xx/yy.debug, DIR/ID/debuginfo (debuginfod),
//!                       │                      DIR/PATH(.debug), .gnu_debuglink (build id, else CRC-32)
//!                       ──► dwz's file of that .gnu_debugaltlink, build id compared
//! ```
//!
//! L1  No file is used whose build id differs from the one recorded: wrong names are worse than none.
//! L2  Order: the directories given, then the sysroot, then the machine's own `/usr/lib/debug`.
//! Not here: reading what was found (elf.rs, dwarf.rs).

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::elf::Image;

/// The folders that are searched for files of modules.
#[derive(Clone, Debug, Default)]
pub(crate) struct SearchDirs {
    pub(crate) debug_dirs: Vec<PathBuf>,
    pub(crate) sysroot: Option<PathBuf>,
}

/// The result of the search for a module's own file.
#[derive(Debug, Default)]
pub(crate) struct ModuleFile {
    pub(crate) image: Option<Arc<Image>>,
    /// Whether the file exists but is another build.
    pub(crate) changed: bool,
    /// Why the file at the recorded path cannot be used.
    pub(crate) error: Option<String>,
}

impl SearchDirs {
    /// Finds the module's own file.
    pub(crate) fn module_file(&self, path: &str, build_id: &str) -> ModuleFile {
        let mut found = ModuleFile::default();
        let path = Path::new(path.strip_suffix(" (deleted)").unwrap_or(path));
        let Some(name) = path.file_name() else {
            return found;
        };
        let mut candidates = self.under_roots(path);
        for dir in &self.debug_dirs {
            candidates.push(dir.join(relative(path)));
            candidates.push(dir.join(name));
        }
        if build_id.len() >= 4 && build_id.bytes().all(|b| b.is_ascii_hexdigit()) {
            let fetched = self.debug_dirs.iter();
            candidates.extend(fetched.map(|dir| dir.join(build_id).join("executable")));
        }
        for candidate in candidates {
            match Image::open(&candidate) {
                // A file that holds no code (a debug file found by base name) is no module file.
                Ok(image) if !image.has_code() => {}
                Ok(image) if build_id.is_empty() || image.build_id() == build_id => {
                    return ModuleFile {
                        image: Some(Arc::new(image)),
                        ..ModuleFile::default()
                    };
                }
                Ok(_) => found.changed = true,
                Err(error) => {
                    found.error.get_or_insert(error);
                }
            }
        }
        found
    }

    /// Finds the separate debug file of a module. `image` is the module's own file, if it was found.
    pub(crate) fn debug_file(
        &self,
        path: &str,
        build_id: &str,
        image: Option<&Image>,
    ) -> Option<Arc<Image>> {
        let own_id = image.map(Image::build_id).unwrap_or_default();
        let id = if build_id.is_empty() {
            &own_id
        } else {
            build_id
        };
        let path = Path::new(path.strip_suffix(" (deleted)").unwrap_or(path));
        if !id.is_empty() {
            let candidates = self.by_build_id(id).into_iter().chain(self.by_path(path));
            for candidate in candidates {
                let Ok(found) = Image::open(&candidate) else {
                    continue;
                };
                if found.build_id() == id && found.has_names() {
                    return Some(Arc::new(found));
                }
            }
        }
        self.by_debuglink(path, id, image?)
    }

    fn by_debuglink(&self, path: &Path, id: &str, image: &Image) -> Option<Arc<Image>> {
        let (link, crc) = image.debuglink()?;
        let link = link.file_name()?;
        let mut dirs: Vec<PathBuf> = Vec::new();
        for dir in [image.path().parent(), path.parent()].into_iter().flatten() {
            dirs.push(dir.to_path_buf());
            dirs.push(dir.join(".debug"));
        }
        for root in self.debug_roots() {
            if let Some(dir) = path.parent() {
                dirs.push(root.join(relative(dir)));
            }
            dirs.push(root);
        }
        dirs.iter().find_map(|dir| {
            let candidate = Image::open(&dir.join(link)).ok()?;
            let same = match (candidate.build_id(), id) {
                (found, wanted) if !found.is_empty() && !wanted.is_empty() => found == wanted,
                // Without ids the checksum decides; it reads the whole file, once.
                _ => crc32fast::hash(candidate.bytes()) == crc,
            };
            (same && candidate.has_names()).then(|| Arc::new(candidate))
        })
    }

    /// Finds the file that dwz moved common parts of `debug` to. `Err`: there is a link but no such file.
    pub(crate) fn alternate_file(&self, debug: &Image) -> Result<Option<Arc<Image>>, String> {
        let Some((link, id)) = debug.debugaltlink() else {
            return Ok(None);
        };
        let mut candidates = Vec::new();
        if link.is_absolute() {
            let below = link.strip_prefix("/usr/lib/debug").ok();
            for dir in &self.debug_dirs {
                candidates.extend(below.map(|rest| dir.join(rest)));
                candidates.push(dir.join(relative(&link)));
            }
            candidates.extend(self.under_roots(&link));
        } else if let Some(dir) = debug.path().parent() {
            candidates.push(dir.join(&link));
            // The path may be a link to the debug file: what follows is relative to its real place.
            if let Ok(real) = debug.path().canonicalize()
                && let Some(dir) = real.parent()
            {
                candidates.push(dir.join(&link));
            }
        }
        if let Some(name) = link.file_name() {
            let debug_roots = self.debug_roots();
            candidates.extend(debug_roots.iter().map(|dir| dir.join(name)));
            candidates.extend(
                debug_roots
                    .iter()
                    .map(|dir| dir.join(".dwz/x86_64-linux-gnu").join(name)),
            );
        }
        candidates.extend(self.by_build_id(&id));
        candidates
            .iter()
            .filter_map(|path| Image::open(path).ok())
            .find(|image| image.build_id() == id)
            .map(|image| Some(Arc::new(image)))
            .ok_or_else(|| {
                format!(
                    "{}: its common parts are in {} (build id {id}), which was not found; \
                     give its directory with --debug-dir",
                    debug.path().display(),
                    link.display()
                )
            })
    }

    /// Returns the candidates for a package of split DWARF.
    pub(crate) fn packages(&self, module: &str, images: &[&Image]) -> Vec<PathBuf> {
        let mut candidates = Vec::new();
        for image in images {
            candidates.push(with_suffix(image.path(), ".dwp"));
            if image.path().extension().is_some_and(|e| e == "debug") {
                candidates.push(image.path().with_extension("dwp"));
            }
        }
        let module = Path::new(module);
        if let Some(name) = module.file_name() {
            candidates.extend(
                self.debug_dirs
                    .iter()
                    .map(|dir| with_suffix(&dir.join(name), ".dwp")),
            );
        }
        candidates
    }

    /// Returns the directories in which `.debug` files are kept (L2).
    fn debug_roots(&self) -> Vec<PathBuf> {
        let mut roots = self.debug_dirs.clone();
        roots.extend(self.under_roots(Path::new("/usr/lib/debug")));
        roots
    }

    /// Returns the places of a path of the recorded machine, the one below the sysroot first.
    fn under_roots(&self, path: &Path) -> Vec<PathBuf> {
        let below = self.sysroot.as_ref().map(|root| root.join(relative(path)));
        below.into_iter().chain([path.to_path_buf()]).collect()
    }

    fn by_build_id(&self, id: &str) -> Vec<PathBuf> {
        // The id comes from a file: only hex may become part of a path.
        if id.len() < 4 || !id.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Vec::new();
        }
        let (head, tail) = id.split_at(2);
        let distribution = |dir: &PathBuf| {
            dir.join(".build-id")
                .join(head)
                .join(format!("{tail}.debug"))
        };
        // These are the names under which a debuginfod client keeps files, and a server serves them.
        let fetched = self.debug_dirs.iter().flat_map(|dir| {
            [
                dir.join(id).join("debuginfo"),
                dir.join("buildid").join(id).join("debuginfo"),
            ]
        });
        let roots = self.debug_roots();
        roots.iter().map(distribution).chain(fetched).collect()
    }

    fn by_path(&self, path: &Path) -> Vec<PathBuf> {
        let mut candidates = Vec::new();
        for dir in self.debug_roots() {
            let plain = dir.join(relative(path));
            candidates.push(with_suffix(&plain, ".debug"));
            candidates.push(plain);
            if let Some(name) = path.file_name() {
                candidates.push(with_suffix(&dir.join(name), ".debug"));
                candidates.push(dir.join(name));
            }
        }
        candidates
    }
}

fn relative(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}

/// Returns the Debian package that owns a file, from dpkg's lists; `None` if there is no dpkg.
///
/// Cost: reads the lists of installed packages (some megabytes); asked once per module without names.
pub(crate) fn debian_package(path: &str) -> Option<String> {
    // As the loader found it: "/usr/bin/../lib/inkscape/../libgio-2.0.so.0", by an $ORIGIN of the program's.
    let real = std::fs::canonicalize(path).ok();
    let path = real.as_deref().and_then(Path::to_str).unwrap_or(path);
    // Packages own files only in these places; for a locally built program nothing is read.
    if !["/usr/", "/lib", "/bin/", "/sbin/", "/opt/"]
        .iter()
        .any(|place| path.starts_with(place))
        || path.starts_with("/usr/local/")
    {
        return None;
    }
    // Debian merged /lib into /usr/lib, and its lists may use either name.
    let other = match path.strip_prefix("/usr") {
        Some(rest) => rest.to_string(),
        None => format!("/usr{path}"),
    };
    let mut names: Vec<String> = std::fs::read_dir("/var/lib/dpkg/info")
        .ok()?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.ends_with(".list"))
        .collect();
    names.sort_unstable();
    names.iter().find_map(|name| {
        let list = std::fs::read_to_string(Path::new("/var/lib/dpkg/info").join(name)).ok()?;
        let owns = list.lines().any(|line| line == path || line == other);
        let package = name.strip_suffix(".list")?;
        owns.then(|| package.split(':').next().unwrap_or(package).to_string())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A path that goes up and down names the same file, hence the same package.
    #[test]
    fn a_package_is_found_by_the_path_that_the_loader_took() {
        // No Debian, no packages.
        let Some(package) = debian_package("/lib/x86_64-linux-gnu/libc.so.6") else {
            assert!(!Path::new("/var/lib/dpkg/info/libc6:amd64.list").exists());
            return;
        };
        assert_eq!(package, "libc6");
        let around = "/usr/bin/../lib/x86_64-linux-gnu/../x86_64-linux-gnu/libc.so.6";
        assert_eq!(debian_package(around).as_deref(), Some("libc6"));
        assert_eq!(debian_package("/usr/local/lib/libc.so.6"), None);
    }
}
