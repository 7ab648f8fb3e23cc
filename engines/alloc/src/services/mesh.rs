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
//! M4  Pages are of one class, and their slots lie alike in them; of one heap: no block of a tenant's is compared with those
//!     of another.
//! M5  Nothing may rest on what free slots hold: not under hardening, and a slot that is handed out by calloc is zeroed
//!     as every small block is.
//! M6  It is done when the purger has nothing else to do, a batch of pages in a tick, under the purge lock.
//!
//! Resident memory as the kernel counts it for a process (RSS) has each mapping; its proportional share (PSS), control
//! groups and MemAvailable have what there is.
//!
//! Not here: when (`purger`), the merging, which is the kernel's (`/sys/kernel/mm/ksm`).

use core::ops::Range;

use skinflint_base::sync::{AtomicU32, AtomicU64, Ordering};
use skinflint_base::sys;
use skinflint_pages::PAGE;

use crate::heaps::pool::{heaps, with_pool};
use crate::heaps::slow;
use crate::mechanism::class;
use crate::mechanism::guarded::Guarded;
use crate::mechanism::heap::Heap;
use crate::mechanism::lock::Who;
use crate::mechanism::map::map_entry;
use crate::mechanism::range::{at, base, limit, meta, offset_of};
use crate::mechanism::span::{KIND_SMALL, Span};
use crate::mechanism::{publish, remote};

/// Pages taken into account together: 16 MiB, some ten milliseconds of work.
const BATCH: usize = 4_096;
/// The most spans for which a look holds the lock.
const CHUNK: u32 = 64;
/// Groups that a page is tried against, the latest first.
const TRIED: usize = 256;
/// The most pages of a group.
const MEMBERS: usize = 64;
/// Words of a page's mask: a page has up to 256 slots.
const WORDS: usize = 4;

/// Number of pages that lie in groups of two and more, as of the last time that all were looked at, and of those groups.
pub static PAGES: AtomicU64 = AtomicU64::new(0);
pub static GROUPS: AtomicU64 = AtomicU64::new(0);
/// Number of pages whose free slots were written so far.
pub static WRITTEN: AtomicU64 = AtomicU64::new(0);

static WANTED: AtomicU32 = AtomicU32::new(0);

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

/// A page with live and free slots.
#[derive(Clone, Copy)]
struct Candidate {
    mask: [u64; WORDS],
    page: u32,
    /// Which of its span's pages it is, if that matters to how slots lie in it.
    key: u32,
    /// The next member of its group, by one more than its place; 0: none.
    next: u32,
}

#[derive(Clone, Copy)]
struct Group {
    mask: [u64; WORDS],
    first: u32,
    members: u32,
}

/// How far it is. Dropping it loses nothing but work.
pub struct Mesh {
    who: Who,
    /// Offset of the heap under way; 0: none yet.
    heap: u32,
    class: usize,
    list: usize,
    visit: u8,
    pages: u64,
    groups: u64,
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
            pages: 0,
            groups: 0,
        }
    }

    /// Meshes a batch of pages. `true`: all were looked at, or nothing is to be meshed. The purge lock is held.
    pub fn part(&mut self) -> bool {
        // ORDER: set at start.
        if WANTED.load(Ordering::Relaxed) == 0 || slow::HARDENED.load(Ordering::Relaxed) != 0 {
            return true;
        }
        if self.heap == 0 && !self.begin() {
            return true;
        }
        let Some(room) = Room::map() else {
            return true;
        };
        loop {
            let count = self.gather(room.candidates());
            if count > 0 {
                self.mesh(&room, count);
            }
            if count + MAX_PAGES_OF_A_SPAN > BATCH {
                return false;
            }
            if !self.go_on() {
                // ORDER: statistics.
                PAGES.store(self.pages, Ordering::Relaxed);
                GROUPS.store(self.groups, Ordering::Relaxed);
                return true;
            }
            // One class in a tick, of those that have any.
            if count > 0 {
                return false;
            }
        }
    }

    /// Meshes the pages that were taken down.
    fn mesh(&mut self, room: &Room, count: usize) {
        // SAFETY: heaps stay (pool.G4).
        let heap = unsafe { &*at::<Heap>(self.heap) };
        let groups = group(&mut room.candidates()[..count], room.groups());
        for one in &room.groups()[..groups] {
            if one.members > 1 {
                let kept = mesh(heap, self.who, self.class, room.candidates(), one);
                self.pages += u64::from(kept);
                self.groups += u64::from(kept > 0);
            }
        }
    }

    fn begin(&mut self) -> bool {
        const MERGEABLE: i32 = 12;
        // SAFETY: the heap's own range; the advice changes no content.
        let known = unsafe { sys::advise(base() as *mut u8, limit(), MERGEABLE) };
        let Some(heap) = heaps().next().filter(|_| known) else {
            return false;
        };
        self.at(heap);
        true
    }

    fn at(&mut self, heap: &Heap) {
        self.heap = offset_of(heap);
        (self.class, self.list) = (0, 0);
        // ORDER: only distinct numbers are wanted, as in `holes`.
        self.visit = (heap.walks.fetch_add(1, Ordering::Relaxed) % 255 + 1) as u8;
    }

    /// Goes on to the next list, class or heap. `false`: there is none.
    fn go_on(&mut self) -> bool {
        self.list += 1;
        if self.list < 2 {
            return true;
        }
        (self.list, self.class) = (0, self.class + 1);
        if self.class < class::count() {
            return true;
        }
        let next = heaps()
            .skip_while(|heap| offset_of(*heap) != self.heap)
            .nth(1);
        if let Some(heap) = next {
            self.at(heap);
        }
        next.is_some()
    }

    /// Takes down pages of the list under way until there is no room, or no span that it has not seen; goes on with
    /// further lists of the class only. Returns their number.
    fn gather(&mut self, into: &mut [Candidate]) -> usize {
        // SAFETY: heaps stay (pool.G4).
        let heap = unsafe { &*at::<Heap>(self.heap) };
        let size = class::get(self.class).size as usize;
        let mut count = 0;
        if 2 * size > PAGE {
            return 0;
        }
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
                let Some(span) = span.filter(|_| count + MAX_PAGES_OF_A_SPAN <= into.len()) else {
                    heap.lock.unlock();
                    return count;
                };
                span.visit.store(self.visit, Ordering::Relaxed); // ORDER: as above
                // ORDER: as above.
                list.store(span.next.load(Ordering::Relaxed), Ordering::Relaxed);
                count += take_down(span, size, &mut into[count..]);
            }
            heap.lock.unlock();
        }
        count
    }
}

/// A span has 16 pages at most.
const MAX_PAGES_OF_A_SPAN: usize = 16;

/// Room for a batch, for the time of a part.
struct Room(*mut u8);

impl Room {
    const GROUPS_AT: usize = BATCH * core::mem::size_of::<Candidate>();
    const BYTES: usize = Room::GROUPS_AT + BATCH * core::mem::size_of::<Group>();

    fn map() -> Option<Room> {
        let room = sys::map_private(Room::BYTES);
        (!room.is_null()).then_some(Room(room))
    }

    #[allow(clippy::mut_from_ref)] // the two parts of a mapping of our own; each is borrowed once at a time
    fn candidates(&self) -> &mut [Candidate] {
        // SAFETY: mapped, zero is a value, and nothing else refers to it.
        unsafe { core::slice::from_raw_parts_mut(self.0.cast(), BATCH) }
    }

    #[allow(clippy::mut_from_ref)] // as above
    fn groups(&self) -> &mut [Group] {
        // SAFETY: as above.
        unsafe { core::slice::from_raw_parts_mut(self.0.add(Room::GROUPS_AT).cast(), BATCH) }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        // SAFETY: a mapping of our own.
        unsafe { sys::unmap(self.0, Room::BYTES) };
    }
}

/// Takes down the pages of a span that have live slots and free ones, and are resident. The heap's lock is held.
fn take_down(span: &Span, size: usize, into: &mut [Candidate]) -> usize {
    // ORDER: the lock is held (span.S3).
    let clean = span.clean.load(Ordering::Relaxed);
    let mut count = 0;
    for index in 0..span.pages() as usize {
        if clean >> index & 1 != 0 {
            continue;
        }
        let slots = slots_of(span, size, index);
        let (mask, live) = live_of(span, &slots);
        if live > 0 && live < slots.len() {
            into[count] = Candidate {
                mask,
                page: span.page() + index as u32,
                key: if PAGE.is_multiple_of(size) {
                    0
                } else {
                    index as u32
                },
                next: 0,
            };
            count += 1;
        }
    }
    count
}

/// Returns the slots that touch a page of a span.
fn slots_of(span: &Span, size: usize, index: usize) -> Range<usize> {
    let slots = span.slots as usize;
    let first = index * PAGE / size;
    let end = ((index + 1) * PAGE).div_ceil(size);
    first.min(slots)..end.min(slots)
}

/// Returns which of these slots are live, the first of them in the lowest bit, and how many. The heap's lock is held.
fn live_of(span: &Span, slots: &Range<usize>) -> ([u64; WORDS], usize) {
    let (mut mask, mut live) = ([0; WORDS], 0);
    for (i, slot) in slots.clone().enumerate() {
        if span.free_bits(slot / 64) >> (slot % 64) & 1 == 0 {
            mask[i / 64] |= 1 << (i % 64);
            live += 1;
        }
    }
    (mask, live)
}

fn overlap(a: &[u64; WORDS], b: &[u64; WORDS]) -> bool {
    a.iter().zip(b).any(|(a, b)| a & b != 0)
}

/// Puts pages into groups in which no slot is live twice: the first that fits among the latest ones. Returns the number
/// of groups.
fn group(pages: &mut [Candidate], groups: &mut [Group]) -> usize {
    let mut count = 0usize;
    for key in 0..MAX_PAGES_OF_A_SPAN as u32 {
        let begun = count;
        for (i, page) in pages.iter_mut().enumerate() {
            if page.key != key {
                continue;
            }
            let oldest = begun.max(count.saturating_sub(TRIED));
            let fits = (oldest..count).rev().find(|&at| {
                groups[at].members < MEMBERS as u32 && !overlap(&groups[at].mask, &page.mask)
            });
            let at = fits.unwrap_or(count);
            if fits.is_none() {
                groups[at] = Group {
                    mask: [0; WORDS],
                    first: 0,
                    members: 0,
                };
                count += 1;
            }
            let into = &mut groups[at];
            into.mask
                .iter_mut()
                .zip(page.mask)
                .for_each(|(a, b)| *a |= b);
            page.next = core::mem::replace(&mut into.first, i as u32 + 1);
            into.members += 1;
        }
    }
    count
}

/// A page that is meshed: its span, and which of its pages it is.
#[derive(Clone, Copy)]
struct Member {
    span: u32,
    page: u32,
    mask: [u64; WORDS],
}

/// Gives the pages of a group the same bytes; returns how many there are, or 0.
fn mesh(heap: &Heap, who: Who, class: usize, pages: &[Candidate], group: &Group) -> u32 {
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
    let kept = agree(class, &mut members[..count]);
    if kept > 1 {
        // SAFETY: the lock is held, and members are pages of this heap's spans of this class; the purge lock, too.
        unsafe { write(class, &members[..kept]) };
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

/// Keeps the members, at the front, that are still of the class and in which no slot is live that is in another; returns
/// how many.
fn agree(class: usize, members: &mut [Member]) -> usize {
    let size = class::get(class).size as usize;
    let mut all = [0; WORDS];
    let mut kept = 0;
    for i in 0..members.len() {
        let mut member = members[i];
        // SAFETY: found under the pool's lock, and the heap's is held since.
        let span = unsafe { &*at::<Span>(member.span) };
        if member.span == 0 || span.class() != class {
            continue;
        }
        let index = (member.page - span.page()) as usize;
        // ORDER: the lock is held (span.S3).
        let is_clean = span.clean.load(Ordering::Relaxed) >> index & 1 != 0;
        (member.mask, _) = live_of(span, &slots_of(span, size, index));
        if !is_clean && !overlap(&all, &member.mask) {
            all.iter_mut().zip(member.mask).for_each(|(a, b)| *a |= b);
            members[kept] = member;
            kept += 1;
        }
    }
    kept
}

/// Calls `each` with the bytes in its page of every slot of a member, and whether the slot is live; and with the tail
/// behind a span's last slot, which is free.
fn parts(size: usize, member: &Member, mut each: impl FnMut(Range<usize>, bool)) {
    // SAFETY: as in `agree`.
    let span = unsafe { &*at::<Span>(member.span) };
    let from = (member.page - span.page()) as usize * PAGE;
    let slots = slots_of(span, size, from / PAGE);
    let within = |at: usize| at.clamp(from, from + PAGE) - from;
    for (i, slot) in slots.clone().enumerate() {
        let is_live = member.mask[i / 64] >> (i % 64) & 1 != 0;
        each(within(slot * size)..within((slot + 1) * size), is_live);
    }
    let tail = within(span.slots as usize * size)..PAGE;
    if !tail.is_empty() {
        each(tail, false);
    }
}

/// Puts the live blocks of all members together, and writes them into the free slots of each.
///
/// # Safety
/// The heap's lock is held, and the purge lock; members agree.
unsafe fn write(class: usize, members: &[Member]) {
    let size = class::get(class).size as usize;
    // SAFETY: the purge lock is held.
    let image = unsafe { &mut (*IMAGE.get()).0 };
    image.fill(0);
    for member in members {
        let page = base() + member.page as usize * PAGE;
        parts(size, member, |bytes, is_live| {
            if is_live {
                // SAFETY: within the page and the image (M2).
                unsafe { copy(page + bytes.start, &mut image[bytes]) };
            }
        });
    }
    for member in members {
        let page = base() + member.page as usize * PAGE;
        let mut any = false;
        parts(size, member, |bytes, is_live| {
            if is_live {
                return;
            }
            let at = (page + bytes.start) as *mut u8;
            let wanted = &image[bytes];
            // SAFETY: a free slot, which is the allocator's while the heap's lock is held (M1).
            unsafe {
                if core::slice::from_raw_parts(at, wanted.len()) != wanted {
                    at.copy_from_nonoverlapping(wanted.as_ptr(), wanted.len());
                    any = true;
                }
            }
        });
        WRITTEN.fetch_add(u64::from(any), Ordering::Relaxed); // ORDER: a statistic
    }
}

/// Copies bytes that the program may be writing (M2): in assembly, of which the compiler assumes nothing.
///
/// # Safety
/// As many bytes are mapped at `from`.
unsafe fn copy(from: usize, into: &mut [u8]) {
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
