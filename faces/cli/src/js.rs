//! `skinflint js`: the JavaScript host, in our place.
//!
//! ```text
//!   heap, malloc, pauses ──► skinflint-js │ -system │ -stock │ -stock-malloc │ -stock-pauses ── execve, same words
//! ```
//!
//! H1  The host replaces us, so that the memory that it reports is its own alone.
//! H2  Its options are defined once ([`crate::js_args`], in both programs); our arguments are passed on as they are.
//! H3  If the host is not built, the error names the command that builds it.
//!
//! Not here: what the host does (`js/host`).

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::js_args::{Heap, JsArgs, Malloc};

/// Becomes the host. Returns only if that fails.
///
/// # Errors
/// If no host can serve the options together, or there is no host.
pub fn js(args: &JsArgs) -> Result<u8> {
    let host = host(program(args)?)?;
    let words: Vec<OsString> = std::env::args_os().collect();
    let after = words.iter().position(|word| word == "js");
    let words = after.map_or(&[][..], |at| &words[at + 1..]);
    let error = Command::new(&host).args(words).exec();
    Err(error).with_context(|| format!("{}: cannot be started", host.display()))
}

/// Returns the host that `skinflint tabs` drives.
///
/// # Errors
/// If the host is not built.
pub fn driven_host(heap: Heap, malloc: Option<Malloc>) -> Result<PathBuf> {
    host(chosen(heap, malloc, false)?)
}

/// Returns the path of a host.
///
/// # Errors
/// If it is not built (H3).
pub fn host(name: &str) -> Result<PathBuf> {
    let own = std::env::current_exe().context("the path of this program cannot be found")?;
    let own = own.canonicalize().unwrap_or(own);
    let named = std::env::var_os(skinflint_base::env::JS.name()).map(PathBuf::from);
    find(name, named.as_deref(), &own)
}

/// Returns the name of the host that has what is asked for.
fn program(args: &JsArgs) -> Result<&'static str> {
    chosen(args.heap, args.malloc, args.pauses)
}

fn chosen(heap: Heap, malloc: Option<Malloc>, pauses: bool) -> Result<&'static str> {
    Ok(match (heap, malloc, pauses) {
        (Heap::Skinflint, None | Some(Malloc::Skinflint), _) => "skinflint-js",
        (Heap::Skinflint, Some(Malloc::System), _) => "skinflint-js-system",
        (Heap::Stock, Some(Malloc::Skinflint), true) => bail!(
            "--pauses: those of the stock heap can be seen on the system's malloc only; leave out --malloc"
        ),
        (Heap::Stock, Some(Malloc::Skinflint), false) => "skinflint-js-stock-malloc",
        (Heap::Stock, None | Some(Malloc::System), true) => "skinflint-js-stock-pauses",
        (Heap::Stock, None | Some(Malloc::System), false) => "skinflint-js-stock",
    })
}

/// Finds the host: in the named folder, beside us, installed, or in the build tree (H3).
fn find(name: &str, named: Option<&Path>, own: &Path) -> Result<PathBuf> {
    let variable = skinflint_base::env::JS.name();
    if let Some(folder) = named {
        let host = folder.join(name);
        return std::fs::canonicalize(&host).with_context(|| {
            format!(
                "{}: its folder is named by {variable}, but it is not there",
                host.display()
            )
        });
    }
    let folder = own.parent().unwrap_or(Path::new("/"));
    let places = [
        folder.join(name),
        folder.join("../lib/skinflint").join(name),
        folder.join("../js/release").join(name),
    ];
    let found = places
        .iter()
        .find_map(|place| std::fs::canonicalize(place).ok());
    let workspace = if name.contains("stock") {
        "stock"
    } else {
        "skinflint"
    };
    found.with_context(|| {
        format!(
            "{name} is not built. In the source folder, run: cargo build --release --locked --manifest-path \
             js/{workspace}/Cargo.toml --target-dir target/js (`make js` builds all; it needs Rust 1.91); or name \
             the folder of a built one by {variable}"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn asked(words: &[&str]) -> Result<&'static str> {
        let words = ["js", "a.js"].iter().chain(words);
        program(&JsArgs::try_parse_from(words).expect("good options"))
    }

    #[test]
    fn each_choice_has_its_program() {
        let stock = ["--heap", "stock"];
        assert_eq!(asked(&[]).unwrap(), "skinflint-js");
        assert_eq!(asked(&["--pauses"]).unwrap(), "skinflint-js");
        assert_eq!(
            asked(&["--malloc", "system"]).unwrap(),
            "skinflint-js-system"
        );
        assert_eq!(asked(&stock).unwrap(), "skinflint-js-stock");
        assert_eq!(
            asked(&[&stock[..], &["--pauses"]].concat()).unwrap(),
            "skinflint-js-stock-pauses"
        );
        let both = [&stock[..], &["--malloc", "skinflint"]].concat();
        assert_eq!(asked(&both).unwrap(), "skinflint-js-stock-malloc");
        let error = asked(&[&both[..], &["--pauses"]].concat()).unwrap_err();
        assert!(error.to_string().contains("leave out --malloc"), "{error}");
    }

    #[test]
    fn a_host_is_found_beside_us_or_in_the_build_tree_or_the_line_that_builds_it_is_said() {
        let tree = tempfile::tempdir().expect("a folder");
        let own = tree.path().join("target/release/skinflint");
        let error = find("skinflint-js-stock", None, &own)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("--manifest-path js/stock/Cargo.toml"),
            "{error}"
        );
        let host = tree.path().join("target/js/release/skinflint-js");
        std::fs::create_dir_all(host.parent().unwrap()).unwrap();
        std::fs::create_dir_all(own.parent().unwrap()).unwrap();
        std::fs::write(&host, "").unwrap();
        assert_eq!(
            find("skinflint-js", None, &own).unwrap(),
            host.canonicalize().unwrap()
        );
        let error = find("skinflint-js", Some(tree.path()), &own)
            .unwrap_err()
            .to_string();
        assert!(error.contains("SKINFLINT_JS"), "{error}");
    }
}
