//! Below the page floor: pages whose live blocks do not overlap become equal, and the kernel keeps one of them.
//!
//! ```text
//!   page A   a1 ·  ·  a4        the free slots of A get the bytes of B's blocks, those of B the bytes of A's:
//!   page B   ·  b2 b3 ·         both become  a1 b2 b3 a4, and same-page merging (KSM) maps one page for both
//! ```
//!
//! M1  Only free slots are written, under the lock of their heap, under which no slot becomes live (span.S5). What is in a
//!     magazine counts as live. So no thread is stopped, and no mapping, fork or system call of the program's changes.
//! M2  Blocks are copied while the program may write them. A torn copy makes pages differ, so that they are not merged;
//!     the block itself is not touched. The kernel compares and merges under write protection of its own, and the
//!     first write to a merged page gives that address a page of its own again.
//! M3  A slot that has the right bytes already is read and not written: a write would undo what was merged.
//!     So pages that are equal already are put together again first, and what lies free in all pages of a group is left as it
//!     is if it is the same in all; otherwise it is zero. What the program wiped before it freed it is wiped in all pages.
//! M4  Pages are of one heap: no block of a tenant's is compared with those of another. Their classes may differ: a page is
//!     known by which of its units of 16 bytes are live, since all sizes are multiples of that.
//! M5  Nothing may rest on what free slots hold: not under hardening, and a slot that is handed out by calloc is zeroed
//!     as every small block is.
//! M6  Only cold spans are meshed: their heap's slow paths have taken none for some ticks, and they have lost no block lately
//!     (changes.J2). A batch of pages is looked at in a tick, under the purge lock: when the purger has nothing else to do,
//!     as long as no more than a second of processor time is owed, at a hundredth of a processor; and while other heaps
//!     work, when nothing is owed. A heap that has not changed since is not looked at again.
//! M7  A span with meshed pages is marked, and its free slots are used last (changes.J4). A block that was freed there and is in a
//!     magazine is used as any other.
//!
//! Resident memory as the kernel counts it for a process (RSS) has each mapping; its proportional share (PSS), control
//! groups and MemAvailable have what there is.
//!
//! Not here: which pages go together (`groups`), when (`purger`), the merging, which is the kernel's (`/sys/kernel/mm/ksm`).

use skinflint_base::sync::{AtomicU32, AtomicU64, Ordering};
use skinflint_base::sys;
use skinflint_pages::PAGE;

mod groups;

use super::batch::PURGE_LOCK;
use crate::heaps::pool::{heaps, with_pool};
use crate::heaps::{changes, slow};
use crate::mechanism::class;
use crate::mechanism::guarded::Guarded;
use crate::mechanism::heap::Heap;
use crate::mechanism::lock::Who;
use crate::mechanism::map::map_entry;
use crate::mechanism::range::{at, base, limit, meta, offset_of};
use crate::mechanism::span::{KIND_SMALL, Span};
use crate::mechanism::{publish, remote};
use groups::{Candidate, Group, MEMBERS, Mask, UNIT, WORDS, group, not, overlap, runs, set};

/// Pages taken into account together: 64 MiB.
const BATCH: usize = 16_384;
/// Pages looked at or written in a part: some milliseconds, for which a fork may have to wait.
const PART: usize = 2_048;
/// The most spans for which a look holds the lock: a third of a millisecond, since their pages are read.
const CHUNK: u32 = 16;
/// The time for which a heap's slow paths have taken no span when it is meshed: six ticks.
const COLD_NS: u64 = 1_500_000_000;
/// The time that pays for a part, as a multiple of what it took, and what may be owed by a heap at rest.
const SHARE: u64 = 100;
const SLACK_NS: u64 = 100_000_000_000;
/// Slots of up to so many bytes are so many in a page that it matters whether they lie alike in two of them.
const ALIKE_MAX: usize = 1_024;
/// Number of pages whose free slots were written so far.
pub static WRITTEN: AtomicU64 = AtomicU64::new(0);

static WANTED: AtomicU32 = AtomicU32::new(0);
/// When all is paid for (M6); under the purge lock.
static PAID_NS: AtomicU64 = AtomicU64::new(0);

/// One page's bytes, put together; under the purge lock.
static IMAGE: Guarded<Image> = Guarded::new(Image([0; PAGE]));

#[repr(align(64))]
struct Image([u8; PAGE]);

/// When pages are meshed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    /// Where the kernel merges pages, as of the start.
    Auto,
    /// Always: the kernel may begin later.
    On,
    /// Never.
    Off,
}

/// Sets when pages are meshed. To be called once, at the start.
pub fn want(when: When) {
    let on = match when {
        When::On => true,
        When::Off => false,
        When::Auto => {
            let mut text = [0u8; 4];
            super::cgroup::read(b"/sys/kernel/mm/ksm/run\0", &mut text)
                .is_some_and(|text| text.first() == Some(&b'1'))
        }
    };
    WANTED.store(u32::from(on), Ordering::Relaxed); // ORDER: set at start
}

/// What comes next for the heap under way.
#[derive(Clone, Copy)]
enum Step {
    /// Pages are taken down.
    Gather,
    /// They are put into groups, of which there are so many.
    Write { groups: usize },
}

/// What follows a part of a step.
enum Next {
    More,
    Group,
    Heap,
}

/// How far it is. Dropping it loses nothing but work.
pub struct Mesh {
    who: Who,
    /// Offset of the heap under way; 0: none yet.
    heap: u32,
    class: usize,
    list: usize,
    visit: u8,
    step: Step,
    room: Option<Room>,
    /// Pages taken down, groups written, and whether all of the heap's pages were taken down.
    count: usize,
    written: usize,
    is_last: bool,
    pages: u32,
    groups: u32,
}

impl Mesh {
    /// Creates one that has not begun.
    pub fn new(who: Who) -> Mesh {
        Mesh {
            who,
            heap: 0,
            class: 0,
            list: 0,
            visit: 0,
            step: Step::Gather,
            room: None,
            count: 0,
            written: 0,
            is_last: false,
            pages: 0,
            groups: 0,
        }
    }

    /// Reports whether a part may be made now: `rests`, if the program's heaps do (M6). `None`: not before long.
    pub fn may(&self, now_ns: u64, rests: bool) -> Option<bool> {
        // ORDER: under the purge lock, or a look.
        let owing = PAID_NS.load(Ordering::Relaxed).saturating_sub(now_ns);
        match rests {
            false => Some(owing == 0),
            // What was begun goes on when a part more is paid for.
            true if owing > SLACK_NS && self.heap == 0 => None,
            true => Some(owing <= SLACK_NS),
        }
    }

    /// Notes what a part took (M6).
    pub fn pay(now_ns: u64, cpu_ns: u64) {
        // ORDER: as above; the purger alone pays.
        let paid_ns = PAID_NS.load(Ordering::Relaxed).max(now_ns);
        PAID_NS.store(paid_ns + SHARE * cpu_ns, Ordering::Relaxed); // ORDER: as above
    }

    /// Looks at some pages, or writes some. `true`: all were looked at, or nothing is to be meshed.
    pub fn part(&mut self) -> bool {
        // ORDER: set at start.
        if WANTED.load(Ordering::Relaxed) == 0 || slow::hardening().is_some() {
            return true;
        }
        self.room = self.room.take().or_else(Room::map);
        let Some(room) = self.room.take() else {
            return true;
        };
        if self.heap == 0 && !self.begin() {
            return true;
        }
        let mut left = PART;
        while left > 0 {
            if !PURGE_LOCK.lock(self.who) {
                return true;
            }
            let next = match self.step {
                Step::Gather => self.gather_some(&room, &mut left),
                Step::Write { groups } => self.write_some(&room, groups, &mut left),
            };
            PURGE_LOCK.unlock();
            match next {
                Next::More => {}
                Next::Group => {
                    let groups = group(
                        &mut room.candidates()[..self.count],
                        room.groups(),
                        room.order(),
                    );
                    (self.step, self.written) = (Step::Write { groups }, 0);
                }
                Next::Heap if !self.next_heap() => return true,
                Next::Heap => {}
            }
        }
        self.room = Some(room);
        false
    }

    /// Takes down pages, `left` at most.
    fn gather_some(&mut self, room: &Room, left: &mut usize) -> Next {
        let to = BATCH.min(self.count + (*left).max(MAX_PAGES_OF_A_SPAN));
        let (got, is_over) = self.gather(&mut room.candidates()[self.count..to]);
        self.count += got;
        // An empty list is a look, too.
        *left = left.saturating_sub(got + 1);
        let is_full = self.count + MAX_PAGES_OF_A_SPAN > BATCH;
        self.is_last = is_over && !self.next_list();
        if self.is_last || is_full {
            return Next::Group;
        }
        if !is_over {
            *left = 0;
        }
        Next::More
    }

    /// Writes groups, with about `left` pages.
    fn write_some(&mut self, room: &Room, groups: usize, left: &mut usize) -> Next {
        // SAFETY: heaps stay (pool.G4).
        let heap = unsafe { &*at::<Heap>(self.heap) };
        while self.written < groups && *left > 0 {
            let one = &room.groups()[self.written];
            self.written += 1;
            *left = left.saturating_sub(one.members as usize);
            if one.members > 1 {
                let kept = mesh(heap, self.who, room.candidates(), one);
                self.pages += kept;
                self.groups += u32::from(kept > 0);
            }
        }
        if self.written < groups {
            return Next::More;
        }
        (self.step, self.count) = (Step::Gather, 0);
        if self.is_last { Next::Heap } else { Next::More }
    }

    fn begin(&mut self) -> bool {
        const MERGEABLE: i32 = 12;
        // SAFETY: the heap's own range; the advice changes no content.
        let known = unsafe { sys::advise(base() as *mut u8, limit(), MERGEABLE) };
        known && self.at_next(heaps().find(|heap| is_cold(heap)))
    }

    fn at_next(&mut self, heap: Option<&Heap>) -> bool {
        if let Some(heap) = heap {
            self.at(heap);
        }
        heap.is_some()
    }

    fn at(&mut self, heap: &Heap) {
        self.heap = offset_of(heap);
        (self.class, self.list, self.pages, self.groups) = (0, 0, 0, 0);
        // From here on, what changes is to be seen again.
        heap.mesh_done.store(1, Ordering::Relaxed); // ORDER: under the purge lock
        // ORDER: only distinct numbers are wanted, as in `holes`.
        self.visit = (heap.walks.fetch_add(1, Ordering::Relaxed) % 255 + 1) as u8;
    }

    /// Goes on to the next list of the heap. `false`: there is none.
    fn next_list(&mut self) -> bool {
        self.list += 1;
        if self.list < 2 {
            return true;
        }
        (self.list, self.class) = (0, self.class + 1);
        self.class < class::count()
    }

    /// Goes on to the next heap. `false`: there is none.
    fn next_heap(&mut self) -> bool {
        // SAFETY: heaps stay (pool.G4).
        let heap = unsafe { &*at::<Heap>(self.heap) };
        // ORDER: statistics.
        heap.meshed_pages.store(self.pages, Ordering::Relaxed);
        heap.meshed_groups.store(self.groups, Ordering::Relaxed);
        let mut rest = heaps().skip_while(|heap| offset_of(*heap) != self.heap);
        rest.next();
        self.at_next(rest.find(|heap| is_cold(heap)))
    }

    /// Takes down pages of the list under way until there is no room, or no span that it has not seen: returns their number,
    /// and whether that was so.
    fn gather(&mut self, into: &mut [Candidate]) -> (usize, bool) {
        // SAFETY: heaps stay (pool.G4).
        let heap = unsafe { &*at::<Heap>(self.heap) };
        let size = class::get(self.class).size as usize;
        let mut count = 0;
        let list = match self.list {
            0 => &heap.partial[self.class],
            _ => &heap.full[self.class],
        };
        // ORDER: a look.
        while list.load(Ordering::Relaxed) != 0 && heap.lock.lock(self.who) {
            for _ in 0..CHUNK {
                // ORDER: the lock is held, throughout.
                let head = list.load(Ordering::Relaxed);
                // SAFETY: a listed span is live (heap.H3).
                let span = (head != 0).then(|| unsafe { &*at::<Span>(head) });
                let span = span.filter(|span| span.visit.load(Ordering::Relaxed) != self.visit);
                let has_room = count + MAX_PAGES_OF_A_SPAN <= into.len();
                let Some(span) = span.filter(|_| has_room) else {
                    heap.lock.unlock();
                    return (count, span.is_none());
                };
                span.visit.store(self.visit, Ordering::Relaxed); // ORDER: as above
                // ORDER: as above.
                list.store(span.next.load(Ordering::Relaxed), Ordering::Relaxed);
                changes::set_meshed(span, false);
                if !changes::is_noted(span.page()) {
                    // SAFETY: the lock is held, and the purge lock.
                    count += unsafe { take_down(span, size, &mut into[count..]) };
                }
            }
            heap.lock.unlock();
        }
        (count, true)
    }
}

/// A span has 16 pages at most.
const MAX_PAGES_OF_A_SPAN: usize = 16;

/// Room for a batch. A child of a fork does not have it.
struct Room(*mut u8);

impl Room {
    const GROUPS_AT: usize = BATCH * core::mem::size_of::<Candidate>();
    const ORDER_AT: usize = Room::GROUPS_AT + BATCH * core::mem::size_of::<Group>();
    const BYTES: usize = Room::ORDER_AT + BATCH * core::mem::size_of::<u16>();

    fn map() -> Option<Room> {
        const DONTFORK: i32 = 10;
        let room = sys::map_private(Room::BYTES);
        if room.is_null() {
            return None;
        }
        // SAFETY: a mapping of our own, which only this thread uses.
        unsafe { sys::advise(room, Room::BYTES, DONTFORK) };
        Some(Room(room))
    }

    #[allow(clippy::mut_from_ref)] // the three parts of a mapping of our own; each is borrowed once at a time
    fn candidates(&self) -> &mut [Candidate] {
        // SAFETY: mapped, zero is a value, and nothing else refers to it.
        unsafe { core::slice::from_raw_parts_mut(self.0.cast(), BATCH) }
    }

    #[allow(clippy::mut_from_ref)] // as above
    fn groups(&self) -> &mut [Group] {
        // SAFETY: as above.
        unsafe { core::slice::from_raw_parts_mut(self.0.add(Room::GROUPS_AT).cast(), BATCH) }
    }

    #[allow(clippy::mut_from_ref)] // as above
    fn order(&self) -> &mut [u16] {
        // SAFETY: as above.
        unsafe { core::slice::from_raw_parts_mut(self.0.add(Room::ORDER_AT).cast(), BATCH) }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        // SAFETY: a mapping of our own.
        unsafe { sys::unmap(self.0, Room::BYTES) };
    }
}

/// Reports whether a heap has stood still, and changed since it was meshed (M6).
fn is_cold(heap: &Heap) -> bool {
    // ORDER: the purger's own, and looks.
    let is_new = heap.mesh_done.load(Ordering::Relaxed) == 0;
    let has_pages = heap.pages.load(Ordering::Relaxed) > 0; // ORDER: as above
    let seen = heap.refills_seen.load(Ordering::Relaxed); // ORDER: as above
    let wanted_ns = heap.wanted_ns.load(Ordering::Relaxed); // ORDER: as above
    is_new
        && has_pages
        && heap.refills.load(Ordering::Relaxed) == seen // ORDER: as above
        && sys::monotonic_ns().saturating_sub(wanted_ns) >= COLD_NS
}

/// Returns how many pages lay in groups of two and more when they were last looked at, and how many groups there were.
pub fn totals() -> (u64, u64) {
    heaps()
        .filter(|heap| heap.pages.load(Ordering::Relaxed) > 0) // ORDER: statistics
        .fold((0, 0), |(pages, groups), heap| {
            let more = heap.meshed_groups.load(Ordering::Relaxed); // ORDER: as above
            (
                pages + u64::from(heap.meshed_pages.load(Ordering::Relaxed)), // ORDER: as above
                groups + u64::from(more),
            )
        })
}

/// Takes down the pages of a span that have live units and free ones, and are resident.
///
/// # Safety
/// The heap's lock is held, and the purge lock.
unsafe fn take_down(span: &Span, size: usize, into: &mut [Candidate]) -> usize {
    // ORDER: the lock is held (span.S3).
    let clean = span.clean.load(Ordering::Relaxed);
    let mut count = 0;
    for index in 0..span.pages() as usize {
        if clean >> index & 1 != 0 {
            continue;
        }
        let mask = live_of(span, size, index);
        if mask != [0; WORDS] && mask != [u64::MAX; WORDS] {
            into[count] = Candidate {
                mask,
                // SAFETY: a page of a live span, as the caller promises.
                hash: unsafe { hash_of(span.start() + index * PAGE) },
                page: span.page() + index as u32,
                key: key_of(span, size, index),
                next: 0,
                placed: false,
            };
            count += 1;
        }
    }
    count
}

/// Returns a hash of a page's bytes, which the program may be writing (M2).
///
/// # Safety
/// The page is mapped, and the purge lock is held.
unsafe fn hash_of(page: usize) -> u64 {
    // SAFETY: as the caller promises.
    let image = unsafe {
        let image = &mut (*IMAGE.get()).0;
        copy(page, image);
        image
    };
    let (words, _) = image.as_chunks::<8>();
    words.iter().fold(0, |hash: u64, word| {
        (hash.rotate_left(5) ^ u64::from_ne_bytes(*word)).wrapping_mul(0x517c_c1b7_2722_0a95)
    })
}

fn key_of(span: &Span, size: usize, index: usize) -> u32 {
    if size > ALIKE_MAX {
        return u32::MAX;
    }
    let index = if PAGE.is_multiple_of(size) { 0 } else { index };
    (span.class() * MAX_PAGES_OF_A_SPAN + index) as u32
}

/// Returns which units of one of a span's pages are live. The heap's lock is held.
fn live_of(span: &Span, size: usize, index: usize) -> Mask {
    let page = index * PAGE..(index + 1) * PAGE;
    let slots = span.slots as usize;
    let mut mask = [0; WORDS];
    for slot in (page.start / size).min(slots)..page.end.div_ceil(size).min(slots) {
        if span.free_bits(slot / 64) >> (slot % 64) & 1 == 0 {
            let within = |at: usize| at.clamp(page.start, page.end) - page.start;
            let (from, to) = (within(slot * size), within((slot + 1) * size));
            set(&mut mask, from / UNIT..to.div_ceil(UNIT));
        }
    }
    mask
}

/// A page that is meshed: its span, and which of its pages it is.
#[derive(Clone, Copy)]
struct Member {
    span: u32,
    page: u32,
    mask: Mask,
}

/// Gives the pages of a group the same bytes; returns how many there are, or 0.
fn mesh(heap: &Heap, who: Who, pages: &[Candidate], group: &Group) -> u32 {
    let none = Member {
        span: 0,
        page: 0,
        mask: [0; WORDS],
    };
    let mut members = [none; MEMBERS];
    let mut count = 0;
    let mut next = group.first;
    while let Some(page) = next.checked_sub(1).and_then(|i| pages.get(i as usize)) {
        members[count].page = page.page;
        count += 1;
        next = page.next;
    }
    if !heap.lock.lock(who) {
        return 0;
    }
    find(heap, who, &mut members[..count]);
    let kept = agree(&mut members[..count]);
    if kept > 1 {
        // SAFETY: the lock is held, and members are pages of this heap's spans; the purge lock, too.
        unsafe { write(&members[..kept]) };
        for member in &members[..kept] {
            // SAFETY: as in `agree`.
            changes::set_meshed(unsafe { &*at::<Span>(member.span) }, true);
        }
    }
    heap.lock.unlock();
    if kept > 1 { kept as u32 } else { 0 }
}

/// Finds the spans of pages; those that are no longer this heap's have none. While the pool's lock is held no descriptor is
/// given away, and while the heap's is, its own stay its own.
fn find(heap: &Heap, who: Who, members: &mut [Member]) {
    let end = (limit() / PAGE) as u32;
    with_pool(who, |_| {
        for member in members.iter_mut().filter(|member| member.page < end) {
            // SAFETY: below the limit.
            let offset = publish::found(unsafe { map_entry(member.page as usize * PAGE) });
            // SAFETY: entries lead to descriptors, and the pool's lock is held.
            let span = unsafe { &*at::<Span>(offset) };
            // ORDER: written under the pool's lock, or under the heap's, which is held.
            let is_small = span.kind.load(Ordering::Relaxed) == KIND_SMALL;
            let owner = remote::owner(&span.owner).wrapping_sub(meta() as u32);
            if offset != 0 && is_small && owner == offset_of(heap) {
                member.span = offset;
            }
        }
    });
}

/// Keeps the members, at the front, that are still the heap's and in which no unit is live that is in another; returns
/// how many.
fn agree(members: &mut [Member]) -> usize {
    let mut all = [0; WORDS];
    let mut kept = 0;
    for i in 0..members.len() {
        let mut member = members[i];
        if member.span == 0 {
            continue;
        }
        // SAFETY: found under the pool's lock, and the heap's is held since.
        let span = unsafe { &*at::<Span>(member.span) };
        let index = (member.page - span.page()) as usize;
        // ORDER: the lock is held (span.S3).
        let is_clean = span.clean.load(Ordering::Relaxed) >> index & 1 != 0;
        member.mask = live_of(span, span.size(), index);
        if !is_clean && !overlap(&all, &member.mask) {
            all.iter_mut().zip(member.mask).for_each(|(a, b)| *a |= b);
            members[kept] = member;
            kept += 1;
        }
    }
    kept
}

/// Puts the live blocks of all members together, and writes them into the free slots of each.
///
/// # Safety
/// The heap's lock is held, and the purge lock; members agree.
unsafe fn write(members: &[Member]) {
    // SAFETY: the purge lock is held.
    let image = unsafe { &mut (*IMAGE.get()).0 };
    let mut all = [0; WORDS];
    for member in members {
        all.iter_mut().zip(member.mask).for_each(|(a, b)| *a |= b);
    }
    for (i, member) in members.iter().enumerate() {
        let page = base() + member.page as usize * PAGE;
        if i == 0 {
            // SAFETY: the member's page (M2).
            unsafe { copy(page, image) };
            continue;
        }
        // SAFETY: within the page and the image (M2).
        runs(&member.mask, |bytes| unsafe {
            copy(page + bytes.start, &mut image[bytes]);
        });
        // Free in all: the same in all, or zero (M3).
        runs(&not(&all), |bytes| {
            if bytes_at(page + bytes.start, bytes.len()) != &image[bytes.clone()] {
                image[bytes].fill(0);
            }
        });
    }
    for member in members {
        let page = base() + member.page as usize * PAGE;
        let mut any = false;
        runs(&not(&member.mask), |bytes| {
            let at = page + bytes.start;
            let wanted = &image[bytes];
            if bytes_at(at, wanted.len()) != wanted {
                // SAFETY: free slots, which are the allocator's while the heap's lock is held (M1).
                unsafe { (at as *mut u8).copy_from_nonoverlapping(wanted.as_ptr(), wanted.len()) };
                any = true;
            }
        });
        WRITTEN.fetch_add(u64::from(any), Ordering::Relaxed); // ORDER: a statistic
    }
}

/// Returns the bytes of a free slot, or of a part of one. The heap's lock is held (M1).
fn bytes_at<'a>(at: usize, length: usize) -> &'a [u8] {
    // SAFETY: mapped, and no thread writes it (M1).
    unsafe { core::slice::from_raw_parts(at as *const u8, length) }
}

/// Copies bytes that the program may be writing (M2): in assembly, of which the compiler assumes nothing.
///
/// # Safety
/// As many bytes are mapped at `from`.
unsafe fn copy(from: usize, into: &mut [u8]) {
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as the caller promises.
    unsafe {
        let pairs = into.len() / 16;
        core::arch::asm!(
            "cbz {pairs}, 3f",
            "2: ldp {a}, {b}, [{from}], #16",
            "stp {a}, {b}, [{to}], #16",
            "subs {pairs}, {pairs}, #1",
            "b.ne 2b",
            "3: cbz {rest}, 5f",
            "4: ldrb {a:w}, [{from}], #1",
            "strb {a:w}, [{to}], #1",
            "subs {rest}, {rest}, #1",
            "b.ne 4b",
            "5:",
            pairs = inout(reg) pairs => _,
            rest = inout(reg) into.len() % 16 => _,
            from = inout(reg) from => _,
            to = inout(reg) into.as_mut_ptr() => _,
            a = out(reg) _,
            b = out(reg) _,
            options(nostack),
        );
    }
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as the caller promises.
    unsafe {
        core::arch::asm!(
            "rep movsb",
            inout("rcx") into.len() => _,
            inout("rsi") from => _,
            inout("rdi") into.as_mut_ptr() => _,
            options(nostack, preserves_flags),
        );
    }
}

#[cfg(test)]
mod tests;
