//! Makes subjects of names: browsers, our JavaScript host, any program with a web view, each on its allocators.
//!
//! ```text
//!   browsers × allocators ─► Subject::parse, or the host that has the heap ─► on an allocator (compare::peers) ─► subjects
//! ```
//!
//! U1  Two subjects never have one label.
//! U2  By default our JavaScript host is on our allocator; another one is preloaded under the host that calls the C
//!     library's.
//!
//! Not here: starting them (start.rs).

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use skinflint_compare::peers::SearchPaths;
use skinflint_js_options::{self as js, Heap, Malloc};
use skinflint_launch::installed;

use crate::start::Subject;

/// Returns each browser, on each allocator if any are named.
///
/// # Errors
/// If a browser or an allocator is not there, cannot be combined with the other, or is named twice.
pub fn named(browsers: &[String], allocators: &[String]) -> Result<Vec<Subject>> {
    let mut subjects: Vec<Subject> = Vec::new();
    for name in browsers {
        let heap = match name.as_str() {
            "js" => Some(Heap::Skinflint),
            "js/stock" => Some(Heap::Stock),
            other if other.split('/').next() == Some("js") => {
                bail!(
                    "--browser {other}: the JavaScript host's heap is js (ours) or js/stock (Boa's own)"
                )
            }
            _ => None,
        };
        if allocators.is_empty() {
            subjects.push(match heap {
                Some(heap) => host(name, heap, None)?,
                None => Subject::parse(name)?,
            });
            continue;
        }
        for allocator in allocators {
            // U2.
            let browser = match heap {
                Some(heap) if allocator == "own" => host(name, heap, None)?,
                Some(heap) => host(name, heap, Some(Malloc::System))?,
                None => Subject::parse(name)?,
            };
            subjects.push(on(&browser, allocator)?);
        }
    }
    for (at, subject) in subjects.iter().enumerate() {
        if subjects[..at]
            .iter()
            .any(|other| other.label == subject.label)
        {
            bail!("--browser: {} is named twice", subject.label);
        }
    }
    Ok(subjects)
}

/// Returns the JavaScript host on a heap, on the allocator that it is built with or on the C library's.
fn host(name: &str, heap: Heap, malloc: Option<Malloc>) -> Result<Subject> {
    let host = js::of(heap, malloc, false)
        .and_then(installed::js_host)
        .with_context(|| format!("--browser {name}"))?;
    let heap = match heap {
        Heap::Stock => "stock",
        Heap::Skinflint => "skinflint",
    };
    let words = [
        host.display().to_string(),
        "--driven".into(),
        "--heap".into(),
        heap.into(),
    ];
    Ok(Subject::host(&name.replace('/', "-"), words.to_vec()))
}

fn on(browser: &Subject, name: &str) -> Result<Subject> {
    // WebKit's own heap over the system's malloc, which is its default.
    if name == "own" {
        return browser.on("own", None);
    }
    let found = match SearchPaths::installed().find(name) {
        Ok(found) => found,
        Err(missing) => bail!("--with {name}: {}; {}", missing.why, missing.get),
    };
    browser.on(&found.name, found.library.map(PathBuf::from))
}
