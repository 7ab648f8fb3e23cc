//! Allocators that a program is linked with, or a library brings: what of them is to be hooked, from the file.
//!
//! ```text
//!   /proc/PID/exe ─► .symtab, or that of its debug file, or .dynsym ─► mi_malloc, mi_free, … (families.rs)
//!                └─► their code ─► first instructions (x86.rs) ─► plan, in the process's region ─► the recorder
//! ```
//!
//! L1  An allocator is hooked as a whole or not at all: blocks that are acquired unseen, or released unseen, are worse than
//!     none.
//! L2  A function is hooked only if its file says where it ends, every instruction in it is known, none of them jumps
//!     into the bytes that are replaced, and those can run from another place.
//! L3  A local function may not be called as its header says: optimisation of the whole program may have changed that. Its
//!     allocator is refused. LLVM's linker tells functions that were hidden from others; GNU's does not, and they are
//!     refused, too. In a library nearly all are local, since its linker was told to export few names: there those count that
//!     other files could call when they were compiled (names.V2).
//! L4  What is refused is said, with the reason and what to do.
//!
//! Cost: the tables of symbols of each distinct file, once. Not here: hooking (the recorder), which file a library is
//! (../libraries.rs).

mod families;
mod names;
mod x86;

use std::collections::{BTreeMap, HashMap};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use skinflint_base::plan::{Call, Hook, JUMP_BYTES, MOST_HOOKS, what};
use skinflint_base::ring::{
    LINKED_ATTACHED, LINKED_FORBIDDEN, LINKED_HOOKED, LINKED_NO_ROOM, LINKED_OTHER_CODE,
    ProcessHeader,
};
use skinflint_trace::ProcessInfo;

use crate::elf::{DYNSYM, Elf, SYMTAB, Symbol, X86_64};
use crate::go::GoProgram;
use crate::memory::Region;
use families::FAMILIES;

/// The most programs whose plans are kept.
const MOST_KEPT: usize = 256;
/// The most bytes of one function.
const MOST_CODE: u64 = 1 << 20;
/// The folder of debug files by build id, in a process's root.
const DEBUG_FILES: &str = "usr/lib/debug/.build-id";

/// The plan for a program.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Plan {
    /// What is to be hooked.
    pub hooks: Vec<Hook>,
    /// The allocators of these hooks.
    pub names: Vec<&'static str>,
    /// What is not seen, a sentence each.
    pub(crate) unseen: Vec<String>,
    /// Functions whose calls are only counted.
    counted: Vec<String>,
}

impl Plan {
    /// Names the allocator that most of the program's blocks are from, if it is linked with one: `mimalloc (server)`.
    pub fn name_in(&self, info: &mut ProcessInfo) {
        if let Some(file) = Path::new(&info.exe).file_name()
            && !self.names.is_empty()
        {
            let file = file.to_string_lossy();
            info.allocator = format!("{} ({file})", self.names.join(" and "));
            info.allocator_path.clone_from(&info.exe);
        }
    }

    /// Returns what a reader of the trace should know, a sentence each.
    pub fn notes(&self, header: &ProcessHeader) -> Vec<String> {
        let mut notes = self.unseen.clone();
        // ORDER: Relaxed; the process has ended.
        let status = header.linked.load(Ordering::Relaxed);
        if let Some(why) = refused(status).filter(|_| !self.names.is_empty()) {
            let names = self.names.join(" and ");
            notes.push(Whose::Program.said(&names, why));
        }
        notes
    }
}

/// Returns why the recorder did not carry a plan out.
pub(crate) fn refused(status: u32) -> Option<&'static str> {
    match status {
        LINKED_HOOKED => None,
        LINKED_ATTACHED => {
            Some("the recorder came into the running program; start it with skinflint")
        }
        LINKED_OTHER_CODE => Some("its code in memory is not that of the program's file"),
        LINKED_NO_ROOM => Some("no memory was free near the program's code"),
        LINKED_FORBIDDEN => Some("the system forbids to change code in memory"),
        _ => Some("the recorder refused"),
    }
}

/// Returns the note on calls whose effects are not recorded, of the program's functions and of those of its libraries.
pub fn uncounted<'a>(
    plans: impl Iterator<Item = &'a Plan>,
    header: &ProcessHeader,
) -> Option<String> {
    let unseen = header.linked_unseen.load(Ordering::Relaxed); // ORDER: Relaxed; the process has ended.
    let mut names: Vec<&str> = plans
        .flat_map(|plan| plan.counted.iter().map(String::as_str))
        .collect();
    names.sort_unstable();
    names.dedup();
    (unseen > 0).then(|| {
        format!(
            "{unseen} calls of {} were not recorded: what they got or ended is not known",
            names.join(", ")
        )
    })
}

/// What a file is to the process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Whose<'a> {
    Program,
    /// A library of this name.
    Library(&'a str),
}

impl Whose<'_> {
    /// Says why blocks are not recorded (L4).
    pub(crate) fn said(self, allocator: &str, why: &str) -> String {
        match self {
            Whose::Program => format!(
                "blocks of {allocator}, which the program is linked with, are not recorded: {why}. A build on the system's \
                 malloc shows them"
            ),
            // The analysis reads it (heaps.rs).
            Whose::Library(file) => {
                format!("blocks of {allocator} in {file} are not recorded: {why}")
            }
        }
    }
}

/// A file, as it was.
type File = (u64, u64, i64, u64);

/// The plans of programs that were met.
#[derive(Default)]
pub struct Plans {
    /// By file, and whether it is the program itself.
    plans: HashMap<(File, bool), Arc<Plan>>,
    /// Those of Go that call C.
    go: HashMap<File, Option<GoProgram>>,
}

impl Plans {
    /// Puts the plan for a process that waits for its welcome into its region, and returns it.
    pub fn give(&mut self, pid: u32, region: &Region) -> Arc<Plan> {
        let plan = self.of(pid);
        region.write_plan(&plan.hooks);
        plan
    }

    fn of(&mut self, pid: u32) -> Arc<Plan> {
        let program = PathBuf::from(format!("/proc/{pid}/exe"));
        self.of_file(pid, &program, Whose::Program)
    }

    pub(crate) fn of_file(&mut self, pid: u32, file: &Path, whose: Whose<'_>) -> Arc<Plan> {
        let Some(about) = about(file) else {
            return Arc::default();
        };
        let key = (about, whose == Whose::Program);
        if let Some(known) = self.plans.get(&key) {
            return Arc::clone(known);
        }
        if self.plans.len() >= MOST_KEPT {
            self.plans.clear();
        }
        let root = PathBuf::from(format!("/proc/{pid}/root"));
        let plan = Arc::new(plan(file, &root, whose).unwrap_or_default());
        Arc::clone(self.plans.entry(key).or_insert(plan))
    }

    /// Returns the Go program that calls C which a process is, if it is one whose heap can be read.
    pub fn go(&mut self, pid: u32) -> Option<GoProgram> {
        let (program, key) = file_of(pid)?;
        if let Some(known) = self.go.get(&key) {
            return known.clone();
        }
        if self.go.len() >= MOST_KEPT {
            self.go.clear();
        }
        let found = GoProgram::of(&program).and_then(Result::ok);
        let found = found.filter(GoProgram::calls_c);
        self.go.entry(key).or_insert(found).clone()
    }
}

/// Returns a way to the file of a process, and which it is.
fn file_of(pid: u32) -> Option<(PathBuf, File)> {
    let program = PathBuf::from(format!("/proc/{pid}/exe"));
    let about = about(&program)?;
    Some((program, about))
}

/// Returns which file it is, as it is now.
fn about(file: &Path) -> Option<File> {
    let about = std::fs::metadata(file).ok()?;
    Some((about.dev(), about.ino(), about.mtime_nsec(), about.size()))
}

/// A function of an allocator, and the number of its family and prefix.
type Known = (usize, usize, Option<Call>);

/// Returns the functions of all allocators by their whole names; those that are not seen have no call.
fn names() -> &'static HashMap<Vec<u8>, Known> {
    static NAMES: OnceLock<HashMap<Vec<u8>, Known>> = OnceLock::new();
    NAMES.get_or_init(|| {
        let mut names = HashMap::new();
        for (number, family) in FAMILIES.iter().enumerate() {
            for (at, prefix) in family.prefixes.iter().enumerate() {
                let hooked = family
                    .functions
                    .iter()
                    .map(|(name, call)| (name, Some(*call)));
                let unseen = family.unseen.iter().map(|name| (name, None));
                for (name, call) in hooked.chain(unseen) {
                    names.insert(format!("{prefix}{name}").into_bytes(), (number, at, call));
                }
            }
        }
        names
    })
}

/// What was found of one allocator.
#[derive(Default)]
struct Found {
    functions: Vec<Function>,
    /// Parts of functions that lie elsewhere (`mi_free.cold`): name of the function, address, bytes.
    parts: Vec<(String, u64, u64)>,
    /// Those whose effects are not seen.
    unseen: Vec<Function>,
}

struct Function {
    name: String,
    call: Call,
    address: u64,
    bytes: u64,
    is_local: bool,
}

/// Makes the plan for a program or a library; `None` if it is none.
fn plan(file: &Path, root: &Path, whose: Whose<'_>) -> Option<Plan> {
    let elf = Elf::open(file)?;
    let found = search(&elf, root, whose);
    let mut plan = Plan::default();
    for ((family, _), one) in found {
        let (name, number) = (FAMILIES[family].name, plan.names.len());
        let has = |what: u8| one.functions.iter().any(|each| each.call.what == what);
        if !has(what::ACQUIRE) || !has(what::RELEASE) {
            continue;
        }
        match hooks(&elf, &one, number as u8, &mut plan) {
            Ok(hooks) if plan.hooks.len() + hooks.len() <= MOST_HOOKS && number < 4 => {
                plan.hooks.extend(hooks);
                plan.names.push(name);
            }
            Ok(_) => plan
                .unseen
                .push(whose.said(name, "it has too many functions")),
            Err(why) => plan.unseen.push(whose.said(name, &why)),
        }
    }
    if plan == Plan::default() {
        let nameless = names::nameless(&elf);
        plan.unseen
            .extend(nameless.map(|name| whose.said(name, names::NAMELESS)));
    }
    Some(plan)
}

/// Returns the functions of allocators in a file, by family and prefix.
fn search(elf: &Elf, root: &Path, whose: Whose<'_>) -> BTreeMap<(usize, usize), Found> {
    let mut found = BTreeMap::<(usize, usize), Found>::new();
    let by_lld = whose != Whose::Program && names::is_by_lld(elf);
    let own = elf
        .table(SYMTAB)
        .or_else(|| debug_file(elf, root)?.table(SYMTAB));
    let Some(table) = own.or_else(|| elf.table(DYNSYM)) else {
        return found;
    };
    for symbol in table.symbols() {
        if symbol.is_function && symbol.is_defined && symbol.address != 0 {
            let could_be_called =
                whose != Whose::Program && names::could_be_called(&symbol, by_lld);
            note(&mut found, &symbol, symbol.is_local && !could_be_called);
        }
    }
    found
}

fn note(found: &mut BTreeMap<(usize, usize), Found>, symbol: &Symbol<'_>, is_local: bool) {
    let dot = symbol.name.iter().position(|byte| *byte == b'.');
    let (whole, part) = symbol.name.split_at(dot.unwrap_or(symbol.name.len()));
    let Some(&(family, prefix, call)) = names().get(whole) else {
        return;
    };
    let name = String::from_utf8_lossy(whole).into_owned();
    let one = found.entry((family, prefix)).or_default();
    if part.starts_with(b".cold") {
        one.parts.push((name, symbol.address, symbol.bytes));
    } else if part.is_empty() {
        let into = match call.is_some() {
            true => &mut one.functions,
            false => &mut one.unseen,
        };
        into.push(Function {
            name,
            call: call.unwrap_or(families::COUNTED),
            address: symbol.address,
            bytes: symbol.bytes,
            is_local,
        });
    }
    // Others are copies for callers inside of the allocator.
}

fn debug_file(elf: &Elf, root: &Path) -> Option<Elf> {
    let id = elf.build_id()?;
    let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    let (folder, file) = hex.split_at_checked(2)?;
    let path = root
        .join(DEBUG_FILES)
        .join(folder)
        .join(format!("{file}.debug"));
    Elf::open(&path).filter(|debug| debug.build_id() == Some(id))
}

/// Returns the hooks for one allocator; why there are none (L1). Functions that are only counted are named in the plan, and
/// if they cannot be counted, that is said there.
fn hooks(elf: &Elf, found: &Found, number: u8, plan: &mut Plan) -> Result<Vec<Hook>, String> {
    if elf.machine != X86_64 {
        return Err("its functions are hooked on x86-64 only".into());
    }
    if let Some(local) = found.functions.iter().find(|one| one.is_local) {
        return Err(format!(
            "{} is a local symbol (hidden): optimisation of the whole program (LTO) may have changed how it is called",
            local.name
        ));
    }
    let mut hooks: Vec<Hook> = Vec::new();
    let mut by_address: HashMap<u64, &Function> = HashMap::new();
    for one in &found.functions {
        // One function under two names, or two that the linker found equal.
        if let Some(other) = by_address.insert(one.address, one)
            && !is_called_alike(one, other)
        {
            return Err(format!("{} and {} are one function", one.name, other.name));
        }
    }
    for one in by_address.values() {
        let code = elf
            .code(one.address, one.bytes.min(MOST_CODE))
            .unwrap_or_default();
        let other = x86::is_name_of(&code, one.address).and_then(|to| by_address.get(&to));
        // Its calls are recorded there.
        let is_name = other.is_some_and(|other| is_called_alike(one, other));
        if !is_name && one.call.what != what::MEASURE {
            let parts = found.parts.iter().filter(|part| part.0 == one.name);
            let hook = hook(elf, one, parts, number);
            hooks.push(hook.map_err(|why| format!("{}: {why}", one.name))?);
        }
    }
    for one in &found.unseen {
        let parts = found.parts.iter().filter(|part| part.0 == one.name);
        match hook(elf, one, parts, number).ok().filter(|_| !one.is_local) {
            Some(hook) => {
                plan.counted.push(one.name.clone());
                hooks.push(hook);
            }
            None => plan.unseen.push(format!(
                "calls of {} are neither recorded nor counted",
                one.name
            )),
        }
    }
    hooks.sort_by_key(|hook| hook.address);
    let overlap = |pair: &[Hook]| pair[0].address + u64::from(pair[0].length) > pair[1].address;
    if hooks.windows(2).any(overlap) {
        return Err("two of its functions overlap".into());
    }
    let measure = found
        .functions
        .iter()
        .filter(|one| one.call.what == what::MEASURE);
    let measure = measure.min_by_key(|one| one.address);
    hooks.extend(measure.map(|one| Hook::to_call(one.address, number, one.call)));
    Ok(hooks)
}

/// Returns whether two functions take the same of their callers.
fn is_called_alike(one: &Function, other: &Function) -> bool {
    let call = |one: &Function| (one.call.what, one.call.block, one.call.size, one.call.count);
    call(one) == call(other)
}

/// Returns the hook of a function (L2).
fn hook<'a>(
    elf: &Elf,
    one: &Function,
    mut parts: impl Iterator<Item = &'a (String, u64, u64)>,
    number: u8,
) -> Result<Hook, &'static str> {
    let read = |address, bytes| {
        if bytes == 0 || bytes > MOST_CODE {
            return Err("its length is not known");
        }
        elf.code(address, bytes)
            .ok_or("its code is not where its symbol says")
    };
    let code = read(one.address, one.bytes)?;
    let first = x86::beginning(&code, one.address)?;
    let address = one.address + first.kept as u64;
    let behind = address + JUMP_BYTES as u64;
    let enters = |code: &[u8], at| match x86::jumps_into(code, at, address, behind) {
        Some(false) => Ok(()),
        Some(true) => Err("it jumps into its own beginning"),
        None => Err("it has an instruction that is not known"),
    };
    enters(&code, one.address)?;
    parts.try_for_each(|&(_, at, bytes)| enters(&read(at, bytes)?, at))?;
    let mut hook = Hook::to_call(address, number, one.call);
    let bytes = &code[first.kept..first.kept + first.length];
    hook.expected[..bytes.len()].copy_from_slice(bytes);
    hook.moved[..first.moved.len()].copy_from_slice(&first.moved);
    hook.fixes[..first.fixes.len()].copy_from_slice(&first.fixes);
    hook.length = first.length as u8;
    hook.moved_length = first.moved.len() as u8;
    hook.fix_count = first.fixes.len() as u8;
    Ok(hook)
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
