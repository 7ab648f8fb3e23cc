//! Private heaps and fork: one created before a fork does nothing in the child, and no two threads there share a heap.
//!
//! ```text
//!   parent   thread ─ own heap, private ones ─┬─ goes on as before
//!                                             └─► child: the heap that was entered is the thread's; the rest is idle
//! ```
//!
//! N1  The tests run one at a time (a lock), in a program of their own.
//! N2  Forks are plain ones: the allocator has registered its handlers by itself. A child reports by its exit status
//!     whether all went well, within a minute.
//! N3  The tests compare the owners of heaps: if two threads had the same heap, only a rare collision would show more.
//!
//! Not here: private heaps without forks (`private_heaps`), forks without private heaps (`engine`).

use std::sync::{Mutex, MutexGuard};

use skinflint_alloc as alloc;
use skinflint_alloc::PrivateHeap;
use skinflint_alloc::check::{check_invariants, heaps, own_heap};

#[global_allocator]
static MALLOC: alloc::Skinflint = alloc::Skinflint;

static ONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// N2: `act` in a child, which has to come to its end.
fn in_child(act: impl FnOnce()) {
    assert_eq!(status_of(fork(), act), 0, "the child's status");
}

/// A child, or 0 in it (N2): what comes next there is [`status_of`].
fn fork() -> i32 {
    // SAFETY: the child allocates by this allocator only, and ends by `_exit`.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    child
}

/// Does `act` in the child, which ends with it; in the parent, how it ended.
fn status_of(child: i32, act: impl FnOnce()) -> i32 {
    if child == 0 {
        // SAFETY: as above.
        unsafe {
            libc::alarm(60);
            let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(act));
            libc::_exit(i32::from(ended.is_err()));
        }
    }
    let mut status = 0;
    // SAFETY: our own child.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    status
}

/// Drops something of the parent's in a child.
///
/// # Safety
/// In a child no thread uses or drops it again.
unsafe fn drop_here<T>(it: &T) {
    // SAFETY: as the caller promises.
    drop(unsafe { core::ptr::read(it) });
}

/// Blocks whose first and last bytes say whose they are.
struct Marked(u8, Vec<Vec<u8>>);

impl Marked {
    fn new(mark: u8) -> Marked {
        Marked(mark, Vec::new())
    }

    fn grow(&mut self, count: usize) {
        let sizes = (0..count).map(|n| 16 + n * 37 % 900);
        self.1.extend(sizes.map(|size| vec![self.0; size]));
    }

    fn check(&self) {
        let ends = |block: &Vec<u8>| (block[0], block[block.len() - 1]);
        assert!(self.1.iter().all(|block| ends(block) == (self.0, self.0)));
    }
}

fn whole() {
    check_invariants(3).unwrap_or_else(|broken| panic!("{broken:x?}"));
}

/// N3: adopts every heap that has no thread, and more, and none of them twice nor this thread's; then uses them, on
/// threads too.
fn nobody_shares() {
    let mine = own_heap();
    let new: Vec<PrivateHeap> = (0..heaps() + 2)
        .map(|_| PrivateHeap::new().expect("memory"))
        .collect();
    let mut seen = vec![mine];
    for heap in &new {
        let theirs = heap.within(|| {
            Marked::new(7).grow(50);
            own_heap()
        });
        assert!(!seen.contains(&theirs), "a heap has two users");
        seen.push(theirs);
    }
    assert_eq!(own_heap(), mine);
    drop(new);
    let threads = (0..4).map(|_| {
        std::thread::spawn(move || {
            let mut theirs = Marked::new(8);
            theirs.grow(200);
            theirs.check();
            assert_ne!(own_heap(), mine);
        })
    });
    for thread in threads.collect::<Vec<_>>() {
        thread.join().expect("it has a heap of its own");
    }
}

/// A private heap of before the fork, in the child: to enter and to leave it changes nothing.
fn does_nothing(heap: &PrivateHeap) {
    let mine = own_heap();
    let there = heap.within(own_heap);
    assert_eq!(there, mine, "a private heap of before the fork was entered");
    assert_eq!(own_heap(), mine);
}

/// What a child may do with a private heap of before the fork, and what that heap is to it.
#[test]
fn private_heaps_of_before_a_fork_do_nothing_in_the_child() {
    let _alone = alone();
    let heap = PrivateHeap::new().expect("memory");
    let mut blocks = Marked::new(1);
    let mut outside = Marked::new(2);
    heap.within(|| blocks.grow(5_000));
    outside.grow(5_000);
    for round in 0..4 {
        // With blocks that were freed from outside, and are not drained yet.
        blocks.1.truncate(blocks.1.len() - 100);
        in_child(|| {
            whole();
            blocks.check();
            outside.check();
            if round % 2 == 0 {
                does_nothing(&heap);
                nobody_shares();
                // SAFETY: not used again.
                unsafe { drop_here(&heap) };
                nobody_shares();
            }
            blocks.grow(1_000);
            outside.grow(1_000);
            blocks.check();
            outside.check();
            // SAFETY: not used again.
            unsafe { drop_here(&blocks) };
            whole();
            // SAFETY: not used again.
            unsafe { drop_here(&outside) };
            alloc::trim();
            whole();
        });
        blocks.check();
        outside.check();
        whole();
        heap.within(|| blocks.grow(200));
    }
    drop(heap);
    drop(blocks);
    whole();
}

/// A fork in a private heap: it is where the child's thread allocates from then on, and no other's.
#[test]
fn a_private_heap_that_is_entered_at_a_fork_stays_the_childs_thread() {
    let _alone = alone();
    let (heap, other) = (
        PrivateHeap::new().expect("memory"),
        PrivateHeap::new().expect("memory"),
    );
    let mut blocks = Marked::new(1);
    let (child, mine) = heap.within(|| {
        other.within(|| {
            blocks.grow(3_000);
            (fork(), own_heap())
        })
    });
    let status = status_of(child, || {
        assert_eq!(
            own_heap(),
            mine,
            "what was entered at the fork is the thread's"
        );
        whole();
        blocks.grow(500);
        nobody_shares();
        blocks.grow(500);
        does_nothing(&heap);
        // SAFETY: as above.
        unsafe { drop_here(&heap) };
        // SAFETY: as above.
        unsafe { drop_here(&other) };
        let new = PrivateHeap::new().expect("memory");
        nobody_shares();
        // And a child of the child, in a private heap of its own.
        let child = new.within(|| {
            blocks.grow(500);
            fork()
        });
        let status = status_of(child, || {
            whole();
            does_nothing(&new);
            nobody_shares();
            blocks.grow(500);
            blocks.check();
        });
        assert_eq!(status, 0, "the child's status");
        blocks.check();
        // SAFETY: not used again.
        unsafe { drop_here(&blocks) };
        whole();
    });
    assert_eq!(status, 0, "the child's status");
    blocks.check();
    drop(blocks);
    whole();
}

/// Forks while another thread goes in and out of its private heaps: the child has none of them, and all of their blocks.
#[test]
fn forks_while_other_threads_change_private_heaps() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let _alone = alone();
    let done = AtomicBool::new(false);
    let heap = PrivateHeap::new().expect("memory");
    let mut blocks = Marked::new(1);
    // Looked at when the threads have ended: no thread would report them otherwise.
    let mut failed = Vec::new();
    std::thread::scope(|scope| {
        for mark in 10..12 {
            let done = &done;
            scope.spawn(move || {
                // ORDER: a flag that stands alone.
                while !done.load(Ordering::Relaxed) {
                    let heaps = [
                        PrivateHeap::new().expect("memory"),
                        PrivateHeap::new().expect("memory"),
                    ];
                    let mut theirs = Marked::new(mark);
                    for turn in 0..60 {
                        heaps[turn % 2].within(|| theirs.grow(10));
                        theirs.1.swap_remove(turn % theirs.1.len());
                    }
                    theirs.check();
                }
            });
        }
        for _ in 0..10 {
            let child = heap.within(|| {
                blocks.grow(100);
                fork()
            });
            let status = status_of(child, || {
                whole();
                nobody_shares();
                blocks.grow(100);
                blocks.check();
                // SAFETY: not used again.
                unsafe { drop_here(&blocks) };
                whole();
            });
            if status != 0 {
                failed.push(status);
                break;
            }
        }
        done.store(true, Ordering::Relaxed); // ORDER: as above
    });
    assert!(failed.is_empty(), "the children's status: {failed:?}");
    blocks.check();
    whole();
}
