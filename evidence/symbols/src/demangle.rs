//! Turns mangled names into readable ones.
//!
//! ```text
//!   _ZN3geo4growIiEEvPT_m ──► geo::grow<int>(int*, unsigned long) ──short──► geo::grow
//!   _RNv…, _ZN…17h0123…E  ──► alloc::raw_vec::finish_grow
//!   __mesh_MOD_refine     ──► mesh::refine
//!   main                  ──► main
//! ```
//!
//! N1  A name that cannot be demangled is returned as it is, never dropped.
//! N3  What is readable already (`ns::f<int>(…)`, from DWARF) is returned as it is.
//! N2  `short_name` never returns an empty string for a name that is not empty.
//! Not here: where names come from (elf.rs, dwarf.rs).

use crate::itanium;

/// The longest mangled name that we try: nested templates can grow exponentially when written out.
const MAX_MANGLED_BYTES: usize = 16 << 10;
/// The longest name that we return; longer ones are cut with an ellipsis.
const MAX_NAME_BYTES: usize = 8 << 10;

/// Demangles a symbol of C++, Rust (both manglings, without the hash) or Fortran (GCC's modules); C names pass
/// through.
///
/// C++ functions keep template arguments and parameters and lose the return type. Suffixes of
/// compiler clones (`.cold`, `.part.0`, `.llvm.123`) and versions (`@@GLIBC_2.2.5`) are dropped,
/// save for `@plt`.
pub fn demangle(raw: &str) -> String {
    let (name, suffix) = match raw.strip_suffix("@plt") {
        Some(name) => (name, "@plt"),
        None => (raw.split('@').next().unwrap_or(raw), ""),
    };
    let base = &name[..clone_at(name).unwrap_or(name.len())];
    let mut text = fortran(name)
        .or_else(|| demangle_base(base, name))
        .unwrap_or_else(|| base.to_string());
    if text.is_empty() {
        text = raw.to_string(); // N1
    }
    if text.len() > MAX_NAME_BYTES {
        let mut end = MAX_NAME_BYTES;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push('…');
    }
    text + suffix
}

/// Returns where the suffix of a compiler's clone begins: at the first dot of a mangled name, else where a word or
/// number of compilers follows. Other dots are the name's own (`camlList.map_270`, `main.main`), and so are those of
/// names that are readable already (N3).
fn clone_at(name: &str) -> Option<usize> {
    const CLONES: [&str; 14] = [
        "part",
        "constprop",
        "isra",
        "cold",
        "hot",
        "warm",
        "llvm",
        "lto_priv",
        "clone",
        "localalias",
        "default",
        "resolver",
        "ifunc",
        "extracted",
    ];
    let is_mangled = name.starts_with("_Z") || name.starts_with("_R");
    if !is_mangled && name.contains(['<', '(', ' ', ':']) {
        return None;
    }
    let mut dots = name.match_indices('.').map(|(at, _)| at);
    dots.find(|&at| {
        let part = name[at + 1..].split('.').next().unwrap_or("");
        let is_number = part.bytes().all(|c| c.is_ascii_digit());
        let is_clone = is_number || CLONES.contains(&part) || part.starts_with("arch_");
        at > 0 && (is_mangled || is_clone)
    })
}

/// Demangles a procedure in a module of Fortran as GCC names it: `__mesh_MOD_refine`, and `__mesh.parts_MOD_refine`
/// for one in a submodule. Names of Fortran are in lower case: `_MOD_` is none of theirs.
fn fortran(name: &str) -> Option<String> {
    let (module, procedure) = name.strip_prefix("__")?.split_once("_MOD_")?;
    let procedure = procedure.split('.').next()?;
    let is_name = |part: &str| {
        let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        part.starts_with(|c: char| c.is_ascii_lowercase()) && part.chars().all(is_part)
    };
    let all = module.split('.').all(is_name);
    let text = format!("{}::{procedure}", module.replace('.', "::"));
    (all && !procedure.is_empty()).then_some(text)
}

/// Demangles a C++ symbol to the letter as `c++filt` does, with its return type; returns anything else as it is.
pub fn demangle_whole(raw: &str) -> String {
    if raw.len() > MAX_MANGLED_BYTES {
        return raw.to_string();
    }
    itanium::demangle(raw, true, MAX_NAME_BYTES).unwrap_or_else(|| raw.to_string())
}

fn demangle_base(base: &str, whole: &str) -> Option<String> {
    if base.len() > MAX_MANGLED_BYTES {
        return None;
    }
    // Legacy Rust is valid C++ mangling: Rust first. Its own dots stand for punctuation, so it gets
    // the whole name; rustc-demangle drops `.llvm.…` itself.
    if let Ok(rust) = rustc_demangle::try_demangle(whole) {
        let text = format!("{rust:#}");
        // A dot suffix that rustc-demangle kept (`.cold.0`) is the compiler's.
        return Some(match text.find(".cold") {
            Some(at) => text[..at].to_string(),
            None => text,
        });
    }
    if !base.starts_with("_Z") {
        return None;
    }
    itanium::demangle(base, false, MAX_NAME_BYTES)
}

/// Returns a short form for terminals: no template or generic arguments, no parameters.
///
/// `std::vector<int, std::allocator<int> >::push_back(int const&)` becomes
/// `std::vector::push_back`; `<alloc::vec::Vec<T> as core::ops::Drop>::drop` becomes
/// `<alloc::vec::Vec as core::ops::Drop>::drop`. Operators and `(anonymous namespace)` are kept.
pub fn short_name(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    // Whether a name, an operator or its brackets were written last, so that a bracket opens
    // arguments.
    let mut after_name = false;
    while let Some(c) = rest.chars().next() {
        if let Some(operator) = operator_token(rest, &out) {
            out.push_str(operator);
            // A space separates `operator<<` from its arguments.
            rest = rest[operator.len()..].trim_start_matches(' ');
            after_name = true;
        } else if c == '<' && (after_name || out.ends_with("::")) {
            if out.ends_with("::") {
                out.truncate(out.len() - 2); // turbofish: `collect::<T>`
            }
            rest = skip_bracket(rest, b'<', b'>');
            after_name = true;
        } else if let Some(left) = rest.strip_prefix("(anonymous namespace)") {
            out.push_str("(anonymous namespace)");
            rest = left;
            after_name = true;
        } else if c == '(' && after_name {
            rest = skip_qualifiers(skip_bracket(rest, b'(', b')'));
        } else {
            out.push(c);
            rest = &rest[c.len_utf8()..];
            after_name = c.is_alphanumeric() || "_>)]}".contains(c);
        }
    }
    let out = out.trim();
    if out.is_empty() { name } else { out }.to_string() // N2
}

/// Returns `operator<<`, `operator()`, `operator new[]` … at the start of `rest`, if a name begins here.
fn operator_token<'a>(rest: &'a str, out: &str) -> Option<&'a str> {
    const SYMBOLS: [&str; 38] = [
        "<=>", "<<=", ">>=", "->*", "()", "[]", "->", "<<", ">>", "<=", ">=", "==", "!=", "&&",
        "||", "++", "--", "+=", "-=", "*=", "/=", "%=", "^=", "&=", "|=", "<", ">", "+", "-", "*",
        "/", "%", "^", "&", "|", "~", "!", "=",
    ];
    let after = rest.strip_prefix("operator")?;
    if out.ends_with(|c: char| c.is_alphanumeric() || c == '_') {
        return None;
    }
    let symbol = SYMBOLS.iter().find(|symbol| after.starts_with(**symbol))?;
    Some(&rest[.."operator".len() + symbol.len()])
}

/// Returns what follows the bracket that closes the one at the start; empty if none does.
fn skip_bracket(rest: &str, open: u8, close: u8) -> &str {
    let mut depth = 0usize;
    let bytes = rest.as_bytes();
    for (at, &byte) in bytes.iter().enumerate() {
        // `->` in a type, and the comparison in `operator<` inside arguments, are no brackets.
        let arrow = byte == b'>' && at > 0 && bytes[at - 1] == b'-';
        if byte == open {
            depth += 1;
        } else if byte == close && !arrow {
            depth -= 1;
            if depth == 0 {
                return &rest[at + 1..];
            }
        }
    }
    ""
}

/// Drops ` const`, ` volatile`, `&`, `&&` and an ABI tag's remains after a parameter list.
fn skip_qualifiers(mut rest: &str) -> &str {
    loop {
        let trimmed = [" const", " volatile", " &&", " &", " noexcept"]
            .iter()
            .find_map(|word| rest.strip_prefix(word));
        match trimmed {
            Some(left) => rest = left,
            None => return rest,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpp_keeps_arguments_and_loses_clone_suffixes() {
        let grow = "geo::grow<int>(int*, unsigned long)";
        for raw in [
            "_ZN3geo4growIiEEvPT_m",
            "_ZN3geo4growIiEEvPT_m.cold",
            "_ZN3geo4growIiEEvPT_m.part.0",
        ] {
            assert_eq!(demangle(raw), grow);
        }
    }

    #[test]
    fn rust_both_manglings_without_hash() {
        assert_eq!(
            demangle("_ZN5alloc7raw_vec11finish_grow17h0123456789abcdefE"),
            "alloc::raw_vec::finish_grow"
        );
        assert_eq!(
            demangle("_ZN5alloc7raw_vec11finish_grow17h0123456789abcdefE.llvm.12345"),
            "alloc::raw_vec::finish_grow"
        );
        assert_eq!(demangle("_RNvC7mycrate3foo"), "mycrate::foo");
    }

    #[test]
    fn modules_of_fortran() {
        for (symbol, name) in [
            ("__hold_MOD_fill", "hold::fill"),
            ("__hold_MOD_fill.constprop.0", "hold::fill"),
            (
                "__mesh_2d.parts_MOD_refine_all",
                "mesh_2d::parts::refine_all",
            ),
            ("__vtab_MOD___copy_node", "vtab::__copy_node"),
            ("__MOD_fill", "__MOD_fill"),
            ("__hold_MOD_", "__hold_MOD_"),
            ("__Hold_MOD_fill", "__Hold_MOD_fill"),
            ("hold_MOD_fill", "hold_MOD_fill"),
        ] {
            assert_eq!(demangle(symbol), name);
        }
    }

    /// What DWARF has without a linkage name is no symbol, and its dots are no compiler's.
    #[test]
    fn readable_names_pass_through() {
        for name in [
            "std::_Base<f(...)::<lambda()> >::_M_create<f(...)::<lambda()> >",
            "half<1.5e+0>",
            "geo::inner",
            "f(int)::{lambda(int)}::operator()",
        ] {
            assert_eq!(demangle(name), name);
        }
        for (symbol, name) in [
            ("inner.constprop.0", "inner"),
            ("inner.0", "inner"),
            ("inner.cold", "inner"),
            ("kernel.arch_x86_64_v3", "kernel"),
            ("camlList.map_270", "camlList.map_270"),
            ("main.main", "main.main"),
            ("a.b.isra.0", "a.b"),
        ] {
            assert_eq!(demangle(symbol), name);
        }
    }

    #[test]
    fn c_names_pass_through() {
        for name in [
            "main",
            "_start",
            "_Zqq",
            "__libc_malloc",
            "_IO_file_doallocate",
        ] {
            assert_eq!(demangle(name), name);
        }
        assert_eq!(demangle("malloc@@GLIBC_2.2.5"), "malloc");
        assert_eq!(demangle("malloc@plt"), "malloc@plt");
        assert_eq!(demangle("sum.constprop.0"), "sum");
        assert_eq!(demangle(".L42"), ".L42");
        assert_eq!(demangle(""), "");
        assert_eq!(demangle("@"), "@");
    }

    #[test]
    fn hostile_names_are_bounded() {
        assert_eq!(
            demangle(&"_Z".repeat(20_000)).len(),
            MAX_NAME_BYTES + "…".len()
        );
        // Substitutions that double 40 times: written out this would be a terabyte.
        let mut bomb = String::from("_Z1fI");
        for _ in 0..2_000 {
            bomb.push_str("PFvI");
        }
        assert!(demangle(&bomb).len() <= MAX_NAME_BYTES + 8);
    }

    #[test]
    fn short_names() {
        for (long, short) in [
            ("main", "main"),
            ("geo::grow<int>(int*, unsigned long)", "geo::grow"),
            (
                "std::vector<int, std::allocator<int> >::push_back(int const&)",
                "std::vector::push_back",
            ),
            (
                "(anonymous namespace)::f(int) const",
                "(anonymous namespace)::f",
            ),
            (
                "a::b(int) const::{lambda(char)#1}::operator()(char) const",
                "a::b::{lambda#1}::operator()",
            ),
            (
                "std::operator<< <char>(std::ostream&, char)",
                "std::operator<<",
            ),
            ("Foo::operator<(Foo const&) const", "Foo::operator<"),
            ("Foo::operator->() const", "Foo::operator->"),
            ("operator new(unsigned long)", "operator new"),
            ("operator new[](unsigned long)", "operator new[]"),
            ("void_operator_x<int>()", "void_operator_x"),
            (
                "<alloc::vec::Vec<T> as core::ops::Drop>::drop",
                "<alloc::vec::Vec as core::ops::Drop>::drop",
            ),
            (
                "core::iter::Iterator::collect::<alloc::vec::Vec<u8>>",
                "core::iter::Iterator::collect",
            ),
            ("f<void (*)(int) -> x>::g()", "f::g"),
            ("libfoo.so+0x1234", "libfoo.so+0x1234"),
            ("[jit] 0x7f00", "[jit] 0x7f00"),
            ("<", "<"),
            ("f<", "f"),
        ] {
            assert_eq!(short_name(long), short, "from {long}");
        }
    }
}
