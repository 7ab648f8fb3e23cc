//! Random programs with objects of many sizes, in tenants that end in any order.
//!
//! ```text
//!   make · link · forget · collect one · collect all · end a tenant and begin another      by turns, by a seed
//!      └─► each object knows what was written into it ─► all that were made end once, and whole
//! ```
//!
//! D1  There are more sizes than the core finds without hashing (64), so some sizes evict each other from its cache,
//!     wherever the program is loaded.
//! D2  Every object ends exactly once, with the contents that were written. When all tenants have ended, nothing is
//!     left.
//!
//! Not here: what garbage is (`graphs`, against a model).

use std::cell::Cell;

use boa_gc::skinflint::{self, Tenant, rows, set_growth, system};
use boa_gc::{Finalize, Gc, GcErased, GcRefCell, Trace, WeakGc, custom_trace, force_collect};
use skinflint_base::random::Random;

thread_local! {
    static MADE: Cell<u64> = const { Cell::new(0) };
    static ENDED: Cell<u64> = const { Cell::new(0) };
}

/// An object of somewhat more than `8 × WORDS` bytes.
struct Block<const WORDS: usize> {
    number: u64,
    links: GcRefCell<Vec<GcErased>>,
    words: [u64; WORDS],
}

impl<const WORDS: usize> Block<WORDS> {
    fn is_whole(&self) -> bool {
        self.words.iter().all(|&word| word == self.number)
    }
}

impl<const WORDS: usize> Finalize for Block<WORDS> {}
// SAFETY: each link is visited once.
unsafe impl<const WORDS: usize> Trace for Block<WORDS> {
    custom_trace!(this, mark, {
        mark(&this.links);
    });
}

impl<const WORDS: usize> Drop for Block<WORDS> {
    fn drop(&mut self) {
        assert!(self.is_whole(), "{} was written over", self.number);
        self.number = 0;
        ENDED.set(ENDED.get() + 1);
    }
}

/// A handle to a block of any size.
trait Held {
    fn link(&self, to: GcErased);
    fn erased(&self) -> GcErased;
    fn is_whole(&self) -> bool;
    fn weak_is_whole(&self) -> bool;
}

impl<const WORDS: usize> Held for Gc<Block<WORDS>> {
    fn link(&self, to: GcErased) {
        let mut links = self.links.borrow_mut();
        // Many blocks may refer to this one; its list is bounded.
        if links.len() == 4 {
            links.remove(0);
        }
        links.push(to);
    }

    fn erased(&self) -> GcErased {
        GcErased::new(self.clone())
    }

    fn is_whole(&self) -> bool {
        Block::is_whole(self)
    }

    fn weak_is_whole(&self) -> bool {
        let weak = WeakGc::new(self);
        weak.upgrade().is_some_and(|block| Block::is_whole(&block))
    }
}

fn make<const WORDS: usize>() -> Box<dyn Held> {
    let number = MADE.get() + 1;
    MADE.set(number);
    Box::new(Gc::new(Block::<WORDS> {
        number,
        links: GcRefCell::default(),
        words: [number; WORDS],
    }))
}

macro_rules! makers {
    ($($tens:literal)*) => {
        [$(makers!(ten $tens)),*]
    };
    (ten $tens:literal) => {
        [
            make::<{ 10 * $tens }>, make::<{ 10 * $tens + 1 }>, make::<{ 10 * $tens + 2 }>,
            make::<{ 10 * $tens + 3 }>, make::<{ 10 * $tens + 4 }>, make::<{ 10 * $tens + 5 }>,
            make::<{ 10 * $tens + 6 }>, make::<{ 10 * $tens + 7 }>, make::<{ 10 * $tens + 8 }>,
            make::<{ 10 * $tens + 9 }>,
        ] as [fn() -> Box<dyn Held>; 10]
    };
}

/// The constructors of eighty sizes (D1).
const MAKERS: [[fn() -> Box<dyn Held>; 10]; 8] = makers!(0 1 2 3 4 5 6 7);
const SIZES: usize = 80;
const TENANTS: usize = 4;
const SLOTS: usize = 600;

fn block(random: &mut Random) -> Box<dyn Held> {
    let size = random.index(SIZES);
    let make = MAKERS[size / 10][size % 10];
    // About a third are Boa's own objects.
    if random.index(3) == 0 {
        system(make)
    } else {
        make()
    }
}

fn alone(test: impl FnOnce() + Send + 'static) {
    std::thread::spawn(test).join().expect("the test's thread");
}

fn program(seed: u64, steps: usize) {
    let mut random = Random::new(seed);
    let named = |at: usize| Tenant::new(&format!("tenant {at}"), usize::MAX);
    let mut tenants: Vec<Tenant> = (0..TENANTS).map(named).collect();
    let mut slots: Vec<Option<Box<dyn Held>>> = (0..SLOTS).map(|_| None).collect();
    for step in 0..steps {
        let (one, two) = (random.index(SLOTS), random.index(SLOTS));
        match random.index(200) {
            0..120 => {
                let _in = tenants[random.index(TENANTS)].enter();
                slots[one] = Some(block(&mut random));
            }
            120..170 => {
                if let (Some(from), Some(to)) = (&slots[one], &slots[two]) {
                    from.link(to.erased());
                    to.link(from.erased());
                }
            }
            170..190 => slots[one] = None,
            190..196 => {
                if let Some(block) = &slots[one] {
                    assert!(block.weak_is_whole());
                }
            }
            196 => tenants[random.index(TENANTS)].collect(),
            197 => force_collect(),
            198 => {
                let _ = skinflint::tick(step as u64);
            }
            // What others have links to stays, and goes with them: cycles through tenants, half-ended batches.
            _ => {
                let at = random.index(TENANTS);
                drop(tenants.swap_remove(at).end());
                tenants.push(named(step));
            }
        }
    }
    assert!(slots.iter().flatten().all(|block| block.is_whole()));
    drop(slots);
    for tenant in tenants {
        let _ = tenant.end();
    }
    force_collect();
    force_collect();
    assert_eq!(ENDED.take(), MADE.take(), "seed {seed:#x}");
    let left: Vec<_> = rows().into_iter().filter(|row| row.objects > 0).collect();
    assert_eq!(left, [], "seed {seed:#x}");
    assert_eq!(skinflint::stats().panics, 0, "seed {seed:#x}");
}

#[test]
fn every_object_ends_once_and_whole_in_whatever_order_tenants_end() {
    for seed in 1..=if cfg!(miri) { 1 } else { 12 } {
        alone(move || {
            skinflint::verify(true);
            // Small heaps are marked in slices, too.
            set_growth(skinflint::Growth {
                floor_bytes: 64 << 10,
                ..skinflint::Growth::TENANT
            });
            if seed % 3 == 0 {
                skinflint::stress(97);
            }
            let steps = if cfg!(miri) { 300 } else { 12_000 };
            program(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed), steps);
        });
    }
}

#[test]
fn sizes_by_turns_lie_as_close_as_one_after_the_other() {
    alone(|| {
        skinflint::verify(true);
        let many = if cfg!(miri) { 3 } else { 100 };
        let tab = Tenant::new("tab", usize::MAX);
        let held: Vec<_> = {
            let _in = tab.enter();
            let by_turns = (0..many).flat_map(|_| MAKERS.as_flattened());
            by_turns.map(|make| make()).collect()
        };
        let row = tab.row();
        assert_eq!(row.objects, (many * SIZES) as u64);
        // The bound includes the ends of arenas, and for each size an arena that is not full.
        let most = row.user_bytes + row.user_bytes / 8 + SIZES * 4096;
        assert!(
            row.chunks <= most.div_ceil(1 << 20) + 1,
            "{} MB for {} bytes",
            row.chunks,
            row.user_bytes
        );
        force_collect();
        assert_eq!(tab.row().objects, row.objects);
        drop(held);
        assert_eq!(tab.end().objects_left, 0);
    });
}
