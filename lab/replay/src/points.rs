//! Points: resident memory, live bytes and the floor at chosen moments.
//!
//! ```text
//!   all is quiet ─► RssAnon, RssShmem (/proc/self) − our own (memfd) ─► line of the report
//!                └► slots ─► pages that hold a live block ─► floor
//! ```
//!
//! Q1  A point is taken when no thread plays (feed.E3), so slots and tallies stand still.
//! Q2  The floor is the number of distinct 4 KiB pages that hold a requested byte of a live block, at the addresses
//!     of this run, and are resident: what the program never touched of a large block needs no memory. Pages strictly
//!     inside a block are counted, its first and last are marked in a set.
//! Q3  The set's memory is ours (memory.rs) and given back at once. A group with a page in it stands for 2 MiB of
//!     addresses; if a heap has so many groups that the room does not suffice, there is no figure.
//! Q4  `rss_bytes` is anonymous plus shared memory of the process, minus what is ours: allocators with shared memory
//!     count too. It includes what the C library and the loader dirty, which is the same for every allocator.
//!
//! Not here: when points are due (the script says so).

use core::sync::atomic::Ordering;

use skinflint_replay::script::{Epoch, point};

use crate::line::Line;
use crate::slots::Slot;
use crate::stage::Stage;
use crate::system;

const PAGE_SHIFT: u32 = 12;
/// The number of pages of a group, which is an entry of the set.
const GROUP_PAGES: u64 = 512;

/// An entry of the set: the group's number + 1, and a bit for each of its pages.
#[repr(C)]
struct Group {
    key: u64,
    pages: [u64; (GROUP_PAGES / 64) as usize],
}

/// A set of pages, in scratch memory.
struct PageSet {
    groups: *mut Group,
    mask: usize,
    used: usize,
    /// The number of groups for which there is room behind `groups`.
    room: usize,
}

impl PageSet {
    fn new(stage: &Stage) -> PageSet {
        PageSet {
            groups: stage.memory.scratch().cast(),
            mask: (1 << 10) - 1,
            used: 0,
            room: stage.memory.scratch_bytes() / size_of::<Group>(),
        }
    }

    fn group(&mut self, number: u64) -> &mut Group {
        let mut at = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & self.mask;
        loop {
            // SAFETY: below the capacity, which `grow` keeps inside the scratch area; zeros are an empty group (memory.A3).
            let group = unsafe { &mut *self.groups.add(at) };
            if group.key == number + 1 {
                return group;
            }
            if group.key == 0 {
                group.key = number + 1;
                self.used += 1;
                return group;
            }
            at = (at + 1) & self.mask;
        }
    }

    /// Marks a page; returns whether it is new, or `None` if there is no more room.
    fn mark(&mut self, page: u64) -> Option<bool> {
        if self.used * 2 > self.mask && !self.grow() {
            return None;
        }
        let group = self.group(page / GROUP_PAGES);
        let (word, bit) = ((page % GROUP_PAGES / 64) as usize, 1 << (page % 64));
        let is_new = group.pages[word] & bit == 0;
        group.pages[word] |= bit;
        Some(is_new)
    }

    /// Moves to a table of twice the size, which lies behind the old one.
    fn grow(&mut self) -> bool {
        let capacity = self.mask + 1;
        if capacity * 3 > self.room {
            return false;
        }
        let old = self.groups;
        // SAFETY: inside the scratch area: there is room for the old table and one of twice its size.
        self.groups = unsafe { old.add(capacity) };
        self.room -= capacity;
        self.mask = capacity * 2 - 1;
        self.used = 0;
        for at in 0..capacity {
            // SAFETY: an entry of the old table, which no thread changes now.
            let group = unsafe { &*old.add(at) };
            if group.key != 0 {
                self.group(group.key - 1).pages = group.pages;
            }
        }
        true
    }
}

/// The size from which the pages of blocks are looked at one by one: smaller blocks are touched whole.
const LARGE_BYTES: u64 = 16 << 10;
/// The number of pages asked for at a time.
const LOOK_PAGES: usize = 4096;

/// Returns how many of these pages are resident.
fn resident_pages(mut first: u64, end: u64) -> u64 {
    let mut there = [0_u8; LOOK_PAGES];
    let mut count = 0;
    while first < end {
        let pages = (end - first).min(LOOK_PAGES as u64);
        // SAFETY: the kernel writes one byte for each page, at most `LOOK_PAGES`; the pages are only asked about.
        let error = unsafe {
            let at = (first << PAGE_SHIFT) as *mut libc::c_void;
            libc::mincore(at, (pages << PAGE_SHIFT) as usize, there.as_mut_ptr())
        };
        match error {
            0 => {
                count += there[..pages as usize]
                    .iter()
                    .filter(|&&page| page & 1 != 0)
                    .count() as u64
            }
            _ => count += pages,
        }
        first += pages;
    }
    count
}

/// Counts the pages that hold a live block (Q2); slots up to `top` are looked at.
fn floor_pages(stage: &Stage, top: u32) -> Option<u64> {
    let mut set = PageSet::new(stage);
    let mut pages = 0;
    for number in 0..=top as usize {
        // SAFETY: slots.S1: `top` was used.
        let slot: &Slot = unsafe { &*stage.slots().add(number) };
        let state = slot.state();
        let address = slot.address();
        if !state.is_live() || address == 0 || state.size() == 0 {
            continue;
        }
        let first = address >> PAGE_SHIFT;
        let last = (address + state.size() - 1) >> PAGE_SHIFT;
        if state.size() < LARGE_BYTES {
            pages += u64::from(set.mark(first)?);
            if last != first {
                pages += u64::from(set.mark(last)?) + (last - first - 1);
            }
            continue;
        }
        for edge in [first, last] {
            if resident_pages(edge, edge + 1) != 0 {
                pages += u64::from(set.mark(edge)?);
            }
        }
        pages += resident_pages(first + 1, last);
    }
    Some(pages)
}

/// Returns a field of /proc/self/status, in bytes.
fn field(text: &[u8], name: &[u8]) -> u64 {
    let mut lines = text.split(|&byte| byte == b'\n');
    let Some(line) = lines.find(|line| line.starts_with(name)) else {
        return 0;
    };
    let digits = line.iter().filter(|byte| byte.is_ascii_digit());
    digits.fold(0_u64, |sum, &byte| sum * 10 + u64::from(byte - b'0')) * 1024
}

/// Returns the (anonymous, shared) resident memory of this process.
fn resident() -> (u64, u64) {
    let fd = system::open(c"/proc/self/status", libc::O_RDONLY);
    if fd < 0 {
        return (0, 0);
    }
    let mut text = [0; 4096];
    let len = system::read_full(fd, &mut text).unwrap_or(0);
    system::close(fd);
    (
        field(&text[..len], b"RssAnon:"),
        field(&text[..len], b"RssShmem:"),
    )
}

/// The names of the points of an epoch.
const NAMES: [(u32, &[u8]); 5] = [
    (point::PROGRESS, b"progress"),
    (point::PEAK, b"peak"),
    (point::AFTER_FREE, b"after_free"),
    (point::MARK, b"mark"),
    (point::END, b"end"),
];

/// Takes the points of an epoch (Q1), one line each.
pub fn take(stage: &'static Stage, epoch: &Epoch) {
    let sum = stage.sum();
    let is_whole = sum.refused == 0 && sum.order_violations == 0 && sum.double_uses == 0;
    let matches = sum.live_bytes == epoch.live_bytes as i64
        && sum.live_blocks == i64::from(epoch.live_blocks);
    if is_whole && !matches {
        stage.fail(2, u64::MAX, b"live bytes are other than the script says: it leaves something out; compile the trace again");
    }
    if epoch.flags & point::END != 0 && stage.options.paced_milli != 0 {
        let (_, due_ns) = crate::player::due_ns(stage, stage.header.recorded_ns);
        system::sleep_until(due_ns);
    }
    for (flag, name) in NAMES {
        if epoch.flags & flag != 0 {
            let mark = (flag == point::MARK).then_some(epoch.mark);
            say(
                stage,
                name,
                epoch.first_op,
                epoch.time_ns,
                flag != point::PROGRESS,
                mark,
            );
        }
    }
}

/// Writes one line of the report: what is resident now.
pub fn say(
    stage: &Stage,
    name: &[u8],
    op: u64,
    recorded_ns: u64,
    with_floor: bool,
    mark: Option<u32>,
) {
    let sum = stage.sum();
    let own = stage.memory.held_bytes();
    let (anon, shared) = resident();
    let mut line = Line::object(b"point");
    line.text(b"name", name);
    if let Some(mark) = mark {
        line.number(b"mark", u64::from(mark));
    }
    line.number(b"op", op);
    line.number(b"recorded_ns", recorded_ns);
    // ORDER: Relaxed; set by this thread, or before the feed was handed to it.
    let begun_ns = stage.begun_ns.load(Ordering::Relaxed);
    line.number(b"elapsed_ns", system::now_ns() - begun_ns);
    line.number(b"cpu_ns", sum.cpu_ns);
    line.number(b"live_bytes", sum.live_bytes.max(0) as u64);
    line.number(b"live_blocks", sum.live_blocks.max(0) as u64);
    line.number(b"anon_bytes", anon);
    line.number(b"shmem_bytes", shared);
    line.number(b"own_bytes", own);
    line.number(b"rss_bytes", (anon + shared).saturating_sub(own));
    if with_floor && !stage.options.null {
        if let Some(pages) = floor_pages(stage, sum.top_slot) {
            line.number(b"floor_bytes", pages << PAGE_SHIFT);
        }
        stage.memory.drop_scratch();
    }
    if !line.close_to(stage.report_fd) {
        stage.fail(2, u64::MAX, b"the report cannot be written");
    }
}
