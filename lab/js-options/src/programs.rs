//! The program of the JavaScript host that serves the given options.
//!
//! ```text
//!   heap, malloc, pauses ──► skinflint-js │ -system │ -stock │ -stock-malloc │ -stock-pauses
//!   engine quickjs ────────► skinflint-js-quickjs │ -quickjs-system
//! ```
//!
//! Not here: where it is, and starting it.

use anyhow::{Result, bail};

use crate::args::{Engine, Heap, JsArgs, Malloc};

/// Returns the name of the program that has what is asked for.
///
/// # Errors
/// If none can serve the options together.
pub fn program(args: &JsArgs) -> Result<&'static str> {
    match (args.engine, args.malloc) {
        (Engine::Boa, _) => of(args.heap, args.malloc, args.pauses),
        (Engine::Quickjs, _) if args.heap == Heap::Stock => {
            bail!("--heap stock: it is Boa's; leave it out with --engine quickjs")
        }
        (Engine::Quickjs, Some(Malloc::System)) => Ok("skinflint-js-quickjs-system"),
        (Engine::Quickjs, _) => Ok("skinflint-js-quickjs"),
    }
}

/// Returns the name of the program with this heap, on this allocator (its own if none is named).
///
/// # Errors
/// If there is none that sees pauses, and they are asked for.
pub fn of(heap: Heap, malloc: Option<Malloc>, pauses: bool) -> Result<&'static str> {
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

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

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
        let other = ["--engine", "quickjs"];
        assert_eq!(asked(&other).unwrap(), "skinflint-js-quickjs");
        let system = [&other[..], &["--malloc", "system"]].concat();
        assert_eq!(asked(&system).unwrap(), "skinflint-js-quickjs-system");
        let error = asked(&[&other[..], &stock[..]].concat()).unwrap_err();
        assert!(error.to_string().contains("leave it out"), "{error}");
    }
}
