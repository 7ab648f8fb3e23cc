//! From a symbol to its readable name: parse, then print.
//!
//! ```text
//!   _Z… ─► Parser::encoding ─► all of it read? ─► Printer ─► name
//! ```
//!
//! Not here: names that are not C++'s (demangle.rs).

use super::parser::Parser;
use super::print::Printer;

/// Demangles a C++ symbol: with `whole` to the letter as c++filt does, else for readers: without the return type, and
/// with the standard library's names shortened. Reads at most what `text` has and writes about `room` bytes at most;
/// returns `None` if it is no such symbol.
pub(crate) fn demangle(text: &str, whole: bool, room: usize) -> Option<String> {
    let rest = text.strip_prefix("_Z")?;
    let mut parser = Parser::new(rest);
    let root = parser.encoding(true)?;
    if parser.at != rest.len() {
        return None; // itanium.I1
    }
    let mut printer = Printer::new(&parser.nodes, whole, room);
    printer.whole(root).then_some(printer.out)
}
