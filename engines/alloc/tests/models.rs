//! What threads of the allocator share: each lock-free step, taken by a few threads in every order.
//!
//! ```text
//!   bits.rs  changed.rs  kept.rs  lock.rs  magazine.rs        ┌─ make model-test: all orders
//!   publish.rs  remote.rs  starter.rs ──(the very files)──► here ─┴─ cargo test: real threads
//! ```
//!
//! M1  A span's descriptor is a cell that every freer reads while it uses the span, and that the owner
//!     writes when it gives the span away: an access that is not ordered fails.
//! M2  A sleeper sleeps until it is woken: a lost wake is a deadlock, which loom finds.
//! M3  At most `PREEMPTIONS` per run, which bounds the search.
//! M4  No step is defined here: scenarios build data and call the functions of the files above. The comment of a model
//!     says with which weakened orderings it was seen to fail.
//!
//! `make model-test` runs them under loom, in every order; `cargo test` runs the same scenarios some hundred times on
//! real threads (`skinflint_interleave`), which proves no ordering.
//!
//! Not here: the fast paths, which are one thread's own, but for the two sections that the kernel restarts
//! (`models/taken`); the purger's beginning and end (`models/begun`).
// The engine uses the rest.
#![allow(dead_code)]

use skinflint_base::sync::{AtomicU32, AtomicU64, AtomicUsize};
use skinflint_interleave::{Arc, Watched, check, thread};

#[path = "../src/mechanism/bits.rs"]
mod bits;
#[path = "../src/mechanism/changed.rs"]
mod changed;
#[path = "../src/mechanism/kept.rs"]
mod kept;
#[path = "../src/mechanism/lock.rs"]
mod lock;
#[path = "../src/mechanism/magazine.rs"]
mod magazine;
#[path = "../src/mechanism/publish.rs"]
mod publish;
#[path = "../src/mechanism/remote.rs"]
mod remote;
#[path = "../src/mechanism/starter.rs"]
mod starter;

use bits::SlotBits;
use changed::Changed;
use kept::Kept;
use lock::{FORKER, Lock, Who};
use publish::Gate;
use remote::{Note, Owned};

#[path = "models/begun.rs"]
mod begun;
#[path = "models/taken.rs"]
mod taken;

const PREEMPTIONS: usize = 3;

/// Names for threads that take locks.
fn who(thread: u32) -> Who {
    Who((thread + 1) * 4096)
}

/// A heap: its lock, its stack of notified spans, and spans that it found a reason to look at.
struct Heap {
    lock: Lock,
    notified: AtomicU32,
    made: Watched<u32>,
}

impl Heap {
    fn new() -> Heap {
        Heap {
            lock: Lock::new(),
            notified: AtomicU32::new(0),
            made: Watched::new(0),
        }
    }
}

/// A span of two blocks, and the blocks' contents. Heaps' names are their places.
struct Span {
    heaps: Arc<[Heap; 2]>,
    offset: u32,
    link: AtomicU32,
    owner: AtomicU32,
    notifying: AtomicU32,
    slot_bits: SlotBits,
    descriptor: Watched<u32>,
    blocks: [Watched<u32>; 2],
}

impl Owned for Span {
    fn link(&self) -> &AtomicU32 {
        &self.link
    }

    fn stack(&self) -> &AtomicU32 {
        let heap = &self.heaps[remote::owner(&self.owner) as usize];
        // Every thread that goes to a heap finds it made.
        heap.made.with(|made| assert_eq!(*made, 0));
        &heap.notified
    }

    fn offset(&self) -> u32 {
        self.offset
    }
}

impl Span {
    fn new(heaps: &Arc<[Heap; 2]>, offset: u32) -> Span {
        Span {
            heaps: heaps.clone(),
            offset,
            link: AtomicU32::new(0),
            owner: AtomicU32::new(0),
            notifying: AtomicU32::new(0),
            slot_bits: SlotBits::none(),
            descriptor: Watched::new(0),
            blocks: [Watched::new(0), Watched::new(0)],
        }
    }

    /// Another thread's free, with a look at the descriptor wherever the engine may have one.
    fn free(&self, block: usize) {
        let here = || {
            self.descriptor
                .with(|given| assert_eq!(*given, 0, "given away"));
        };
        self.blocks[block].with_mut(|content| *content += 1);
        here();
        let note = Note::Shared(&self.notifying);
        let tell = || {
            if remote::notify(self, note) {
                here();
            }
        };
        assert!(remote::free(self, &self.slot_bits.remote, 1 << block, tell));
    }

    /// The owner: uses what was freed, and gives the span away once it is empty and on no stack.
    fn look(&self) -> bool {
        let freed = self.slot_bits.collect();
        for block in (0..2).filter(|block| freed >> block & 1 != 0) {
            self.blocks[block].with_mut(|content| *content += 1);
        }
        let goes = self.slot_bits.free_bits() == 3 && remote::may_go(&self.link);
        if goes {
            self.descriptor.with_mut(|given| *given += 1);
        }
        goes
    }
}

/// Two threads free the two blocks of a span while the owner drains: the span goes once, after both have
/// let go of it, and no block is lost.
///
/// Fails with Relaxed in: `remote::set`, the swap of `remote::collect`. So it does if `free` sets the bit before it
/// notifies.
#[test]
fn remote_frees_of_one_span() {
    check(PREEMPTIONS, || {
        let heaps = Arc::new([Heap::new(), Heap::new()]);
        let span = Arc::new(Span::new(&heaps, 64));
        let freers: Vec<_> = (0..2)
            .map(|block| {
                let span = span.clone();
                thread::spawn(move || span.free(block))
            })
            .collect();
        let mut given = false;
        let drain = |given: &mut bool| {
            remote::drain(
                &heaps[0].notified,
                |_| &*span,
                |span| {
                    assert!(!*given, "on the stack after it was given away");
                    *given = span.look();
                },
            );
        };
        // Without a yield loom never has the first look come second.
        thread::yield_now();
        drain(&mut given);
        drain(&mut given);
        for freer in freers {
            freer.join().expect("ends");
        }
        drain(&mut given);
        // The class's next refill looks whether or not it was told (remote.R3).
        if !given {
            assert!(span.look(), "a block or the link was lost");
        }
    });
}

/// Two spans pushed by two threads: a drain and the last look find both.
///
/// Fails with Relaxed in: the exchange of `remote::push`, the swap of `remote::take_all`.
#[test]
fn stack_of_two_spans() {
    check(PREEMPTIONS, || {
        let heaps = Arc::new([Heap::new(), Heap::new()]);
        let spans = Arc::new([Span::new(&heaps, 64), Span::new(&heaps, 128)]);
        let freers: Vec<_> = (0..2)
            .map(|which: usize| {
                let spans = spans.clone();
                thread::spawn(move || {
                    spans[which].free(0);
                    spans[which].free(1);
                })
            })
            .collect();
        let span_at = |offset: u32| &spans[offset as usize / 64 - 1];
        let mut seen = 0;
        let mut drain = || {
            remote::drain(&heaps[0].notified, span_at, |span| {
                span.slot_bits.collect();
                seen += 1;
            });
        };
        thread::yield_now();
        drain();
        for freer in freers {
            freer.join().expect("ends");
        }
        drain();
        assert!((2..=4).contains(&seen), "{seen}");
        for span in &*spans {
            assert!(remote::may_go(&span.link), "claimed, and not on the stack");
            span.slot_bits.collect();
            assert_eq!(span.slot_bits.free_bits(), 3, "a bit was lost");
        }
    });
}

/// A thread frees a block while its span is handed over to another heap, which has just been made: whichever of the two
/// was told, the new owner finds the block, and the old one does not touch the span.
///
/// Fails with Relaxed in: `remote::owner`, `remote::hand_over`. So it does if `drain` looks at what is not its owner's.
#[test]
fn a_span_is_handed_over() {
    check(PREEMPTIONS, || {
        let heaps = Arc::new([Heap::new(), Heap::new()]);
        let span = Arc::new(Span::new(&heaps, 64));
        let freer = {
            let span = span.clone();
            thread::spawn(move || span.free(0))
        };
        let thief = {
            let (heaps, span) = (heaps.clone(), span.clone());
            thread::spawn(move || {
                // Made just now: 0 is what the others find.
                heaps[1].made.with_mut(|made| *made = 0);
                assert!(heaps[1].lock.lock(who(1)));
                if heaps[0].lock.try_lock(who(1)) {
                    span.slot_bits.collect();
                    remote::hand_over(&span.owner, 1);
                    heaps[0].lock.unlock();
                }
                heaps[1].lock.unlock();
            })
        };
        let drain = |which: usize, looked: &mut bool| {
            assert!(heaps[which].lock.lock(who(2)));
            remote::drain(
                &heaps[which].notified,
                |_| &*span,
                |span| {
                    assert_eq!(remote::owner(&span.owner) as usize, which);
                    *looked = true;
                    span.slot_bits.collect();
                },
            );
            heaps[which].lock.unlock();
        };
        let mut looked = false;
        thread::yield_now();
        drain(0, &mut looked);
        freer.join().expect("ends");
        thief.join().expect("ends");
        drain(0, &mut looked);
        drain(1, &mut looked);
        assert!(looked, "nobody was told");
        assert!(remote::may_go(&span.link), "still on a stack");
        span.slot_bits.collect();
        assert_eq!(span.slot_bits.free_bits(), 1, "the block was lost");
    });
}

/// A span changes twice while the purger comes by: it has seen the last change, or is to look again. Another heap's span,
/// whose bit lies in the same word, is not lost by that.
///
/// Fails if `note` comes in a hold of the lock before the change, and if `begin` comes after `take`.
#[test]
fn a_change_is_seen_or_noted() {
    const GROUP: u64 = 1;
    check(PREEMPTIONS, || {
        let shared = Arc::new((
            [Lock::new(), Lock::new()],
            [Watched::new(0), Watched::new(0)],
            Changed::none(),
            AtomicU64::new(0),
        ));
        let owner = |heap: usize, changes: u32| {
            let shared = shared.clone();
            thread::spawn(move || {
                let (locks, spans, word, groups) = &*shared;
                for _ in 0..changes {
                    assert!(locks[heap].lock(who(heap as u32)));
                    spans[heap].with_mut(|span| *span += 1);
                    word.note(1 << heap, groups, GROUP);
                    locks[heap].unlock();
                }
            })
        };
        let owners = [owner(0, 2), owner(1, 1)];
        let (locks, spans, word, groups) = &*shared;
        let mut seen = [0, 0];
        let mut look = || {
            if !changed::begin(groups, GROUP) {
                return;
            }
            let (new, waiting) = word.take();
            for heap in (0..2).filter(|heap| (new | waiting) >> heap & 1 != 0) {
                assert!(locks[heap].lock(who(2)));
                seen[heap] = spans[heap].with(|span| *span);
                locks[heap].unlock();
            }
            if (new | waiting) & 2 != 0 {
                // The second heap's span waits for another look.
                word.wait(2, groups, GROUP);
            }
        };
        thread::yield_now();
        look();
        for owner in owners {
            owner.join().expect("ends");
        }
        look();
        assert_eq!(seen, [2, 1], "a change was lost");
        assert_eq!(word.either(), 2);
        assert!(changed::begin(groups, GROUP), "what waits is in no group");
    });
}

/// Large blocks that could not be given back at once: each is found once.
///
/// Fails with Relaxed in: the exchange of `remote::push`, the swap of `remote::take_all`.
#[test]
fn deferred_blocks() {
    check(PREEMPTIONS, || {
        let shared = Arc::new((
            AtomicU32::new(0),
            [0; 2].map(AtomicU32::new),
            [0; 2].map(Watched::new),
        ));
        let freers: Vec<_> = (0..2)
            .map(|which| {
                let shared = shared.clone();
                thread::spawn(move || {
                    let (list, links, blocks) = &*shared;
                    blocks[which].with_mut(|block: &mut u32| *block += 1);
                    remote::push(list, &links[which], which as u32 + 1, 0);
                })
            })
            .collect();
        let (list, links, blocks) = &*shared;
        let mut found = 0;
        let mut take = || {
            let link = |offset| &links[offset as usize - 1];
            remote::take_deferred(list, link, |offset| {
                blocks[offset as usize - 1].with_mut(|block| *block += 1);
                found += 1;
            });
        };
        thread::yield_now();
        take();
        for freer in freers {
            freer.join().expect("ends");
        }
        take();
        assert_eq!(found, 2);
    });
}

/// The owner frees one block of a page and another thread the other, while the purger looks with the heap's lock: it
/// drops the page after their last writes, and before the owner takes a block of it again.
///
/// Fails with Relaxed in: `SlotBits::give`, `remote::set`, either load of `SlotBits::free_bits`, `Lock::unlock`.
#[test]
fn a_page_is_dropped_after_its_last_write() {
    check(PREEMPTIONS, || {
        let heaps = Arc::new([Heap::new(), Heap::new()]);
        let span = Arc::new(Span::new(&heaps, 64));
        let page = Arc::new(Watched::new(0));
        let freer = {
            let (span, page) = (span.clone(), page.clone());
            thread::spawn(move || {
                page.with(|page| assert_eq!(*page, 0, "dropped under a block"));
                span.free(1);
            })
        };
        let purger = {
            let (span, page, heaps) = (span.clone(), page.clone(), heaps.clone());
            thread::spawn(move || {
                assert!(heaps[0].lock.lock(who(1)));
                if span.slot_bits.free_bits() == 3 {
                    page.with_mut(|page| *page += 10);
                }
                heaps[0].lock.unlock();
            })
        };
        page.with(|page| assert_eq!(*page, 0, "dropped under a block"));
        span.slot_bits.bury(1);
        span.slot_bits.give(1);
        // Without a yield loom has the refill come first.
        thread::yield_now();
        assert!(heaps[0].lock.lock(who(0)));
        let taken = span.slot_bits.take();
        heaps[0].lock.unlock();
        assert_eq!(taken, Some(0));
        page.with(|page| assert!([0, 10].contains(page)));
        freer.join().expect("ends");
        purger.join().expect("ends");
    });
}

/// Three threads at one lock: one at a time, each sees what the last one wrote, and all come through.
///
/// Fails with Relaxed in: `Lock::try_lock`, the exchange of `lock_slow` that takes it, `unlock`.
#[test]
fn lock_of_three() {
    check(PREEMPTIONS, || {
        let shared = Arc::new((Lock::new(), Watched::new(0)));
        let work = |shared: &(Lock, Watched<u32>), thread: u32| {
            assert!(shared.0.lock(who(thread)));
            shared.1.with_mut(|count| *count += 1);
            shared.0.unlock();
        };
        let others: Vec<_> = (1..3)
            .map(|other| {
                let shared = shared.clone();
                thread::spawn(move || work(&shared, other))
            })
            .collect();
        work(&shared, 0);
        for other in others {
            other.join().expect("ends");
        }
        shared.1.with(|count| assert_eq!(*count, 3));
    });
}

/// A fixed id is not one thread: threads that go by the same fixed id wait for each other.
#[test]
fn lock_of_nobodies() {
    check(PREEMPTIONS, || {
        let shared = Arc::new((Lock::new(), Watched::new(0)));
        let other = shared.clone();
        let work = |shared: &(Lock, Watched<u32>)| {
            assert!(shared.0.lock(FORKER));
            shared.1.with_mut(|count| *count += 1);
            shared.0.unlock();
        };
        let thread = thread::spawn(move || work(&other));
        work(&shared);
        thread.join().expect("ends");
    });
}

/// Two heaps are made while somebody walks them all: he finds each whole, and behind the newest none is missing.
///
/// Fails with Relaxed in: `publish::add`, `publish::first`, `Lock::unlock`.
#[test]
fn every_heap_is_found_whole() {
    check(PREEMPTIONS, || {
        let shared = Arc::new((
            Lock::new(),
            AtomicU32::new(0),
            [0; 2].map(AtomicU32::new),
            [0; 2].map(Watched::new),
        ));
        let makers: Vec<_> = (0..2)
            .map(|which: usize| {
                let shared = shared.clone();
                thread::spawn(move || {
                    let (lock, newest, links, heaps) = &*shared;
                    assert!(lock.lock(who(which as u32)));
                    heaps[which].with_mut(|made| *made = 1);
                    publish::add(newest, &links[which], which as u32 + 1);
                    lock.unlock();
                })
            })
            .collect();
        let (_, newest, links, heaps) = &*shared;
        let walk = || {
            let link = |offset| &links[offset as usize - 1];
            let all = publish::walk(publish::first(newest), link);
            let made = all.inspect(|&offset| {
                heaps[offset as usize - 1].with(|made| assert_eq!(*made, 1, "not made yet"));
            });
            made.collect::<Vec<u32>>()
        };
        thread::yield_now();
        let early = walk();
        thread::yield_now();
        let later = walk();
        assert!(later.ends_with(&early), "{later:?} after {early:?}");
        for maker in makers {
            maker.join().expect("ends");
        }
        assert_eq!(walk().len(), 2);
    });
}

/// Threads end and leave their heaps, others begin and take one, and somebody walks the idle ones for a span to steal: a
/// heap that he stands at may be taken and left again meanwhile, with another behind it. Whatever he comes by is made.
///
/// Fails with Relaxed in: either store of `publish::add_again`, `publish::take`, `publish::next_of_changing`,
/// `publish::first`.
#[test]
fn an_idle_heap_is_found_whole() {
    check(PREEMPTIONS, || {
        let shared = Arc::new((
            Lock::new(),
            AtomicU32::new(0),
            [0; 2].map(AtomicU32::new),
            [0; 2].map(Watched::new),
        ));
        let leave = |shared: &Shared, which: u32| {
            let (lock, idle, links, _) = shared;
            assert!(lock.lock(who(which)));
            publish::add_again(idle, &links[which as usize - 1], which);
            lock.unlock();
        };
        let begin = |shared: &Shared, thread: u32| {
            let (lock, idle, links, _) = shared;
            assert!(lock.lock(who(thread)));
            let taken = publish::take(idle, |first| &links[first as usize - 1]);
            lock.unlock();
            taken
        };
        type Shared = (Lock, AtomicU32, [AtomicU32; 2], [Watched<u32>; 2]);
        let leaver = {
            let shared = shared.clone();
            thread::spawn(move || {
                shared.3[0].with_mut(|made| *made = 1);
                leave(&shared, 1);
                let taken = begin(&shared, 3);
                shared.3[1].with_mut(|made| *made = 1);
                leave(&shared, 2);
                if taken != 0 {
                    leave(&shared, taken);
                }
            })
        };
        let beginner = {
            let shared = shared.clone();
            thread::spawn(move || begin(&shared, 4))
        };
        let (_, idle, links, heaps) = &*shared;
        thread::yield_now();
        for offset in publish::walk_changing(idle, 2, |offset| &links[offset as usize - 1]) {
            heaps[offset as usize - 1].with(|made| assert_eq!(*made, 1, "not made yet"));
        }
        leaver.join().expect("ends");
        beginner.join().expect("ends");
    });
}

/// Two threads make the same thing at once: both go on with one, which is whole.
///
/// Fails with Relaxed in: `publish::had`, either ordering of `publish::once`.
#[test]
fn of_two_that_make_it_one_wins() {
    check(PREEMPTIONS, || {
        let shared = Arc::new((AtomicUsize::new(0), [0; 2].map(Watched::new)));
        let get = |shared: &(AtomicUsize, [Watched<u32>; 2]), mine: usize| {
            let (word, things) = shared;
            let make = || {
                things[mine - 1].with_mut(|made| *made = 1);
                Some(mine)
            };
            let discard = |made: usize| things[made - 1].with_mut(|made| *made = 0);
            let have = publish::get_or_make(word, make, discard).expect("made");
            things[have - 1].with(|made| assert_eq!(*made, 1, "not made yet"));
            have
        };
        let other = shared.clone();
        let thread = thread::spawn(move || get(&other, 2));
        let mine = get(&shared, 1);
        assert_eq!(thread.join().expect("ends"), mine);
    });
}

/// A class is earned while another thread asks how many there are: those below the count are complete.
///
/// Fails with Relaxed in: `publish::raise`, `publish::raised`.
#[test]
fn entries_below_the_count_are_complete() {
    check(PREEMPTIONS, || {
        let shared = Arc::new((AtomicU32::new(0), [0; 2].map(Watched::new)));
        let maker = {
            let shared = shared.clone();
            thread::spawn(move || {
                for (which, entry) in shared.1.iter().enumerate() {
                    entry.with_mut(|entry| *entry = 7);
                    publish::raise(&shared.0, which as u32 + 1);
                }
            })
        };
        thread::yield_now();
        for entry in &shared.1[..publish::raised(&shared.0) as usize] {
            entry.with(|entry| assert_eq!(*entry, 7));
        }
        maker.join().expect("ends");
    });
}

/// A page's block goes from hand to hand, and the page from span to span: a thread with a block finds its span, though the look
/// into the page map orders nothing.
///
/// Fails with Relaxed in: `Lock::unlock`, `Lock::try_lock` (by which the page goes), the exchange of `remote::push` and the
/// swap of `remote::take_all` (by which the block goes). With Relaxed in `publish::enter` it holds, as publish.P4 says.
#[test]
fn a_block_leads_to_its_span() {
    check(PREEMPTIONS, || {
        // The pool: its lock, the page's entry, two descriptors. A block's way from one thread to another: a stack.
        let shared = Arc::new((
            Lock::new(),
            AtomicU32::new(0),
            [0; 2].map(Watched::new),
            AtomicU32::new(0),
            AtomicU32::new(0),
        ));
        let maker = {
            let shared = shared.clone();
            thread::spawn(move || {
                let (pool, entry, descriptors, post, link) = &*shared;
                // The page was another span's before.
                for descriptor in [2, 1] {
                    assert!(pool.lock(who(0)));
                    descriptors[descriptor - 1].with_mut(|filled| *filled = descriptor);
                    publish::clear(entry);
                    publish::enter(entry, descriptor as u32);
                    pool.unlock();
                }
                remote::push(post, link, 2, 0);
            })
        };
        let (pool, entry, descriptors, post, _) = &*shared;
        thread::yield_now();
        if remote::take_all(post) != 0 {
            let descriptor = publish::found(entry) as usize;
            assert_eq!(descriptor, 1, "a span that was there before");
            descriptors[descriptor - 1].with(|filled| assert_eq!(*filled, descriptor));
            // It frees the block, and the page goes.
            assert!(pool.lock(who(1)));
            publish::clear(entry);
            descriptors[descriptor - 1].with_mut(|filled| *filled = 0);
            pool.unlock();
        } else {
            // Somebody else has the pool meanwhile.
            assert!(pool.lock(who(1)));
            descriptors[1].with(|filled| assert!([0, 2].contains(filled)));
            pool.unlock();
        }
        maker.join().expect("ends");
    });
}

/// Two threads at a gate: the second comes in after the first has left, or not at all.
///
/// Fails with Relaxed in: `Gate::enter`, `Gate::leave`.
#[test]
fn one_at_a_time_behind_a_gate() {
    check(PREEMPTIONS, || {
        let shared = Arc::new((Gate::new(), Watched::new(0)));
        let tell = |shared: &(Gate, Watched<u32>)| {
            let inside = shared.0.enter();
            if inside {
                shared.1.with_mut(|told| *told += 1);
                shared.0.leave();
            }
            inside
        };
        let other = shared.clone();
        let thread = thread::spawn(move || u32::from(tell(&other)) + u32::from(tell(&other)));
        thread::yield_now();
        let mine = u32::from(tell(&shared));
        let told = mine + thread.join().expect("ends");
        shared.1.with(|count| assert_eq!(*count, told));
        assert!(told >= 1);
    });
}

/// The owner takes and puts its runs while the purger lets them age: each is in one hand at a time, and none is lost.
///
/// Fails with Relaxed in: the exchange of `Kept::put`, that of `take_out`.
#[test]
fn a_kept_run_is_in_one_hand() {
    check(PREEMPTIONS, || {
        let shared = Arc::new((Kept::new(), [0; 2].map(Watched::new)));
        let old = |shared: &(Kept, [Watched<u32>; 2]), every: bool| {
            let mut gone = 0;
            shared.0.age(every, |offset| {
                shared.1[offset as usize / 64 - 1].with_mut(|run| *run += 10);
                gone += 1;
            });
            gone
        };
        shared.1[0].with_mut(|run| *run = 1);
        assert!(shared.0.put(64, 5));
        let other = shared.clone();
        let purger = thread::spawn(move || old(&other, false) + old(&other, false));
        thread::yield_now();
        if let Some(run) = shared.0.take(5) {
            assert_eq!(run, (64, 5));
            shared.1[0].with_mut(|run| *run += 1);
            assert!(shared.0.put(64, 5));
        }
        shared.1[1].with_mut(|run| *run = 1);
        assert!(shared.0.put(128, 7));
        let gone = purger.join().expect("ends") + old(&shared, true);
        assert_eq!(gone, 2, "one was lost, or in two hands");
    });
}
