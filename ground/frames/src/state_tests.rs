//! Plans of stacks of both kinds, against a judge that compares merged stacks frame by frame.

use super::*;
use skinflint_base::random::Random;

/// Native frames, outermost first: the slot of each.
struct Frames {
    slots: Vec<u64>,
    keep: usize,
    is_whole: bool,
}

impl Natives for Frames {
    fn total(&self) -> usize {
        self.slots.len()
    }

    fn keep(&self) -> usize {
        self.keep
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
