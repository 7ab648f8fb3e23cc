//! Names of programs compiled here, judged by binutils and by the sources.
//!
//! ```text
//!   source ─gcc/g++/rustc─► ELF ─► Symbols ──┐
//!                            └─► nm, addr2line ┴─ equal, for every address of .text
//! ```
//!
//! Needs gcc, g++, rustc and binutils, which fail and name the package if they are missing; without dwz (Debian's package)
//! its test is skipped, and counted.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use skinflint_base::random::Random;
use skinflint_symbols::{Frame, Source, SymbolOptions, Symbols, TRUNCATED_PC, demangle};
use skinflint_test_support::need;
use skinflint_trace::Module;
use tempfile::TempDir;

/// The address at which the tests pretend that modules were loaded.
const BIAS: u64 = 0x5555_5000_0000;

const CPP: &str = r#"
#include <stdlib.h>
namespace geo {
static inline __attribute__((always_inline)) void *inner(size_t n) {
    return malloc(n); // line 5
}
template <class T> __attribute__((noinline, noclone)) T *grow(T *p, size_t n) {
    void *q = inner(n); // line 8
    free(p);
    return (T *)q;
}
}
namespace { __attribute__((noinline, noclone)) int hidden(int x) { return x * 3 + rand(); } }
extern "C" __attribute__((noinline, noclone)) int plain(int x) { return hidden(x) + 1; }
int main(int argc, char **) {
    auto lambda = [](int x) __attribute__((noinline, noclone)) { return geo::grow<int>(nullptr, x); };
    int *p = lambda(argc);
    int *q = geo::grow<int>(p, 9);
    free(q);
    return plain(argc) == -1;
}
"#;

fn run(program: &str, args: &[&str], dir: &Path) -> String {
    let output = Command::new(program)
        .args(args)
        .current_dir(dir)
        .output()
        .unwrap_or_else(|e| panic!("{program}: {e}; install it (Debian: gcc g++ binutils dwz)"));
    assert!(
        output.status.success(),
        "{program} {args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("output is UTF-8")
}

struct Built {
    dir: TempDir,
}

impl Built {
    /// Compiles `CPP` to `prog` with debug information and these flags.
    fn cpp(flags: &[&str]) -> Built {
        let dir = TempDir::new().expect("temporary directory");
        std::fs::write(dir.path().join("prog.cpp"), CPP).expect("source");
        let mut args = vec![
            "-g",
            "-O2",
            "-fPIE",
            "-pie",
            "-Wl,--build-id=sha1",
            "prog.cpp",
        ];
        args.extend(["-o", "prog"]);
        args.extend(flags);
        run("g++", &args, dir.path());
        Built { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn run(&self, program: &str, args: &[&str]) -> String {
        run(program, args, self.dir.path())
    }

    fn build_id(&self, name: &str) -> String {
        let notes = self.run("readelf", &["-n", name]);
        notes
            .lines()
            .find_map(|line| line.trim().strip_prefix("Build ID: "))
            .unwrap_or("")
            .to_string()
    }

    fn module(&self, name: &str) -> Module {
        Module {
            start: BIAS,
            end: BIAS + (64 << 20),
            bias: BIAS,
            path: self.path(name).to_str().expect("UTF-8").to_string(),
            build_id: self.build_id(name),
            first_node: 0,
        }
    }

    fn symbols(&self, name: &str, options: SymbolOptions) -> Symbols {
        Symbols::new(&[self.module(name)], options)
    }

    /// Returns the functions of the program itself by mangled name: address and size, as nm prints them.
    fn functions(&self, name: &str) -> BTreeMap<String, (u64, u64)> {
        self.run("nm", &["-S", "--defined-only", name])
            .lines()
            .filter_map(|line| {
                let mut words = line.split_whitespace();
                let address = u64::from_str_radix(words.next()?, 16).ok()?;
                let size = u64::from_str_radix(words.next()?, 16).ok()?;
                let kind = words.next()?;
                let name = words.next()?;
                matches!(kind, "t" | "T" | "w" | "W").then(|| (name.to_string(), (address, size)))
            })
            .collect()
    }

    /// Returns the address after `grow`'s call of malloc: a return address, as a recorder sees it.
    fn after_malloc(&self, name: &str) -> u64 {
        let (start, size) = self.functions(name)["_ZN3geo4growIiEEPT_S2_m"];
        let stop = format!("--stop-address={:#x}", start + size);
        let start = format!("--start-address={start:#x}");
        let code = self.run(
            "objdump",
            &["-d", "--no-show-raw-insn", &start, &stop, name],
        );
        let mut lines = code
            .lines()
            .skip_while(|l| !(l.contains("call") && l.contains("malloc")));
        lines.next().expect("grow calls malloc");
        let next = lines.next().expect("and goes on");
        u64::from_str_radix(next.trim().split(':').next().expect("address"), 16).expect("hex")
    }
}

/// Checks the stack of the program's malloc, whichever file the names came from.
fn assert_grow(frames: &[Frame], with_lines: bool) {
    let names: Vec<&str> = frames.iter().map(|f| f.function.as_str()).collect();
    if with_lines {
        // `inner` is static and has no out-of-line copy: gcc gives it no linkage name, its entry lies in `geo`.
        assert_eq!(names, ["geo::inner", "geo::grow<int>(int*, unsigned long)"]);
        let places: Vec<_> = frames.iter().map(|f| (f.line, f.inlined)).collect();
        assert_eq!(places, [(Some(5), true), (Some(8), false)]);
        assert!(
            frames
                .iter()
                .all(|f| f.file.as_deref().is_some_and(|p| p.ends_with("prog.cpp")))
        );
    } else {
        assert_eq!(names, ["geo::grow<int>(int*, unsigned long)"]);
        assert_eq!(frames[0].file, None);
        assert!(!frames[0].inlined);
    }
    assert!(frames.iter().all(|f| f.module == "prog"));
}

fn assert_source(symbols: &Symbols, source: Source) {
    let rows = symbols.summary();
    assert_eq!(rows.len(), 1);
    assert_eq!((rows[0].source, &rows[0].notes), (source, &Vec::new()));
}

fn check_grow(built: &Built, at: u64, options: SymbolOptions, source: Source) {
    let mut symbols = built.symbols("prog", options);
    let frames = symbols.frames(BIAS + at, 1, true);
    assert_grow(&frames, source == Source::Dwarf);
    assert_source(&symbols, source);
}

/// The frames of one address, innermost first: (mangled function, file name, line).
type Judged = Vec<(String, Option<String>, Option<u32>)>;

/// Returns what binutils prints for each address.
fn judge(built: &Built, name: &str, addresses: &[u64]) -> Vec<Judged> {
    let list: String = addresses.iter().map(|a| format!("{a:#x}\n")).collect();
    let at = format!("@{}", built.path("addresses").display());
    std::fs::write(built.path("addresses"), list).expect("list");
    let text = built.run("addr2line", &["-a", "-i", "-f", "-e", name, &at]);
    let mut answers: Vec<Judged> = Vec::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if line.starts_with("0x") {
            answers.push(Vec::new());
            continue;
        }
        let place = lines.next().expect("function, then place");
        let place = place.split(" (discriminator").next().expect("place");
        let (file, number) = place.rsplit_once(':').expect("FILE:LINE");
        let file = file.rsplit('/').next().filter(|f| !f.starts_with('?'));
        let answer = answers.last_mut().expect("an address comes first");
        answer.push((
            line.to_string(),
            file.map(str::to_string),
            number.parse().ok().filter(|&n| n != 0),
        ));
    }
    assert_eq!(answers.len(), addresses.len());
    answers
}

#[test]
fn every_address_agrees_with_binutils() {
    let built = Built::cpp(&[]);
    let ranges: Vec<(u64, u64)> = built
        .functions("prog")
        .into_iter()
        .filter(|(name, _)| name.starts_with("_Z") || name == "main" || name == "plain")
        .map(|(_, range)| range)
        .collect();
    assert!(
        ranges.len() >= 5,
        "grow, hidden, lambda, plain, main: {ranges:?}"
    );
    let addresses: Vec<u64> = ranges
        .iter()
        .flat_map(|&(start, size)| start..start + size)
        .collect();
    let mut symbols = built.symbols("prog", SymbolOptions::default());
    for (&address, judged) in addresses.iter().zip(judge(&built, "prog", &addresses)) {
        let ours: Judged = symbols
            .frames(BIAS + address, 1, false)
            .into_iter()
            .map(|f| {
                let file = f
                    .file
                    .and_then(|p| p.rsplit('/').next().map(str::to_string));
                (f.function, file, f.line)
            })
            .collect();
        let mut theirs: Judged = judged
            .into_iter()
            .map(|(name, file, line)| (demangle(&name), file, line))
            .collect();
        // If the innermost frame is inlined and has no linkage name, binutils puts the symbol's name there, the
        // outermost function's, or the bare one. The sources have `inner` in `geo` at line 5.
        if theirs.len() == 2 && theirs[0].2 == Some(5) {
            theirs[0].0 = "geo::inner".to_string();
        }
        assert_eq!(ours, theirs, "at {address:#x}");
    }
    assert_eq!(symbols.summary()[0].unnamed, 0);
}

#[test]
fn c_cpp_and_rust_names_equal_cxxfilt() {
    let built = Built::cpp(&[]);
    for (mangled, (start, _)) in built.functions("prog") {
        if mangled.contains('.') {
            continue; // clones: c++filt adds a note that we drop
        }
        let mut symbols = built.symbols("prog", SymbolOptions::default());
        let frames = symbols.frames(BIAS + start, 1, false);
        let mut wanted = built.run("c++filt", &[&mangled]).trim().to_string();
        // Template functions carry their return type in the symbol; we drop it.
        wanted = wanted.replacen("int* geo::grow", "geo::grow", 1);
        let last = frames.last().expect("S2");
        assert_eq!(last.function, wanted, "{mangled}");
    }
}

#[test]
fn rust_program() {
    let mut dir = TempDir::new().expect("temporary directory");
    let source = "#[inline(never)] pub fn fill(n: usize) -> Vec<u64> { vec![std::hint::black_box(7); n] }\n\
                  fn main() { println!(\"{}\", fill(std::env::args().count()).len()); }\n";
    std::fs::write(dir.path().join("prog.rs"), source).expect("source");
    for mangling in ["legacy", "v0"] {
        let mut all = vec!["-g", "-O", "--edition=2021", "-Clink-arg=-Wl,--build-id"];
        // Stable rustc mangles the old way by default and takes only `v0` as an option.
        if mangling == "v0" {
            all.push("-Csymbol-mangling-version=v0");
        }
        all.extend(["-o", "prog", "prog.rs"]);
        run("rustc", &all, dir.path());
        let built = Built { dir };
        let functions = built.functions("prog");
        let (start, size) = *functions
            .iter()
            .find(|(name, _)| name.contains("4prog4fill"))
            .map(|(_, range)| range)
            .expect("fill is in the symbol table");
        let mut symbols = built.symbols("prog", SymbolOptions::default());
        for address in start..start + size {
            let frames = symbols.frames(BIAS + address, 1, false);
            let last = frames.last().expect("S2");
            assert_eq!(last.function, "prog::fill", "{mangling} at {address:#x}");
            assert!(
                frames.iter().all(|f| !f.function.contains("17h")),
                "hash left: {frames:?}"
            );
        }
        assert_source(&symbols, Source::Dwarf);
        dir = built.dir;
    }
}

#[test]
fn stripped_with_debuglink() {
    let built = Built::cpp(&[]);
    let at = built.after_malloc("prog");
    built.run("objcopy", &["--only-keep-debug", "prog", "prog.debug"]);
    built.run("strip", &["prog"]);
    // No link yet: exported functions only, and `grow` is exported by no table.
    let mut symbols = built.symbols("prog", SymbolOptions::default());
    let frames = symbols.frames(BIAS + at, 1, true);
    // objcopy left `prog.debug` beside it, but nothing points there.
    assert_eq!(frames[0].function, format!("prog+{:#x}", at - 1));
    assert_eq!(symbols.summary()[0].unnamed, 1);
    assert!(symbols.hints().is_empty(), "one address is worth no hint");
    for more in 1..5 {
        symbols.frames(BIAS + at + more, 1, true);
    }
    assert_eq!(symbols.summary()[0].unnamed, 5);
    let hint = symbols.hints().concat();
    assert!(hint.contains("--debug-dir"), "{hint}");
    built.run("objcopy", &["--add-gnu-debuglink=prog.debug", "prog"]);
    check_grow(&built, at, SymbolOptions::default(), Source::Dwarf);
    std::fs::create_dir(built.path(".debug")).expect("directory");
    std::fs::rename(built.path("prog.debug"), built.path(".debug/prog.debug")).expect("move");
    check_grow(&built, at, SymbolOptions::default(), Source::Dwarf);
}

#[test]
fn debuglink_without_build_id_is_checked_by_its_crc() {
    let built = Built::cpp(&["-Wl,--build-id=none"]);
    let at = built.after_malloc("prog");
    assert_eq!(built.build_id("prog"), "");
    built.run("objcopy", &["--only-keep-debug", "prog", "prog.debug"]);
    built.run("strip", &["prog"]);
    built.run("objcopy", &["--add-gnu-debuglink=prog.debug", "prog"]);
    check_grow(&built, at, SymbolOptions::default(), Source::Dwarf);
    // Another build's debug file under the same name: the checksum differs, so it is not used.
    let other = Built::cpp(&["-Wl,--build-id=none", "-O1"]);
    other.run("objcopy", &["--only-keep-debug", "prog", "prog.debug"]);
    std::fs::copy(other.path("prog.debug"), built.path("prog.debug")).expect("copy");
    let mut symbols = built.symbols("prog", SymbolOptions::default());
    let frames = symbols.frames(BIAS + at, 1, true);
    assert_eq!(frames[0].function, format!("prog+{:#x}", at - 1));
}

#[test]
fn debug_directories_by_build_id_and_by_path() {
    let built = Built::cpp(&[]);
    let at = built.after_malloc("prog");
    built.run("objcopy", &["--only-keep-debug", "prog", "kept"]);
    built.run("strip", &["prog"]);
    let id = built.build_id("prog");
    let absolute = built.path("prog");
    let below = absolute.to_str().expect("UTF-8").trim_start_matches('/');
    let layouts = [
        format!("d0/.build-id/{}/{}.debug", &id[..2], &id[2..]),
        format!("d1/{below}.debug"),
        format!("d2/{below}"),
        "d3/prog.debug".to_string(),
        format!("d4/{id}/debuginfo"),
        format!("d5/buildid/{id}/debuginfo"),
    ];
    for (index, layout) in layouts.iter().enumerate() {
        let to = built.path(layout);
        std::fs::create_dir_all(to.parent().expect("parent")).expect("directory");
        std::fs::copy(built.path("kept"), &to).expect("copy");
        let options = SymbolOptions {
            debug_dirs: vec![built.path("nowhere"), built.path(&format!("d{index}"))],
            sysroot: None,
            ..SymbolOptions::default()
        };
        check_grow(&built, at, options.clone(), Source::Dwarf);
        // The debug file is found elsewhere: the program is gone, only the debug file is here.
        std::fs::rename(built.path("prog"), built.path("gone")).expect("move");
        let mut module = built.module("gone");
        module.path = absolute.to_str().expect("UTF-8").to_string();
        let mut symbols = Symbols::new(&[module], options);
        assert_grow(&symbols.frames(BIAS + at, 1, true), true);
        std::fs::rename(built.path("gone"), built.path("prog")).expect("move back");
    }
}

#[test]
fn sysroot_comes_before_this_machine() {
    let built = Built::cpp(&[]);
    let at = built.after_malloc("prog");
    let mut module = built.module("prog");
    module.path = "/opt/elsewhere/prog".to_string();
    std::fs::create_dir_all(built.path("root/opt/elsewhere")).expect("directory");
    std::fs::rename(built.path("prog"), built.path("root/opt/elsewhere/prog")).expect("move");
    let options = SymbolOptions {
        debug_dirs: Vec::new(),
        sysroot: Some(built.path("root")),
        ..SymbolOptions::default()
    };
    assert_grow(
        &Symbols::new(&[module], options).frames(BIAS + at, 1, true),
        true,
    );
}

#[test]
fn dwz_common_file() {
    if !need::program("dwz") {
        return;
    }
    let built = Built::cpp(&[]);
    let at = built.after_malloc("prog");
    // dwz moves only what two files share.
    built.run("cp", &["prog", "twin"]);
    built.run("objcopy", &["--only-keep-debug", "prog", "prog.debug"]);
    built.run("objcopy", &["--only-keep-debug", "twin", "twin.debug"]);
    built.run("strip", &["prog"]);
    built.run("objcopy", &["--add-gnu-debuglink=prog.debug", "prog"]);
    let words = "-m common.dwz -M common.dwz prog.debug twin.debug";
    built.run("dwz", &words.split(' ').collect::<Vec<_>>());
    let sections = built.run("readelf", &["-S", "-W", "prog.debug"]);
    assert!(
        sections.contains(".gnu_debugaltlink"),
        "dwz shared nothing: {sections}"
    );
    check_grow(&built, at, SymbolOptions::default(), Source::Dwarf);
    // Without it the frame still has a name, and the missing file is reported.
    std::fs::remove_file(built.path("common.dwz")).expect("remove");
    let mut symbols = built.symbols("prog", SymbolOptions::default());
    let frames = symbols.frames(BIAS + at, 1, true);
    assert_eq!(
        frames.last().expect("S2").function,
        "geo::grow<int>(int*, unsigned long)"
    );
    assert!(symbols.summary()[0].notes[0].contains("common.dwz"));
}

#[test]
fn compressed_sections() {
    let built = Built::cpp(&["-gz=zlib"]);
    let sections = built.run("readelf", &["-S", "-W", "prog"]);
    let info = sections
        .lines()
        .find(|l| l.contains(".debug_info"))
        .expect(".debug_info");
    assert!(info.contains(" C "), "not compressed: {info}");
    check_grow(
        &built,
        built.after_malloc("prog"),
        SymbolOptions::default(),
        Source::Dwarf,
    );
}

fn move_dwo(built: &Built) {
    std::fs::create_dir_all(built.path("away")).expect("directory");
    let mut moved = 0;
    for entry in std::fs::read_dir(built.dir.path()).expect("list").flatten() {
        if entry.path().extension().is_some_and(|e| e == "dwo") {
            let to = built.path("away").join(entry.file_name());
            std::fs::rename(entry.path(), to).expect("move");
            moved += 1;
        }
    }
    assert_eq!(moved, 1, "gcc wrote one .dwo");
}

#[test]
fn split_dwarf_in_loose_files() {
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        let built = Built::cpp(&["-gsplit-dwarf", version]);
        let at = built.after_malloc("prog");
        check_grow(&built, at, SymbolOptions::default(), Source::Dwarf);
        move_dwo(&built);
        let options = SymbolOptions {
            debug_dirs: vec![built.path("away")],
            sysroot: None,
            ..SymbolOptions::default()
        };
        check_grow(&built, at, options, Source::Dwarf);
        // With neither, the function's name is the symbol table's, and the note names the file.
        let mut symbols = built.symbols("prog", SymbolOptions::default());
        let frames = symbols.frames(BIAS + at, 1, true);
        let last = frames.last().expect("S2");
        assert_eq!(last.function, "geo::grow<int>(int*, unsigned long)");
        assert!(
            symbols.summary()[0].notes[0].contains(".dwo"),
            "{:?}",
            symbols.summary()
        );
    }
}

/// DWARF 4 is used: Debian 12's dwp cannot pack version 5.
#[test]
fn split_dwarf_in_a_package() {
    let built = Built::cpp(&["-gsplit-dwarf", "-gdwarf-4"]);
    let at = built.after_malloc("prog");
    built.run("dwp", &["-e", "prog", "-o", "prog.dwp"]);
    move_dwo(&built);
    check_grow(&built, at, SymbolOptions::default(), Source::Dwarf);
    // The package lies beside the program even if the skeleton is a separate file.
    built.run("objcopy", &["--only-keep-debug", "prog", "prog.debug"]);
    built.run("strip", &["prog"]);
    built.run("objcopy", &["--add-gnu-debuglink=prog.debug", "prog"]);
    check_grow(&built, at, SymbolOptions::default(), Source::Dwarf);
}

#[test]
fn symbol_tables_and_the_gaps_between_them() {
    let built = Built::cpp(&["-g0"]);
    check_grow(
        &built,
        built.after_malloc("prog"),
        SymbolOptions::default(),
        Source::Symtab,
    );
    let functions = built.functions("prog");
    let mut symbols = built.symbols("prog", SymbolOptions::default());
    for (mangled, &(start, size)) in &functions {
        for (address, inside) in [
            (start, true),
            (start + size - 1, true),
            (start + size, false),
        ] {
            let frames = symbols.frames(BIAS + address, 1, false);
            assert_eq!(frames.len(), 1);
            assert_eq!(
                frames[0].function == demangle(mangled),
                inside,
                "{mangled} {address:#x}: {frames:?}"
            );
        }
    }
    built.run("strip", &["prog"]);
    let shared = Built::cpp(&["-g0", "-shared", "-fPIC", "-Wl,-soname,prog"]);
    let at = shared.after_malloc("prog");
    shared.run("strip", &["prog"]);
    check_grow(&shared, at, SymbolOptions::default(), Source::Dynsym);
}

/// Tests a layout written by hand: a symbol inside another, one without a size, one at the section's end.
#[test]
fn nested_and_unsized_symbols() {
    const SOURCE: &str = "\t.text\n\t.globl outer\n\t.p2align 6\n\
        \t.type outer,@function\nouter:\t.fill 10,1,0x90\n\
        \t.type inner,@function\ninner:\t.fill 10,1,0x90\n\t.size inner,10\n\
        \t.fill 12,1,0x90\n\t.size outer,32\n\
        \t.type label,@function\nlabel:\t.fill 16,1,0x90\n\
        \t.type next,@function\nnext:\t.fill 4,1,0x90\n\t.size next,4\n\
        \t.fill 4,1,0x90\n\
        \t.type last,@function\nlast:\t.fill 8,1,0x90\n";
    let built = Built::cpp(&[]);
    std::fs::write(built.path("asm.s"), SOURCE).expect("source");
    built.run("gcc", &["-shared", "-nostdlib", "asm.s", "-o", "asm"]);
    let nm = built.run("nm", &["asm"]);
    let outer = nm.lines().find(|l| l.ends_with(" outer")).expect("outer");
    let start = u64::from_str_radix(&outer[..16], 16).expect("address");
    let expected = |offset: u64| match offset {
        0..10 | 20..32 => "outer",
        10..20 => "inner",
        32..48 => "label",
        48..52 => "next",
        56..64 => "last",
        _ => "",
    };
    let mut symbols = built.symbols("asm", SymbolOptions::default());
    for offset in 0..80 {
        let mut wanted = expected(offset).to_string();
        if wanted.is_empty() {
            wanted = format!("asm+{:#x}", start + offset);
        }
        let frames = symbols.frames(BIAS + start + offset, 1, false);
        assert_eq!(frames[0].function, wanted, "at +{offset}");
    }
}

/// Libraries define `__name` and export `name`: users know the second. Also weak, also without -g.
#[test]
fn an_exported_alias_is_preferred_to_the_inner_name() {
    let built = Built::cpp(&[]);
    let source = "__attribute__((noinline)) int __inner_work(int x) { return x * 7; }\n\
                  extern int work(int) __attribute__((weak, alias(\"__inner_work\")));\n\
                  static __attribute__((noinline)) int _own(int x) { return work(x) + 1; }\n\
                  int main(int argc, char **argv) { (void)argv; return _own(argc); }\n";
    std::fs::write(built.path("alias.c"), source).expect("source");
    for debug in ["-g", "-g0"] {
        built.run(
            "gcc",
            &[debug, "-O1", "-Wl,--build-id", "alias.c", "-o", "alias"],
        );
        let functions = built.functions("alias");
        assert_eq!(functions["work"], functions["__inner_work"]);
        let mut symbols = built.symbols("alias", SymbolOptions::default());
        for (inner, shown) in [("__inner_work", "work"), ("_own", "_own"), ("main", "main")] {
            let frames = symbols.frames(BIAS + functions[inner].0, 1, false);
            assert_eq!(frames[0].function, shown, "{debug}");
        }
    }
}

#[test]
fn plt_entries_are_named_after_their_function() {
    for flags in [
        &["-fcf-protection=none", "-g0"][..],
        &["-fcf-protection=full", "-g0", "-Wl,-z,ibtplt"],
    ] {
        let built = Built::cpp(flags);
        let code = built.run("objdump", &["-d", "--no-show-raw-insn", "prog"]);
        let entries: Vec<(u64, String)> = code
            .lines()
            .filter_map(|line| {
                let (address, name) = line.strip_suffix(">:")?.split_once(" <")?;
                Some((u64::from_str_radix(address, 16).ok()?, name.to_string()))
            })
            .filter(|(_, name)| name.ends_with("@plt"))
            .collect();
        assert!(
            entries.iter().any(|(_, name)| name == "malloc@plt"),
            "{code}"
        );
        let mut symbols = built.symbols("prog", SymbolOptions::default());
        for (address, name) in entries {
            assert_eq!(symbols.frames(BIAS + address, 1, false)[0].function, name);
        }
    }
}

#[test]
fn another_build_is_not_used_and_is_said() {
    let built = Built::cpp(&[]);
    let at = built.after_malloc("prog");
    let mut module = built.module("prog");
    module.build_id = "00".repeat(20);
    let mut symbols = Symbols::new(&[module], SymbolOptions::default());
    let frames = symbols.frames(BIAS + at, 1, true);
    assert_eq!(frames[0].function, format!("prog+{:#x}", at - 1));
    let rows = symbols.summary();
    assert!(rows[0].changed && rows[0].source == Source::None);
    assert_eq!(rows[0].notes, ["prog changed since the recording"]);
    assert!(symbols.hints()[0].starts_with("prog changed since the recording"));
}

#[test]
fn an_address_range_used_twice() {
    let one = Built::cpp(&["-g0"]);
    let two = Built::cpp(&["-g0", "-O1"]);
    let mut first = one.module("prog");
    first.end = BIAS + 0x10_0000;
    let mut second = two.module("prog");
    second.first_node = 100;
    second.end = BIAS + 0x1_0000;
    let symbols = Symbols::new(&[second.clone(), first.clone()], SymbolOptions::default());
    for (pc, node, wanted) in [
        (BIAS, 1, Some(&first)),
        (BIAS, 99, Some(&first)),
        (BIAS, 100, Some(&second)),
        (BIAS, u32::MAX, Some(&second)),
        (BIAS + 0x1_0000, 200, Some(&first)),
        (BIAS + 0x10_0000, 200, None),
        (BIAS - 1, 200, None),
    ] {
        assert_eq!(symbols.module_of(pc, node), wanted, "{pc:#x} {node}");
    }
}

#[test]
fn addresses_that_are_no_code_of_a_file() {
    let module = Module {
        start: BIAS,
        end: BIAS + 0x2000,
        bias: BIAS,
        path: "[vdso]".to_string(),
        build_id: String::new(),
        first_node: 0,
    };
    let mut symbols = Symbols::new(&[module], SymbolOptions::default());
    for (pc, ret, wanted) in [
        (TRUNCATED_PC, true, "[truncated]"),
        (TRUNCATED_PC, false, "[truncated]"),
        (0, true, "0x0"),
        (0x7f00_0000_1000, true, "[jit] 0x7f0000001000"),
        (0x7f00_0000_1000, false, "[jit] 0x7f0000001000"),
        (BIAS + 0x1235, true, "[vdso]+0x1234"),
        (u64::MAX, false, "[jit] 0xffffffffffffffff"),
    ] {
        let frames = symbols.frames(pc, 1, ret);
        assert_eq!(frames.len(), 1);
        assert_eq!(frames[0].function, wanted);
    }
    assert!(
        symbols.hints().is_empty(),
        "nothing to install for the vdso"
    );
}

/// Paths come from a trace: none may block us or be read for ever.
#[test]
fn paths_that_are_no_files() {
    let built = Built::cpp(&[]);
    built.run("mkfifo", &["fifo"]);
    std::fs::write(built.path("empty"), "").expect("write");
    let here = |name: &str| built.path(name).to_str().expect("UTF-8").to_string();
    for path in [
        here("fifo"),
        here("empty"),
        here(""),
        here("none"),
        "/dev/zero".into(),
        "//".into(),
    ] {
        let mut module = built.module_without_tools("prog");
        module.path.clone_from(&path);
        let mut symbols = Symbols::new(&[module], SymbolOptions::default());
        let frames = symbols.frames(BIAS + 0x10, 1, false);
        assert!(frames[0].function.ends_with("+0x10"), "{path}: {frames:?}");
        assert_eq!(symbols.summary()[0].source, Source::None);
    }
}

/// The analysis may hand names to another thread.
#[test]
fn symbols_can_be_sent() {
    fn sendable<T: Send>() {}
    sendable::<Symbols>();
}

/// Tests flipped bits and cut bytes, by a seeded generator: never a panic, always a frame.
#[test]
fn damaged_files_give_offsets_or_names_and_never_a_panic() {
    let built = Built::cpp(&["-Wl,--build-id=none"]);
    let at = built.after_malloc("prog");
    let whole = std::fs::read(built.path("prog")).expect("read");
    let seed = 0x5eed_0001_u64;
    println!("seed {seed:#x}");
    let mut drawn = Random::new(seed);
    let mut random = move || drawn.bits();
    for round in 0..400 {
        let mut bytes = whole.clone();
        match round % 4 {
            0 => bytes.truncate(random() as usize % whole.len()),
            1 => {
                // These are headers, where a wrong length does most harm.
                for _ in 0..4 {
                    let at = random() as usize % 1024;
                    bytes[at] = random() as u8;
                }
            }
            2 => {
                // The tail holds the section headers.
                for _ in 0..16 {
                    let at = whole.len() - 1 - random() as usize % 2600;
                    bytes[at] = random() as u8;
                }
            }
            _ => {
                for _ in 0..256 {
                    let at = random() as usize % whole.len();
                    bytes[at] = random() as u8;
                }
            }
        }
        std::fs::write(built.path("prog"), &bytes).expect("write");
        let mut module = built.module_without_tools("prog");
        module.build_id = String::new();
        let mut symbols = Symbols::new(&[module], SymbolOptions::default());
        for pc in [at, at + 1, 0x1000, 0x1100, 0x4000, u64::MAX - BIAS] {
            let frames = symbols.frames(BIAS.wrapping_add(pc), 1, true);
            assert!(!frames.is_empty() && frames.iter().all(|f| !f.function.is_empty()));
        }
        let _ = symbols.hints();
    }
}

impl Built {
    /// Returns a module for files that readelf would refuse.
    fn module_without_tools(&self, name: &str) -> Module {
        Module {
            start: BIAS,
            end: u64::MAX,
            bias: BIAS,
            path: self.path(name).to_str().expect("UTF-8").to_string(),
            build_id: String::new(),
            first_node: 0,
        }
    }
}
