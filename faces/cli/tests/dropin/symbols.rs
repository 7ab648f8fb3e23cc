//! What the built library exports and needs, read by binutils.
//!
//! ```text
//!   nm -D ─► names      readelf -lW ─► thread-local bytes      objdump -d ─► jumps
//! ```
//!
//! Y1  The list below is the interface: an additional name is a leak of the engine, a missing name lets two heaps
//!     meet. No name has a version.
//! Y2  Every preloaded library names libc.so.6, and takes each of its functions by version: without one, the loader
//!     gives whichever version it finds first.

use std::path::Path;
use std::process::Command;

use skinflint_test_support::artifact;

use crate::library::library;
use crate::tool::{Bench, run};

/// The exported names (Y1), sorted.
const EXPORTED: &[&str] = &[
    "_ZdaPv",
    "_ZdaPvRKSt9nothrow_t",
    "_ZdaPvSt11align_val_t",
    "_ZdaPvSt11align_val_tRKSt9nothrow_t",
    "_ZdaPvm",
    "_ZdaPvmSt11align_val_t",
    "_ZdlPv",
    "_ZdlPvRKSt9nothrow_t",
    "_ZdlPvSt11align_val_t",
    "_ZdlPvSt11align_val_tRKSt9nothrow_t",
    "_ZdlPvm",
    "_ZdlPvmSt11align_val_t",
    "_Znam",
    "_Znam12__hot_cold_t",
    "_ZnamRKSt9nothrow_t",
    "_ZnamRKSt9nothrow_t12__hot_cold_t",
    "_ZnamSt11align_val_t",
    "_ZnamSt11align_val_t12__hot_cold_t",
    "_ZnamSt11align_val_tRKSt9nothrow_t",
    "_ZnamSt11align_val_tRKSt9nothrow_t12__hot_cold_t",
    "_Znwm",
    "_Znwm12__hot_cold_t",
    "_ZnwmRKSt9nothrow_t",
    "_ZnwmRKSt9nothrow_t12__hot_cold_t",
    "_ZnwmSt11align_val_t",
    "_ZnwmSt11align_val_t12__hot_cold_t",
    "_ZnwmSt11align_val_tRKSt9nothrow_t",
    "_ZnwmSt11align_val_tRKSt9nothrow_t12__hot_cold_t",
    "__libc_calloc",
    "__libc_cfree",
    "__libc_free",
    "__libc_mallinfo",
    "__libc_malloc",
    "__libc_mallopt",
    "__libc_memalign",
    "__libc_pvalloc",
    "__libc_realloc",
    "__libc_reallocarray",
    "__libc_valloc",
    "__posix_memalign",
    "aligned_alloc",
    "calloc",
    "capset",
    "cfree",
    "dlopen",
    "dlsym",
    "free",
    "free_aligned_sized",
    "free_sized",
    "initgroups",
    "mallinfo",
    "mallinfo2",
    "malloc",
    "malloc_get_state",
    "malloc_info",
    "malloc_set_state",
    "malloc_stats",
    "malloc_trim",
    "malloc_usable_size",
    "mallopt",
    "memalign",
    "posix_memalign",
    "prctl",
    "pvalloc",
    "realloc",
    "reallocarray",
    "setegid",
    "seteuid",
    "setfsgid",
    "setfsuid",
    "setgid",
    "setgroups",
    "setns",
    "setregid",
    "setresgid",
    "setresuid",
    "setreuid",
    "setuid",
    "skinflint_cool",
    "skinflint_heap_blocks",
    "skinflint_heap_bytes",
    "skinflint_heap_calloc",
    "skinflint_heap_create",
    "skinflint_heap_destroy",
    "skinflint_heap_free",
    "skinflint_heap_malloc",
    "skinflint_heap_memalign",
    "skinflint_heap_realloc",
    "skinflint_heap_usable",
    "skinflint_off_pressure",
    "skinflint_on_pressure",
    "skinflint_profile_set_rate",
    "skinflint_profile_start",
    "skinflint_profile_stop",
    "skinflint_profile_write",
    "skinflint_set_reserve",
    "skinflint_stats_json",
    "skinflint_trim",
    "syscall",
    "unshare",
    "valloc",
];

/// Returns what a tool of binutils prints about the library.
fn asked(tool: &str, options: &[&str]) -> String {
    asked_of(library(), tool, options)
}

fn asked_of(library: &Path, tool: &str, options: &[&str]) -> String {
    let mut command = Command::new(tool);
    command.env("LC_ALL", "C").args(options).arg(library);
    let done = run(command);
    assert_eq!(
        done.status.code(),
        Some(0),
        "apt-get install binutils: {done:#?}"
    );
    done.stdout
}

/// Returns the last word of each line.
fn names(text: &str) -> Vec<&str> {
    let mut names: Vec<&str> = text
        .lines()
        .filter_map(|line| line.split_whitespace().next_back())
        .collect();
    names.sort_unstable();
    names
}

#[test]
fn exactly_these_names() {
    let text = asked("nm", &["-D", "--defined-only"]);
    assert_eq!(names(&text), EXPORTED);
}

/// Checks that nothing is there that would allocate on first use, or unwind.
#[test]
fn nothing_that_calls_back() {
    let text = asked("nm", &["-D", "--undefined-only"]);
    for name in names(&text) {
        let plain = name.split('@').next().unwrap_or(name);
        assert!(
            ![
                "__tls_get_addr",
                "__cxa_thread_atexit_impl",
                "malloc",
                "free"
            ]
            .contains(&plain)
                && !plain.starts_with("_Unwind"),
            "{name}"
        );
    }
}

/// glibc keeps little thread-local room for all libraries together: two words are ours, a thread's heap, and the word in
/// which sections are armed where the C library has none (`section.rs` of alloc). A section's address is one for all threads, so
/// that word can lie nowhere else.
#[test]
fn two_words_of_thread_local_storage() {
    let text = asked("readelf", &["-lW"]);
    let line = text.lines().find(|line| line.trim().starts_with("TLS"));
    // TLS offset virtual physical filesize memsize flags align
    let size = line.and_then(|line| line.split_whitespace().nth(5));
    let size = size.map(|size| u64::from_str_radix(size.trim_start_matches("0x"), 16));
    assert_eq!(size, Some(Ok(16)), "{text}");
}

/// The fork handlers must be the first (malloc_so::begin.B1); relocated code would be private memory.
#[test]
fn flags_of_the_loader() {
    let text = asked("readelf", &["-dW"]);
    assert!(text.contains("INITFIRST"), "{text}");
    assert!(!text.contains("TEXTREL"), "{text}");
    assert!(!text.contains("SYMBOLIC"), "{text}");
}

/// Checks Y2, whether the libraries were built with the rest of the workspace or by themselves.
/// A tracer finds the probes by their notes; both semaphores and both sites are in what the file holds (`profile::probes`).
#[test]
fn probes_are_noted() {
    let text = asked("readelf", &["-nW"]);
    let notes: Vec<&str> = text.split("NT_STAPSDT").skip(1).collect();
    assert_eq!(notes.len(), 2, "{text}");
    let loads: Vec<[u64; 2]> = asked("readelf", &["-lW"])
        .lines()
        .filter_map(|line| line.trim().strip_prefix("LOAD"))
        .map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            // Address, and bytes in the file.
            [words[1], words[3]].map(hex)
        })
        .collect();
    for (note, name, arguments) in [
        (notes[0], "alloc", "8@%rdi 8@%rsi 8@%rdx"),
        (notes[1], "free", "8@%rdi"),
    ] {
        for line in [
            "Provider: otel_memory".into(),
            format!("Name: {name}"),
            format!("Arguments: {arguments}"),
        ] {
            assert!(
                note.lines().any(|at| at.trim().ends_with(&line)),
                "{line}: {note}"
            );
        }
        for place in ["Location: ", "Semaphore: "] {
            let at = note.split(place).nth(1).expect(note);
            let at = hex(at.split([',', '\n']).next().unwrap_or_default());
            let held = loads
                .iter()
                .any(|[begin, bytes]| at.wrapping_sub(*begin) < *bytes);
            assert!(at != 0 && held, "{place}{at:#x}: {loads:x?}");
        }
    }
}

fn hex(text: &str) -> u64 {
    u64::from_str_radix(text.trim().trim_start_matches("0x"), 16).expect(text)
}

#[test]
fn functions_of_libc_are_taken_by_their_version() {
    for package in ["malloc-so", "record-so", "probe-so"] {
        let library = artifact::released(&format!("skinflint-{package}"));
        let needed = asked_of(&library, "readelf", &["-dW"]);
        assert!(
            needed.contains("NEEDED") && needed.contains("[libc.so.6]"),
            "{package}: {needed}"
        );
        let text = asked_of(&library, "nm", &["-D", "--undefined-only"]);
        let bare = |line: &&str| line.trim().starts_with("U ") && !line.contains('@');
        let bare: Vec<&str> = text.lines().filter(bare).collect();
        assert!(bare.is_empty(), "{package}: {bare:?}");
    }
}

/// A failing `new` must leave no frame of ours on the stack, which bad_alloc would have to pass.
#[test]
fn a_failing_new_goes_on_by_a_jump() {
    let text = asked("objdump", &["-d", "--no-show-raw-insn"]);
    for (name, next) in [
        ("new_any", "goes_on"),
        ("new_sampled", "goes_on"),
        ("new_slow", "goes_on"),
        ("_ZnwmSt11align_val_t", "goes_on"),
        ("array_checked", "as_meant"),
        ("array_aligned_checked", "as_meant"),
    ] {
        // Exported by its name, or one of ours with what the compiler adds to it.
        let head = format!("<{name}>:");
        let ours = |line: &str| !name.starts_with('_') && line.contains(name);
        let begins = |line: &&str| line.ends_with(&head) || line.ends_with(">:") && ours(line);
        let body = text.lines().skip_while(|line| !begins(line));
        let going_on: Vec<&str> = body
            .take_while(|line| !line.trim().is_empty())
            .filter(|line| line.contains(next))
            .collect();
        assert!(!going_on.is_empty(), "{name}");
        for line in going_on {
            let instruction = line.split_whitespace().nth(1).unwrap_or("");
            assert!(instruction.starts_with('j'), "{name}: {line}");
        }
    }
}

/// A profiler that interrupts one of these finds its caller: assembly has to say where the frame is, too.
#[test]
fn what_is_written_in_assembly_can_be_unwound() {
    let symbols = asked("nm", &["-D", "--defined-only"]);
    let frames = asked("readelf", &["--debug-dump=frames"]);
    for name in ["malloc", "free", "_Znwm", "_ZdlPv", "_ZdlPvm", "_ZdaPv"] {
        let words = symbols
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>());
        let at = words
            .filter(|words| words.get(2) == Some(&name))
            .map(|words| words[0])
            .next()
            .expect("exported");
        assert!(frames.contains(&format!("pc={at}..")), "{name}");
    }
}

/// What every program runs is mapped by one page fault (the library's `lib.M5`): the code begins where such a fault's pages do, and
/// these functions are among its first 64 KiB.
#[test]
fn what_every_program_runs_comes_first() {
    const AROUND: u64 = 0x1_0000;
    let address = |text: &str| u64::from_str_radix(text, 16).expect("an address");
    let sections = asked("objdump", &["-h"]);
    let begin = sections
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        // What the loader runs by itself is the first of the code.
        .find(|words| words.get(1) == Some(&".init"))
        .map(|words| address(words[3]))
        .expect("code");
    assert_eq!(begin % AROUND, 0, "{begin:#x}");
    let symbols = asked("nm", &["--demangle"]);
    for name in [
        "malloc",
        "free",
        "dlsym",
        "skinflint::begin::begin",
        "skinflint::begin::end",
        "skinflint_alloc::services::options::begin_with",
        "skinflint_alloc::heaps::thread::enter",
        "skinflint_pages::pool::Pool::take",
        "skinflint_base::loader::defined",
    ] {
        let at: Vec<u64> = symbols
            .lines()
            .filter(|line| {
                line.split_once(' ')
                    .is_some_and(|(_, rest)| rest[2..] == *name)
            })
            .map(|line| address(&line[..16]))
            .collect();
        assert!(!at.is_empty(), "{name}");
        for at in at {
            assert!(at - begin < AROUND, "{name} at {at:#x}");
        }
    }
}

/// A program that allocates once: it counts the pages of the library's code that are mapped, within the first 64 KiB and behind.
const ALLOCATES_ONCE: &[u8] = br#"
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static char maps[1 << 16];
static uint64_t entries[1024];
int main(void)
{
    void *volatile one = malloc(100);
    free(one);
    int file = open("/proc/self/maps", O_RDONLY), pages = open("/proc/self/pagemap", O_RDONLY);
    for (size_t got = 0; (one = (void *)read(file, maps + got, sizeof maps - 1 - got)); got += (size_t)one) {}
    for (char *line = strtok(maps, "\n"); line; line = strtok(NULL, "\n")) {
        unsigned long begin, end;
        char mode[5];
        if (!strstr(line, "libskinflint") || sscanf(line, "%lx-%lx %4s", &begin, &end, mode) != 3 || mode[2] != 'x') continue;
        size_t n = (end - begin) / 4096, first = 0, behind = 0;
        if (n > 1024 || pread(pages, entries, 8 * n, (off_t)(begin / 4096 * 8)) != (ssize_t)(8 * n)) return 1;
        for (size_t i = 0; i < n; i++) *(i < 16 ? &first : &behind) += entries[i] >> 63;
        printf("%zu of %zu pages, %zu behind\n", first, n, behind);
    }
    return 0;
}
"#;

/// The same by what a program sees: nothing that it runs up to its first block lies behind these 64 KiB.
#[test]
fn a_first_block_maps_the_first_pages_alone() {
    let bench = Bench::new();
    std::fs::write(bench.path("once.c"), ALLOCATES_ONCE).expect("writes");
    let mut compiler = bench.command("gcc");
    compiler.args(["-O1", "-o", "once", "once.c"]);
    assert_eq!(run(compiler).status.code(), Some(0), "apt-get install gcc");
    let mut once = bench.command("./once");
    // What reads our options' values lies behind, and names of others' are read by it, too: a program that has none does not.
    once.env_clear().env("LD_PRELOAD", library());
    let done = run(once);
    assert_eq!((done.status.code(), &*done.stderr), (Some(0), ""));
    let words: Vec<&str> = done.stdout.split_whitespace().collect();
    let [first, "of", all, "pages,", "0", "behind"] = words[..] else {
        panic!("{}", done.stdout);
    };
    let number = |text: &str| text.parse::<u32>().expect("a number");
    assert!(number(first) > 0 && number(all) > 16, "{}", done.stdout);
}
