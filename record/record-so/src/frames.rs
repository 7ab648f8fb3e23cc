//! Frames of Python, Ruby, PHP and Java among the native frames of a stack.
//!
//! ```text
//!   first event ─► is there a runtime? ─► PROVING ─ some chains read with care ─► READING
//!                        └─ none: OFF          └──── what contradicts its layout ────┴─► OFF, and why in the header
//!   capture ─► chain ─► plan ─► STACK records of both kinds of frames; CODE records before the words that need them
//! ```
//!
//! Y1  Chains are read only on the thread's own stack, and not in a handler that interrupted the interpreter: it may be
//!     between two stores that belong together.
//! Y2  The ring's stack has user frames only while `State::has_users`: a thread that was left with some writes its next
//!     stack through here, too, whatever the mode.
//!
//! Not here: what a chain is (`skinflint_frames`), events (stacks.rs).

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, Ordering};

use skinflint_base::loader::{Extent, LinkMap, Startup};
use skinflint_base::ring::{
    CODE_FIRST, CODE_HEAD_BYTES, CODE_LAST, CODE_PIECE_BYTES, FRAMES_ATTACHED, FRAMES_LATE,
    FRAMES_OF_JAVA, FRAMES_OF_PHP, FRAMES_OF_RUBY, FRAMES_READ, OBJECTS_LATE, STACK_CHUNK, tag,
    user_word, word,
};
use skinflint_frames::{
    Code, Language, Natives, Plan, Program, Reader, State, Text, Trust, thread_pointer,
};
use skinflint_unwind::{Capture, End};

use crate::emit::{self, stack_word};
use crate::state::ThreadState;
use crate::{process, real};

/// Nothing is read.
const OFF: u8 = 0;
/// Chains are read with care.
const PROVING: u8 = 1;
/// The layout is proved.
const READING: u8 = 2;

/// The chains that prove a layout.
const PROOFS: u32 = 16;

static MODE: AtomicU8 = AtomicU8::new(OFF);
static PROVED: AtomicU32 = AtomicU32::new(0);
/// What the header of this process says, and of a child of fork.
static STATUS: AtomicU32 = AtomicU32::new(0);
static VERSION: AtomicU32 = AtomicU32::new(0);
/// What is added to a status, by the language.
static LANGUAGE: AtomicU32 = AtomicU32::new(0);

/// The thread that captured a stack last.
static LAST: AtomicPtr<ThreadState> = AtomicPtr::new(core::ptr::null_mut());

struct Here(UnsafeCell<Option<Reader>>);
// SAFETY: written once: by `prepare`, before any thread captures a stack, or by `begin`, before MODE says that there is one.
unsafe impl Sync for Here {}
static HERE: Here = Here(UnsafeCell::new(None));

/// Looks for a runtime, once, and says in the header of this process what came of it. The only recording thread calls it.
pub fn prepare() {
    // ORDER: Relaxed throughout; one thread, and others begin after it.
    if STATUS.load(Ordering::Relaxed) == 0 && cfg!(target_arch = "x86_64") {
        let Some(objects) = real::startup() else {
            return;
        };
        // SAFETY: objects of the start are relocated before code of theirs runs, and stay.
        let Some(found) = (unsafe { Reader::find(&Objects(objects)) }) else {
            return;
        };
        let language = match found.language {
            Language::Python => 0,
            Language::Ruby => FRAMES_OF_RUBY,
            Language::Php => FRAMES_OF_PHP,
            Language::Java => FRAMES_OF_JAVA,
        };
        let (status, version) = match found.reader {
            Err(why) => (why as u32, found.version),
            Ok(reader) => {
                // SAFETY: see `Here`.
                unsafe { *HERE.0.get() = Some(reader) };
                MODE.store(PROVING, Ordering::Relaxed); // ORDER: as above.
                (FRAMES_READ, found.version)
            }
        };
        LANGUAGE.store(language, Ordering::Relaxed); // ORDER: as above.
        VERSION.store(version, Ordering::Relaxed); // ORDER: as above.
        STATUS.store(status, Ordering::Relaxed);
    }
    publish(STATUS.load(Ordering::Relaxed)); // ORDER: as above.
}

/// Whether an interpreter was found, or refused.
pub fn is_decided() -> bool {
    // ORDER: Relaxed; a machine that is found twice is begun once.
    STATUS.load(Ordering::Relaxed) != 0
}

/// Takes a virtual machine that was loaded after the program was started, or says why it is refused. Called once, by one thread.
pub fn begin(found: Result<Reader, skinflint_frames::Refusal>, version: u32) {
    LANGUAGE.store(FRAMES_OF_JAVA, Ordering::Relaxed); // ORDER: Relaxed; only `publish` reads it.
    VERSION.store(version, Ordering::Relaxed); // ORDER: as above.
    let status = match found {
        Err(why) => why as u32,
        Ok(reader) => {
            // SAFETY: see `Here`; one thread, and no other reads it before the store below.
            unsafe { *HERE.0.get() = Some(reader) };
            // ORDER: Release; pairs with the Acquire of `mode` and of `read`.
            MODE.store(PROVING, Ordering::Release);
            FRAMES_READ
        }
    };
    STATUS.store(status, Ordering::Relaxed); // ORDER: as above.
    publish(status);
}

/// Returns the reader, and whether its layout is proved.
pub fn reader() -> Option<(&'static Reader, bool)> {
    // ORDER: Acquire, as in `read`.
    let mode = MODE.load(Ordering::Acquire);
    // SAFETY: see `Here`.
    let reader = unsafe { (*HERE.0.get()).as_ref() };
    reader
        .filter(|_| mode != OFF)
        .map(|reader| (reader, mode == READING))
}

/// Reads nothing any more.
pub fn end() {
    MODE.store(OFF, Ordering::Relaxed); // ORDER: Relaxed; a flag.
}

/// What the objects of the start export.
struct Objects(Startup);

impl Program for Objects {
    fn look(&self, name: &CStr) -> *mut c_void {
        self.0.first(name, false)
    }

    fn extent(&self, name: &CStr) -> Option<Extent> {
        self.0.extent(name)
    }

    /// Objects of the start have their part of each thread at the same distance from the thread's pointer (the psABI's
    /// static TLS); the loader tells where this thread's is.
    fn thread_distance(&self, name: &CStr) -> Option<u64> {
        const TLS_DATA: c_int = 10;
        let (object, at) = self.0.thread_local(name)?;
        let dlinfo = self.look(c"dlinfo");
        if dlinfo.is_null() {
            return None;
        }
        let mut part = core::ptr::null_mut::<c_void>();
        // SAFETY: the C library's; an object is its `link_map`, and the request writes a pointer.
        let failed = unsafe {
            let ask = core::mem::transmute::<
                *mut c_void,
                unsafe extern "C" fn(*const LinkMap, c_int, *mut *mut c_void) -> c_int,
            >(dlinfo);
            ask(object, TLS_DATA, &raw mut part)
        };
        let is_there = failed == 0 && !part.is_null();
        is_there.then(|| {
            (part as u64)
                .wrapping_add(at)
                .wrapping_sub(thread_pointer())
        })
    }
}

/// Says that Python is in a module that code is met in, if it was not there when the program was started.
///
/// # Safety
/// The module is loaded.
pub unsafe fn met(module: &LinkMap) {
    // ORDER: Relaxed throughout; the caller reports modules alone.
    if STATUS.load(Ordering::Relaxed) != 0 {
        return;
    }
    // SAFETY: as the caller promises.
    if unsafe { module.function(c"PyGILState_GetThisThreadState") }.is_null() {
        return;
    }
    objects_are_late();
    let status = match real::startup() {
        Some(_) => FRAMES_LATE,
        None => FRAMES_ATTACHED,
    };
    // SAFETY: as above; a constant of that type.
    let version = unsafe {
        let at = module.function(c"Py_Version").cast::<u32>();
        at.as_ref().copied().unwrap_or(0)
    };
    VERSION.store(version, Ordering::Relaxed); // ORDER: as above.
    STATUS.store(status, Ordering::Relaxed);
    publish(status);
}

/// Says that small objects of a Python that was met late are not recorded, if they were asked for.
fn objects_are_late() {
    // ORDER: Relaxed throughout; set before the program began, and a flag that is read once the process has ended.
    let wanted = process::session().is_some_and(|page| page.objects.load(Ordering::Relaxed) != 0);
    if let Some(header) = process::header().filter(|_| wanted) {
        let (none, late) = (0, OBJECTS_LATE);
        let _ = header
            .objects
            .compare_exchange(none, late, Ordering::Relaxed, Ordering::Relaxed); // ORDER: as above.
    }
}

fn publish(status: u32) {
    if let Some(header) = process::header() {
        // ORDER: Relaxed for all; read once the process has ended.
        let version = VERSION.load(Ordering::Relaxed);
        header.frames_version.store(version, Ordering::Relaxed);
        let language = LANGUAGE.load(Ordering::Relaxed);
        header.frames.store(status + language, Ordering::Relaxed);
    }
}

/// Returns whether a thread's stacks are written here (Y2). Cost: two loads.
#[inline(always)]
pub fn wants(state: *mut ThreadState) -> bool {
    // SAFETY: state.H1. ORDER: Relaxed; a thread that sees the change one event late reads one chain more.
    MODE.load(Ordering::Relaxed) != OFF || unsafe { (*state).frames.has_users() }
}

struct Captured<'a, 'b>(&'b Capture<'a>);

impl Natives for Captured<'_, '_> {
    fn total(&self) -> usize {
        self.0.total
    }

    fn keep(&self) -> usize {
        self.0.keep
    }

    fn pc(&self, index: usize) -> u64 {
        self.0.all.pc(index)
    }

    fn slot(&self, index: usize) -> u64 {
        self.0.all.slot(index)
    }

    fn is_whole(&self) -> bool {
        self.0.end == End::Complete
    }
}

/// Writes what is new of a stack, with the frames of the interpreter.
///
/// # Safety
/// state.H1, RECORDING; `captured` is this thread's newest capture, from `sp` on.
pub unsafe fn write(state: *mut ThreadState, captured: &Capture<'_>, sp: u64) -> bool {
    // SAFETY: as the caller promises.
    unsafe {
        let plan = read(state, captured, sp);
        let (natives, users) = (plan.natives, plan.users);
        let frames = &(*state).frames;
        let hidden = |count| frames.hidden_among(&Captured(captured), count);
        let keep = natives + users - hidden(natives);
        let total = captured.total + plan.all_users - hidden(captured.total);
        if keep == total && total == (*state).depth {
            return true;
        }
        if let Some(written) = write_known(state, captured, &plan, (keep, total)) {
            if written {
                (*state).depth = total;
            }
            return written;
        }
        let mut pieces = Pieces::new(state, keep, captured.end);
        let (mut at, mut user) = (natives, users);
        let mut natives = captured.all.from(natives).iter();
        loop {
            while (*state).frames.is_after(user, at)
                && let Some(next) = (*state).frames.user(user)
            {
                if next.is_new && !(pieces.flush() && copy(state, user, next.slot)) {
                    return false;
                }
                if !pieces.put(user_word(next.slot, next.unit)) {
                    return false;
                }
                user += 1;
            }
            let Some(pc) = natives.next() else { break };
            if !(*state).frames.hides(pc) && !pieces.put(pc) {
                return false;
            }
            at += 1;
        }
        if !pieces.finish() {
            return false;
        }
        (*state).depth = total;
    }
    true
}

/// The most new frames of an interpreter of a stack that is written at once.
const MOST_AT_ONCE: usize = 8;

/// Writes what is new of a stack as one record, of which the ring keeps so many frames of so many. `None` if it is too much
/// for one, or a code has to be copied first.
///
/// # Safety
/// As for `write`.
#[inline(always)]
unsafe fn write_known(
    state: *mut ThreadState,
    captured: &Capture<'_>,
    plan: &Plan,
    (keep, total): (usize, usize),
) -> Option<bool> {
    let mut users = [(0, 0, 0); MOST_AT_ONCE];
    let count = total - keep;
    // SAFETY: as the caller promises; there is room for all words.
    unsafe {
        let frames: &State = &(*state).frames;
        let known = frames.known_users(plan.users, &mut users)?;
        let mut users = users.get(..known)?.iter().peekable();
        if count > STACK_CHUNK {
            return None;
        }
        let Some(mut cursor) = (*state).ring.begin(1 + count) else {
            emit::count_lost();
            return Some(false);
        };
        cursor.put(stack_word(count, keep, captured.end));
        for (at, pc) in (plan.natives..).zip(captured.all.from(plan.natives).iter()) {
            while let Some((_, slot, unit)) = users.next_if(|user| user.0 as usize <= at) {
                cursor.put(user_word(*slot as usize, *unit));
            }
            if !frames.hides(pc) {
                cursor.put(pc);
            }
        }
        for (_, slot, unit) in users {
            cursor.put(user_word(*slot as usize, *unit));
        }
        (*state).ring.end(cursor);
    }
    Some(true)
}

/// Reads the chain, and decides what is kept.
///
/// # Safety
/// As for `write`.
unsafe fn read(state: *mut ThreadState, captured: &Capture<'_>, sp: u64) -> Plan {
    let natives = Captured(captured);
    // SAFETY: state.H1; see `Here`.
    unsafe {
        let frames: &mut State = &mut (*state).frames;
        // ORDER: Acquire; pairs with the Release of `begin`, which wrote what is read next.
        let mode = MODE.load(Ordering::Acquire);
        let Some(reader) = (*HERE.0.get()).as_ref().filter(|_| mode != OFF) else {
            return frames.read_nothing(&natives);
        };
        let is_next = is_next(state);
        // Y1: kept frames may hold a handler's, too.
        let signal = &mut (*state).first_signal;
        if *signal > captured.keep {
            *signal = 0;
        }
        if *signal == 0
            && let Some(index) = captured.fresh.first_signal()
        {
            *signal = captured.keep + index + 1;
        }
        if *signal != 0 || captured.foreign {
            count_unread();
            return frames.read_nothing(&natives);
        }
        let bounds = (sp, (*state).stack_bounds.1);
        let trust = Trust {
            proved: mode == READING,
            is_next,
        };
        match frames.read(reader, trust, bounds, &natives) {
            Ok((plan, unread)) => {
                if unread {
                    count_unread();
                }
                if mode == PROVING && plan.all_users != 0 {
                    // ORDER: Relaxed; a count, and one chain more or less proves the same.
                    let proved = PROVED.fetch_add(1, Ordering::Relaxed) + 1;
                    if proved == PROOFS {
                        // A refusal of another thread stays: it has changed the mode.
                        let _ = MODE.compare_exchange(
                            PROVING,
                            READING,
                            Ordering::Relaxed, // ORDER: Relaxed; guards no other data.
                            Ordering::Relaxed,
                        );
                    }
                }
                plan
            }
            Err(why) => {
                // ORDER: Relaxed for both; flags.
                MODE.store(OFF, Ordering::Relaxed);
                STATUS.store(why as u32, Ordering::Relaxed);
                publish(why as u32);
                frames.read_nothing(&natives)
            }
        }
    }
}

/// Returns whether this thread captured the last stack, too, and every acquisition has one: then no code was made meanwhile.
///
/// # Safety
/// As for `write`; once for each capture.
#[inline(always)]
unsafe fn is_next(state: *mut ThreadState) -> bool {
    // ORDER: Relaxed; code that another thread makes comes to this one by way of the interpreter's lock, which orders both.
    let is_last = LAST.load(Ordering::Relaxed) == state;
    if !is_last {
        LAST.store(state, Ordering::Relaxed); // ORDER: as above.
    }
    // SAFETY: state.H1.
    is_last && unsafe { (*state).rate == 0 }
}

#[cold]
fn count_unread() {
    if let Some(header) = process::header() {
        header.frames_unread.fetch_add(1, Ordering::Relaxed); // ORDER: Relaxed; a counter.
    }
}

/// The words of a stack on their way into `STACK` records.
pub struct Pieces {
    state: *mut ThreadState,
    /// The frames before the first word.
    keep: usize,
    count: usize,
    written: bool,
    end: End,
    words: [u64; STACK_CHUNK],
}

impl Pieces {
    /// Begins behind the frames that the ring keeps.
    #[inline(always)]
    pub fn new(state: *mut ThreadState, keep: usize, end: End) -> Pieces {
        Pieces {
            state,
            keep,
            count: 0,
            written: false,
            end,
            words: [0; STACK_CHUNK],
        }
    }

    /// Writes the rest; the record is there even if nothing but what is kept changed.
    ///
    /// # Safety
    /// As for `put`.
    #[inline(always)]
    pub unsafe fn finish(&mut self) -> bool {
        // SAFETY: as the caller promises.
        self.count == 0 && self.written || unsafe { self.flush_always() }
    }

    /// Adds a word.
    ///
    /// # Safety
    /// state.H1, RECORDING; so for the others.
    #[inline(always)]
    pub unsafe fn put(&mut self, word: u64) -> bool {
        if self.count == STACK_CHUNK {
            // SAFETY: as the caller promises.
            if !unsafe { self.flush() } {
                return false;
            }
        }
        if let Some(to) = self.words.get_mut(self.count) {
            *to = word;
            self.count += 1;
        }
        true
    }

    /// # Safety
    /// As for `put`.
    unsafe fn flush(&mut self) -> bool {
        // SAFETY: as the caller promises.
        self.count == 0 || unsafe { self.flush_always() }
    }

    /// # Safety
    /// As for `put`.
    unsafe fn flush_always(&mut self) -> bool {
        // SAFETY: as the caller promises; the room is made for all words.
        unsafe {
            let Some(mut cursor) = (*self.state).ring.begin(1 + self.count) else {
                emit::count_lost();
                return false;
            };
            cursor.put(stack_word(self.count, self.keep, self.end));
            for word in self.words.iter().take(self.count) {
                cursor.put(*word);
            }
            (*self.state).ring.end(cursor);
        }
        self.keep += self.count;
        self.count = 0;
        self.written = true;
        true
    }
}

/// Copies the code of a user frame, which has the slot from now on.
///
/// # Safety
/// state.H1, RECORDING; the frame is of the newest capture.
#[cold]
#[inline(never)]
unsafe fn copy(state: *mut ThreadState, user: usize, slot: usize) -> bool {
    // SAFETY: state.H1; see `Here`.
    unsafe {
        let reader = (*HERE.0.get()).as_ref();
        let frames: &mut State = &mut (*state).frames;
        let Some(code) = reader.and_then(|reader| frames.code(reader, user)) else {
            return true;
        };
        let bytes = Bytes::of(&code);
        let mut at = 0;
        while at < bytes.total {
            let len = (bytes.total - at).min(CODE_PIECE_BYTES);
            let words = len.div_ceil(8);
            let Some(mut cursor) = (*state).ring.begin(1 + words) else {
                frames.forget_code(slot);
                emit::count_lost();
                return false;
            };
            let first = u8::from(at == 0) * CODE_FIRST;
            let last = u8::from(at + len == bytes.total) * CODE_LAST;
            let low = (slot as u64) << 16 | len as u64;
            cursor.put(word(tag::CODE, first | last, low));
            for index in 0..words {
                cursor.put(bytes.word(at + index * 8));
            }
            (*state).ring.end(cursor);
            at += len;
        }
    }
    true
}

/// The bytes of a code, as `tag::CODE` has them.
struct Bytes {
    head: [u32; CODE_HEAD_BYTES / 4],
    texts: [Text; 4],
    total: usize,
}

impl Bytes {
    fn of(code: &Code) -> Bytes {
        let texts = [code.file, code.name, code.table, code.class];
        let [file, name, table, class] = texts.map(|text| text.bytes as u32);
        let widths = code.file.width | code.name.width << 8 | class << 16;
        Bytes {
            head: [code.minor, code.first_line, file, name, table, widths],
            total: CODE_HEAD_BYTES + texts.iter().map(|text| text.bytes).sum::<usize>(),
            texts,
        }
    }

    fn word(&self, at: usize) -> u64 {
        let mut word = 0;
        for index in 0..8 {
            word |= u64::from(self.byte(at + index)) << (index * 8);
        }
        word
    }

    fn byte(&self, at: usize) -> u8 {
        if let Some(number) = self.head.get(at / 4) {
            return (number >> (at % 4 * 8)) as u8;
        }
        let mut at = at - CODE_HEAD_BYTES;
        for text in &self.texts {
            if at < text.bytes {
                return text.byte(at);
            }
            at -= text.bytes;
        }
        0
    }
}
