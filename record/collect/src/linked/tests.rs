//! Tests of plans: for small programs that are compiled here, whose functions begin in known ways.

use std::process::Command;

use super::*;

const SOURCE: &str = "
#include <stdlib.h>
#define OF_IT __attribute__((noipa))
OF_IT size_t mi_usable_size(void *block) { return block ? 64 : 0; }
OF_IT void *mi_malloc(size_t bytes) { return malloc(bytes + 1); }
OF_IT void mi_free(void *block) { if (block) free(block); }
OF_IT void mi_free_size(void *block, size_t bytes) { if (bytes > 1) free(block); }
OF_IT void mi_cfree(void *block) { mi_free(block); }
int main(void) { mi_free_size(mi_malloc(3), 3); return mi_usable_size(0); }
";

fn ran(command: &mut Command) {
    let output = command.output();
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
}

/// Compiles a program in a folder.
fn compiled(folder: &Path, source: &str, options: &[&str]) -> PathBuf {
    let (from, to) = (folder.join("program.c"), folder.join("program"));
    std::fs::write(&from, source).expect("written");
    let mut gcc = Command::new("gcc");
    gcc.args(["-O2", "-Wl,--build-id"]).args(options).arg("-o");
    ran(gcc.arg(&to).arg(from));
    to
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

/// `mi_cfree` is a jump to `mi_free`, where its calls are recorded.
#[test]
fn all_functions_of_an_allocator_are_in_the_plan_with_their_bytes() {
    if !cfg!(target_arch = "x86_64") {
        return;
    }
    let folder = folder();
    let program = compiled(folder.path(), SOURCE, &[]);
    let plan = plan(&program, Path::new("/nowhere"), Whose::Program).expect("an allocator");
    assert_eq!(plan.unseen, [] as [String; 0]);
    assert_eq!(
        (plan.names.as_slice(), plan.hooks.len()),
        (&["mimalloc"][..], 4)
    );
    let elf = Elf::open(&program).expect("a program");
    for hook in &plan.hooks {
        // The recorder reads what was written.
        assert_eq!(Hook::decode(&hook.encode()), Some(*hook));
        let code = elf
            .code(hook.address, u64::from(hook.length))
            .expect("code");
        assert_eq!(code, hook.expected[..code.len()]);
    }
    let calls: Vec<(u8, u8)> = plan
        .hooks
        .iter()
        .map(|one| (one.call.what, one.call.func))
        .collect();
    for call in [
        (what::ACQUIRE, 0),
        (what::RELEASE, 0),
        (what::RELEASE, 1),
        (what::MEASURE, 0),
    ] {
        assert!(calls.contains(&call), "{call:?} in {calls:?}");
    }
    let mut info = ProcessInfo {
        exe: "/srv/server".into(),
        allocator: "glibc 2.36".into(),
        ..ProcessInfo::default()
    };
    plan.name_in(&mut info);
    assert_eq!(info.allocator, "mimalloc (server)");
    assert_eq!(info.allocator_path, "/srv/server");
}

#[test]
fn a_stripped_programs_symbols_are_in_its_debug_file() {
    if !cfg!(target_arch = "x86_64") {
        return;
    }
    let folder = folder();
    let program = compiled(folder.path(), SOURCE, &["-g"]);
    let whole = plan(&program, Path::new("/nowhere"), Whose::Program);
    let id = Elf::open(&program)
        .and_then(|elf| elf.build_id())
        .expect("a build id");
    let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    let place = folder.path().join(DEBUG_FILES).join(&hex[..2]);
    std::fs::create_dir_all(&place).expect("a folder");
    let debug = place.join(format!("{}.debug", &hex[2..]));
    ran(Command::new("objcopy")
        .arg("--only-keep-debug")
        .arg(&program)
        .arg(&debug));
    ran(Command::new("strip").arg(&program));
    assert_eq!(
        plan(&program, Path::new("/nowhere"), Whose::Program),
        Some(Plan::default())
    );
    assert_eq!(plan(&program, folder.path(), Whose::Program), whole);
    // Another program's is none of ours.
    let other = compiled(folder.path(), "int main(void) { return 3; }", &[]);
    ran(Command::new("objcopy")
        .arg("--only-keep-debug")
        .arg(&other)
        .arg(&debug));
    let program = compiled(folder.path(), SOURCE, &["-s", "-g"]);
    assert_eq!(
        plan(&program, folder.path(), Whose::Program),
        Some(Plan::default())
    );
}

/// Returns what is said of a program without a single hook.
fn refusal(source: &str, options: &[&str]) -> String {
    let folder = folder();
    let program = compiled(folder.path(), source, options);
    let plan = plan(&program, Path::new("/nowhere"), Whose::Program).expect("a program");
    assert_eq!((plan.hooks.len(), plan.names.len()), (0, 0), "{plan:?}");
    plan.unseen.join("; ")
}

#[test]
fn one_function_that_cannot_be_hooked_leaves_the_allocator_alone() {
    if !cfg!(target_arch = "x86_64") {
        return;
    }
    let with = |function: &str| SOURCE.replace("int main", &format!("{function}\nint main"));
    let asm = |name: &str, body: &str| {
        let text = format!(
            ".globl {name}\\n.type {name},@function\\n{name}: {body}\\n.size {name}, .-{name}\\n"
        );
        with(&format!("__asm__(\".text\\n{text}\");"))
    };
    let short = refusal(&asm("mi_ufree", "xor %eax, %eax; ret"), &[]);
    assert!(
        short.contains("mi_ufree: it is shorter than a jump"),
        "{short}"
    );
    let looped = refusal(&asm("mi_zalloc", "1: loop 1b; call mi_malloc; ret"), &[]);
    assert!(
        looped.contains("mi_zalloc: it begins with a loop"),
        "{looped}"
    );
    let entered = "push %rbx; 1: nop; nop; nop; nop; nop; nop; dec %edi; jnz 1b; pop %rbx; ret";
    let entered = refusal(&asm("mi_zalloc", entered), &[]);
    assert!(
        entered.contains("mi_zalloc: it jumps into its own beginning"),
        "{entered}"
    );
    let local = refusal(
        &with(
            "static OF_IT void *mi_zalloc(size_t n) { return calloc(n, 1); } void *(*volatile kept)(size_t) = mi_zalloc;",
        ),
        &[],
    );
    assert!(local.contains("mi_zalloc is a local symbol"), "{local}");
    // Without a way to end blocks it is none.
    let half = "#include <stdlib.h>\nvoid *mi_malloc(size_t n) { return malloc(n); } int main(void) { return !mi_malloc(3); }";
    assert_eq!(refusal(half, &[]), "");
}

#[test]
fn functions_whose_blocks_are_not_seen_are_counted() {
    if !cfg!(target_arch = "x86_64") {
        return;
    }
    let folder = folder();
    let more = "OF_IT void *mi_new(size_t n) { return malloc(n + 2); } OF_IT void mi_heap_destroy(void *heap) { if (heap) free(heap); }\nint main";
    let program = compiled(folder.path(), &SOURCE.replace("int main", more), &[]);
    let plan = plan(&program, Path::new("/nowhere"), Whose::Program).expect("an allocator");
    let counted = plan.hooks.iter().filter(|one| one.call.what == what::COUNT);
    assert_eq!((counted.count(), plan.hooks.len()), (2, 6), "{plan:?}");
    let region = Region::create().expect("memfd");
    let header = region.header();
    // ORDER: Relaxed for both; one thread.
    header.linked.store(LINKED_HOOKED, Ordering::Relaxed);
    assert_eq!(plan.notes(header), [] as [String; 0]);
    assert_eq!(uncounted([&plan].into_iter(), header), None);
    header.linked_unseen.store(7, Ordering::Relaxed); // ORDER: as above.
    let notes = uncounted([&plan].into_iter(), header).expect("a note");
    assert!(notes.starts_with("7 calls of "), "{notes}");
    assert!(
        notes.contains("mi_new") && notes.contains("mi_heap_destroy"),
        "{notes}"
    );
}

#[test]
fn what_the_recorder_refused_is_told() {
    let plan = Plan {
        names: vec!["jemalloc"],
        ..Plan::default()
    };
    let region = Region::create().expect("memfd");
    let header = region.header();
    for (status, notes) in [
        (LINKED_HOOKED, 0),
        (LINKED_FORBIDDEN, 1),
        (LINKED_OTHER_CODE, 1),
        (0, 1),
    ] {
        // ORDER: Relaxed; one thread.
        header.linked.store(status, Ordering::Relaxed);
        assert_eq!(plan.notes(header).len(), notes, "{status}");
        assert_eq!(Plan::default().notes(header).len(), 0, "{status}");
    }
}

/// Compiles a library that shows no function to other files but one.
fn library(folder: &Path, source: &str, options: &[&str]) -> PathBuf {
    let script = folder.join("names.map");
    std::fs::write(&script, "{ global: seen; local: *; };").expect("written");
    let script = format!("-Wl,--version-script={}", script.display());
    let source = source.replace("int main", "int seen");
    let mut all = vec!["-shared", "-fPIC", script.as_str()];
    all.extend(options);
    compiled(folder, &source, &all)
}

#[test]
fn functions_that_a_librarys_linker_made_local_are_hooked() {
    if !cfg!(target_arch = "x86_64") {
        return;
    }
    let folder = folder();
    let whose = Whose::Library("library.so");
    let of = |options: &[&str], source: &str| {
        let file = library(folder.path(), source, options);
        plan(&file, Path::new("/nowhere"), whose).expect("a library")
    };
    let hooked = of(&[], SOURCE);
    assert_eq!(hooked.unseen, [] as [String; 0]);
    assert_eq!(
        (hooked.names.as_slice(), hooked.hooks.len()),
        (&["mimalloc"][..], 4)
    );
    // Without the names of sources, too, as some packages have them.
    let bare = of(&["-Wl,--strip-debug"], SOURCE);
    assert_eq!((bare.hooks.len(), bare.unseen.len()), (4, 0), "{bare:?}");
    // A function that was local when it was compiled may be called in any way; so may that of a program.
    let own = "static OF_IT void *mi_zalloc(size_t n) { return calloc(n, 1); } void *(*volatile kept)(size_t) = mi_zalloc;\nint main";
    let local = of(&[], &SOURCE.replace("int main", own));
    let told = local.unseen.join("; ");
    assert!(
        told.starts_with("blocks of mimalloc in library.so are not recorded: mi_zalloc is a local"),
        "{told}"
    );
    let as_program = plan(
        &library(folder.path(), SOURCE, &[]),
        Path::new("/nowhere"),
        Whose::Program,
    );
    assert_eq!(as_program.expect("a file").hooks, []);
}

/// The words are in a constant, and `madvise` is called: both are asked for.
#[test]
fn an_allocator_without_names_is_known_by_its_words() {
    let folder = folder();
    let with = |more: &str| {
        let source = format!(
            "#include <sys/mman.h>\n{}",
            SOURCE.replace("int main", more)
        );
        let file = library(folder.path(), &source, &["-s"]);
        let plan = plan(&file, Path::new("/nowhere"), Whose::Library("library.so"));
        plan.expect("a library").unseen.join("; ")
    };
    let calls = "int gives(void *at) { return madvise(at, 1, 0); }";
    let words = "const char *volatile words = \"mimalloc: warning\";";
    let told = with(&format!("{words} {calls}\nint main"));
    assert_eq!(
        told,
        format!(
            "blocks of mimalloc in library.so are not recorded: {}",
            names::NAMELESS
        )
    );
    let two = format!(
        "{} {calls}\nint main",
        words.replace("mimalloc", "<jemalloc>")
    );
    assert!(with(&two).starts_with("blocks of jemalloc in library.so"));
    assert_eq!(with(&format!("{calls}\nint main")), "");
    assert_eq!(with(&format!("{words}\nint main")), "");
}
