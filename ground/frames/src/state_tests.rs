//! Plans of stacks of both kinds, against a judge that compares merged stacks frame by frame.

use super::*;
use crate::chain::tests::{Thread, V11, V12, V13};
use crate::layout::{Border, layout_of};
use skinflint_base::random::Random;

/// Native frames, outermost first: the slot of each.
pub(super) struct Frames {
    pub slots: Vec<u64>,
    pub keep: usize,
    pub is_whole: bool,
}

impl Natives for Frames {
    fn total(&self) -> usize {
        self.slots.len()
    }

    fn keep(&self) -> usize {
        self.keep
    }

    fn pc(&self, _: usize) -> u64 {
        0
    }

    fn slot(&self, index: usize) -> u64 {
        self.slots.get(index).copied().unwrap_or(0)
    }

    fn is_whole(&self) -> bool {
        self.is_whole
    }
}

fn link(frame: u64, record: u64) -> Link {
    Link {
        frame,
        record,
        ..Link::default()
    }
}

/// The merged stack: natives by slot, user frames by frame and record.
fn merged(natives: &Frames, users: &[Link]) -> Vec<(u64, u64)> {
    let mut all = Vec::new();
    let mut users = users.iter().peekable();
    for place in 0..=natives.slots.len() {
        while let Some(user) = users.next_if(|user| user.after as usize <= place) {
            all.push((user.frame, user.record | 1));
        }
        all.extend(natives.slots.get(place).map(|slot| (*slot, 0)));
    }
    all
}

#[test]
fn a_record_lies_in_the_frame_of_its_eval_loop() {
    let natives = |is_whole| Frames {
        slots: vec![0x9000, 0x8000, 0x7000, 0x6000],
        keep: 0,
        is_whole,
    };
    // Frame 0 reaches from 0x9008 up; frame 2, say, from 0x7008 to 0x8008.
    let places = [
        (0x9008, 1),
        (0x8ff8, 2),
        (0x8008, 2),
        (0x8000, 3),
        (0x7ff8, 3),
        (0x7008, 3),
        (0x6008, 4),
    ];
    for (record, after) in places {
        let mut links = [link(1, record)];
        place(&mut links, &natives(true));
        assert_eq!(links[0].after, after, "{record:#x}");
    }
    let mut links = [link(1, 0x9ff8), link(2, 0x8ff8)];
    place(&mut links, &natives(false));
    assert_eq!(
        [links[0].after, links[1].after],
        [0, 2],
        "its eval loop is missing"
    );
}

#[test]
fn what_is_kept_is_the_same_in_both_stacks_and_as_much_as_can_be() {
    let mut random = Random::new(0x5eed);
    let mut kept = 0;
    for _ in 0..20_000 {
        let stack = |random: &mut Random| {
            let slots: Vec<u64> = (0..1 + random.below(6))
                .map(|index| 0x10_0000 - index * 0x1000)
                .collect();
            let mut users: Vec<u64> = (0..random.below(8))
                .map(|_| random.below(slots.len() as u64))
                .collect();
            users.sort_unstable();
            let link = |(index, at): (usize, &u64)| {
                let mut link = link(0x100 + index as u64 * 16, 0x10_0800 - at * 0x1000);
                link.unit = random.below(8).saturating_sub(6) as u32;
                link
            };
            let users: Vec<Link> = users.iter().enumerate().map(link).collect();
            let is_whole = true;
            (
                Frames {
                    slots,
                    keep: 0,
                    is_whole,
                },
                users,
            )
        };
        let (before, mut old) = stack(&mut random);
        let (mut after, mut new) = stack(&mut random);
        let same = before
            .slots
            .iter()
            .zip(&after.slots)
            .take_while(|(a, b)| a == b)
            .count();
        after.keep = random.below(same as u64 + 1) as usize;
        place(&mut old, &before);
        place(&mut new, &after);
        let plan = plan(&old, &new, after.keep);
        let (old_all, new_all) = (merged(&before, &old), merged(&after, &new));
        let keep = plan.natives + plan.users;
        assert_eq!(old_all[..keep], new_all[..keep]);
        let natives = new_all[..keep]
            .iter()
            .filter(|(_, record)| *record == 0)
            .count();
        assert_eq!(natives, plan.natives);
        let units = |list: &[Link]| {
            list[..plan.users]
                .iter()
                .map(|link| link.unit)
                .collect::<Vec<_>>()
        };
        assert_eq!(units(&old), units(&new));
        // As much as can be: what follows differs, or is a native frame that was not verified.
        let next_user = old.get(plan.users).zip(new.get(plan.users));
        let could = next_user.is_some_and(|(a, b)| a == b && a.after as usize <= plan.natives);
        assert!(!could);
        kept += keep;
    }
    assert!(kept > 20_000, "{kept}");
}

/// A frame of a chain as a test has it: which place of memory, which code, which unit, and whether a new call of the eval
/// loop runs it.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Made {
    place: usize,
    code: usize,
    unit: i64,
    begins: bool,
}

const DEPTH: usize = 40;

/// Writes a chain, outermost first, over whatever was there. Call `n` of the eval loop has its record at `stack(4 + 2 n)`.
fn write(thread: &mut Thread, version: u32, codes: &[u64], frames: &[u64], chain: &[Made]) {
    let layout = layout_of(version).expect("known");
    let clear = |thread: &mut Thread, at: u64| thread.set((at + layout.mark) & !7, 0);
    let (mut previous, mut call, mut record) = (0, 0, 0);
    for made in chain {
        let frame = frames[made.place];
        if made.begins {
            let next = thread.stack(4 + 2 * call);
            call += 1;
            match layout.border {
                Border::Cframe { previous, .. } => {
                    let outer = if record == 0 {
                        thread.state() + 200
                    } else {
                        record
                    };
                    thread.set(next + previous, outer);
                }
                Border::Count | Border::Pair { .. } => {
                    unreachable!("no part of a chain has more frames than one")
                }
                Border::Shim { owner } => {
                    thread.frame_at(next, codes[0], 0, previous);
                    clear(thread, next);
                    thread.set_byte(next + layout.mark, owner);
                    previous = next;
                }
            }
            record = next;
        }
        thread.frame_at(frame, codes[made.code], made.unit, previous);
        clear(thread, frame);
        if let Border::Cframe { frame: to, .. } = layout.border {
            thread.set_byte(frame + layout.mark, u8::from(made.begins));
            thread.set(record + to, frame);
        }
        previous = frame;
    }
    let first = match (layout.border, layout.through) {
        (Border::Cframe { .. }, _) => record,
        (_, Some(through)) => {
            let cframe = thread.stack(120);
            thread.set(cframe + through, previous);
            cframe
        }
        _ => previous,
    };
    thread.set(thread.state() + layout.current, first);
}

pub(super) fn state() -> Box<State> {
    // SAFETY: all-zero memory is a valid state (frames.P6).
    unsafe { Box::<State>::new_zeroed().assume_init() }
}

#[test]
fn the_short_way_gives_what_the_whole_walk_gives() {
    let mut random = Random::new(0xcafe);
    for version in [V11, V12, V13] {
        let mut thread = Thread::new(version);
        let codes: Vec<u64> = (0..3).map(|_| thread.code(50)).collect();
        let frames: Vec<u64> = (0..DEPTH + 8)
            .map(|_| {
                let index = thread.take(10);
                thread.at(index)
            })
            .collect();
        let runtime = thread.runtime();
        let (mut quick, mut whole) = (state(), state());
        let mut chain: Vec<Made> = Vec::new();
        let mut short = 0;
        for step in 0..4000 {
            chain.truncate(chain.len() - random.below(4).min(chain.len() as u64) as usize);
            if let Some(last) = chain.last_mut() {
                last.unit = random.below(3) as i64 - 1;
            }
            if random.below(16) == 0 && !chain.is_empty() {
                // What never happens while a frame runs, and does happen where memory is used again.
                let at = random.below(chain.len() as u64) as usize;
                chain[at].code = random.below(3) as usize;
            }
            while chain.len() < DEPTH && random.below(3) != 0 {
                chain.push(Made {
                    place: chain.len() + random.below(2) as usize * 8,
                    code: random.below(3) as usize,
                    unit: random.below(40) as i64,
                    begins: chain.is_empty() || random.below(4) == 0,
                });
                let place = chain[chain.len() - 1].place;
                if chain[..chain.len() - 1]
                    .iter()
                    .any(|made| made.place == place)
                {
                    chain.pop();
                }
            }
            if random.below(8) == 0 {
                // The name of a code changes, as if another lay there now.
                thread.set(codes[0] + 24, random.below(2));
            }
            write(&mut thread, version, &codes, &frames, &chain);
            let calls = chain.iter().filter(|made| made.begins).count();
            let mut natives = Frames {
                slots: (0..=calls).map(|n| thread.stack(2 + 2 * n) - 64).collect(),
                keep: 0,
                is_whole: true,
            };
            natives.keep = random.below(natives.slots.len() as u64 + 1) as usize;
            let before = quick.lists[quick.which][..quick.len].to_vec();
            let is_short = quick.read_quick(&runtime, thread.state(), thread.bounds(), &natives);
            short += usize::from(is_short.is_some());
            let plan = is_short.unwrap_or_else(|| {
                let read =
                    quick.read_of(&runtime, thread.state(), false, thread.bounds(), &natives);
                read.expect("a chain").0
            });
            let read = whole.read_of(&runtime, thread.state(), false, thread.bounds(), &natives);
            read.expect("a chain");
            let now = &quick.lists[quick.which][..quick.len];
            assert_eq!(now.len(), chain.len());
            assert_eq!(
                now,
                &whole.lists[whole.which][..whole.len],
                "{version:#x} step {step}"
            );
            assert_eq!(
                plan,
                super::plan(&before, now, natives.keep),
                "{version:#x} step {step}"
            );
        }
        assert!(short > 2000, "{short}");
    }
}

#[test]
fn a_slot_is_copied_to_once_and_again_after_it_was_forgotten() {
    let mut thread = Thread::new(V11);
    let code = thread.code(50);
    let frame = thread.frame(code, 3, 0);
    let made = [Made {
        place: 0,
        code: 0,
        unit: 3,
        begins: true,
    }];
    write(&mut thread, V11, &[code], &[frame], &made);
    let natives = Frames {
        slots: vec![thread.stack(2)],
        keep: 0,
        is_whole: true,
    };
    let runtime = thread.runtime();
    let mut state = state();
    let is_new = |state: &mut State| {
        let read = state.read_of(&runtime, thread.state(), false, thread.bounds(), &natives);
        assert_eq!(read.expect("a chain").0.all_users, 1);
        assert!(state.is_after(0, 1) && !state.is_after(0, 0) && !state.is_after(1, 9));
        state.user(0).expect("one").is_new
    };
    assert_eq!([is_new(&mut state), is_new(&mut state)], [true, false]);
    state.forget();
    assert!(!state.has_users());
    assert_eq!([is_new(&mut state), is_new(&mut state)], [true, false]);
    let slot = state.user(0).expect("one").slot;
    state.forget_code(slot);
    assert!(is_new(&mut state));
}
