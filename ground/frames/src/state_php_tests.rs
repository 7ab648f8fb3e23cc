//! The short way to PHP's frames, against the whole walk of the same chains.

use super::tests::state;
use crate::memory::tests::Words;
use crate::php::at;
use crate::php::tests::{Frames, GLOBALS, PHP, RUN, put_function};
use skinflint_base::random::Random;

const DEPTH: usize = 24;
/// Functions 0 to 3 are PHP's, 4 is written in C.
const IN_C: u64 = 4;

/// A frame: where it lies, what it runs, and whether the executor was called for it.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Made {
    slot: u64,
    function: u64,
    place: u64,
    begins: bool,
}

impl Made {
    fn frame(&self) -> u64 {
        0x2_0000 + self.slot * 0x100
    }

    /// The executor runs it by a call of its own.
    fn is_part(&self) -> bool {
        self.begins && self.function != IN_C
    }
}

fn function(number: u64) -> u64 {
    0x3_0000 + number * 0x1000
}

fn put_name(words: &mut Words, name: u64) {
    words.set(0x7700 + at::LENGTH, 4);
    words.set(0x7700 + at::CHARACTERS, name);
}

fn write(words: &mut Words, chain: &[Made]) {
    let mut caller = 0;
    for made in chain {
        let (frame, function) = (made.frame(), function(made.function));
        words.set(
            frame + at::OPLINE,
            function + 0x200 + made.place * at::OP_BYTES,
        );
        words.set(frame + at::FUNCTION, function);
        words.set(frame + at::FLAGS, u64::from(made.begins) << 17);
        words.set(frame + at::CALLER, caller);
        caller = frame;
    }
    words.set(GLOBALS.start + at::FRAME, caller);
}

/// Changes a chain as a script does between two captures. Returns how many outermost frames were not left.
fn step(random: &mut Random, chain: &mut Vec<Made>) -> usize {
    let left = (random.below(4) as usize).min(chain.len().saturating_sub(1));
    chain.truncate(chain.len() - left);
    let stayed = chain.len();
    if let Some(last) = chain.last_mut() {
        last.place = random.below(5);
    }
    while chain.len() < DEPTH && random.below(3) != 0 {
        let slot = chain.len() as u64 + random.below(2) * 50;
        if chain.iter().all(|made| made.slot != slot) {
            chain.push(Made {
                slot,
                function: random.below(5),
                place: random.below(4),
                begins: random.below(3) == 0,
            });
        }
    }
    stayed
}

#[test]
fn the_short_way_gives_what_the_whole_walk_gives() {
    let mut random = Random::new(0x9a9);
    let mut words = Words::default();
    put_name(&mut words, 1);
    for number in 0..=IN_C {
        let kind = if number == IN_C { 1 } else { 2 };
        put_function(&mut words, function(number), kind, 0x7700);
    }
    let first = Made {
        slot: 0,
        function: 0,
        place: 1,
        begins: true,
    };
    let mut chain = vec![first];
    let (mut quick, mut whole) = (state(), state());
    let (mut short, mut before) = (0, 0);
    for turn in 0..2000 {
        let stayed = step(&mut random, &mut chain);
        if random.below(8) == 0 {
            // What never happens while a frame runs, and does where memory is used again.
            let at = random.below(chain.len() as u64) as usize;
            match random.below(3) {
                0 => put_name(&mut words, turn),
                1 => words.set(function(1) + at::FIRST_LINE, random.below(9)),
                _ => chain[at].place = random.below(4),
            }
        }
        write(&mut words, &chain);
        let parts = |chain: &[Made]| chain.iter().filter(|made| made.is_part()).count();
        // Now and then a call has begun or ended whose part is not, or still, there.
        let calls = (parts(&chain) + random.below(16).saturating_sub(13) as usize).max(1)
            - usize::from(random.below(16) == 0);
        let pcs = (0..calls).flat_map(|_| [RUN.start + 0x10, 0x7000]);
        let same = 1 + 2 * parts(&chain[..stayed]).min(calls).min(before);
        before = calls;
        let pcs = core::iter::once(0x4000).chain(pcs).collect();
        let natives = Frames(pcs, random.below(same as u64 + 1) as usize);
        let old = quick.lists[quick.which][..quick.len].to_vec();
        let which = quick.which;
        let read = quick
            .read_php(&words, &PHP, true, &natives)
            .expect("a chain");
        let judged = whole
            .read_php(&words, &PHP, false, &natives)
            .expect("a chain");
        assert_eq!(read.1, judged.1, "turn {turn}");
        let is_short = quick.which == which && quick.len != 0;
        short += usize::from(is_short);
        let now = &quick.lists[quick.which][..quick.len];
        assert_eq!(now, &whole.lists[whole.which][..whole.len], "turn {turn}");
        assert_eq!(read.0, super::plan(&old, now, natives.1), "turn {turn}");
    }
    assert!(short > 1000, "{short}");
}
