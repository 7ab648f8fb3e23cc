//! What only grows, found without any marks.

use super::advice::{Script, function, of};
use super::*;
use skinflint_analysis::model::{Finding, GREW_UNBROKEN, RELEASED_IN_THE_END};

/// 2,000 rounds without a mark: f1 keeps one block of each, f2 the last 200, f3 has its 200 from the beginning.
#[test]
fn what_only_grows_is_told_without_marks() {
    let mut script = Script::new();
    for _ in 0..200 {
        script.alloc(3, 1000, 1000);
    }
    let mut cache = std::collections::VecDeque::new();
    for _ in 0..2000 {
        script.alloc(1, 100, 104);
        cache.push_back(script.alloc(2, 1000, 1000));
        if cache.len() > 200 {
            script.free(cache.pop_front().unwrap());
        }
        for _ in 0..3 {
            let passing = script.alloc(4, 3000, 3000);
            script.free(passing);
        }
    }
    // What an attached recording has from its beginning on is not what the program has from its own.
    let mut attached = facts();
    attached.ending = Some(Ending {
        notes: vec!["recorded from a moment of its life on (attached): …".into()],
        ..Ending::default()
    });
    for (facts, run) in [(facts(), "run"), (attached, "recording")] {
        let report = script.report(facts);
        let grows: Vec<_> = report
            .findings
            .iter()
            .filter(|one| one.title.starts_with("Only grows"))
            .collect();
        assert_eq!(grows.len(), 1, "{grows:#?}");
        assert_eq!(function(&report, grows[0]), "f1");
        assert_eq!((grows[0].blocks, grows[0].saved_bytes), (2000, 0));
        let title = format!("Only grows, from the beginning of the {run} to its end");
        assert_eq!(grows[0].title, title);
        let words = format!("of them in one eighth of the {run} after the other");
        assert!(grows[0].what.contains(&words), "{}", grows[0].what);
    }
}

/// 30,000 blocks of start-up in 30 ms, and 20,000 rounds of 2 ms: `round` makes what each of them makes.
fn after_start_up(mut round: impl FnMut(&mut Script, usize)) -> Vec<(String, u64, u64)> {
    let mut script = Script::new();
    for _ in 0..30_000 {
        script.alloc(1, 1000, 1000);
    }
    for event in &mut script.events {
        event.time_ns /= 1000;
    }
    for i in 0..20_000 {
        round(&mut script, i);
        let passing = script.alloc(4, 3000, 3000);
        script.free(passing);
    }
    let report = script.report(facts());
    let all = of(&report, FindingKind::Leak).into_iter();
    let grows = all.filter(|one| one.title.starts_with("Only grows"));
    let figures = |one: &Finding| (function(&report, one).to_owned(), one.blocks, one.now_bytes);
    let mut grows: Vec<_> = grows.map(figures).collect();
    grows.sort();
    grows
}

/// Neither start-up nor the blocks in use hide what each round leaves, whether or not they are of the same stack.
#[test]
fn what_only_grows_after_start_up_is_told() {
    let leaks = |node: u32, every: usize, in_use: usize| {
        let mut using = std::collections::VecDeque::new();
        after_start_up(move |script, i| {
            let block = script.alloc(node, 1000, 1000);
            if i % every > 0 {
                using.push_back(block);
            }
            if using.len() > in_use {
                script.free(using.pop_front().unwrap());
            }
        })
    };
    let one = |name: &str, blocks: u64| vec![(name.to_owned(), blocks, blocks * 1000)];
    assert_eq!(leaks(2, 1, 0), one("f2", 20_000));
    // Start-up is born as evenly; nothing was done beside it, so it is not told to have grown.
    assert_eq!(leaks(1, 1, 0), one("f1", 20_000));
    assert_eq!(leaks(2, 20, 200), one("f2", 1_000));
    assert_eq!(leaks(1, 20, 200), one("f1", 1_000));
    assert_eq!(leaks(2, 20, 4_000), one("f2", 1_000));
    // What is in use, and nothing else.
    assert_eq!(leaks(2, usize::MAX, 200), []);
    assert_eq!(leaks(2, usize::MAX, 10_000), []);
    assert_eq!(leaks(1, usize::MAX, 10_000), []);
}

/// A table that is filled in the first half of the rounds, in the last half, and a cache whose places are taken by chance.
#[test]
fn what_is_filled_once_or_replaced_by_chance_does_not_only_grow() {
    for half in [0..10_000, 10_000..20_000] {
        let filled = after_start_up(|script, i| {
            if half.contains(&i) {
                script.alloc(2, 1000, 1000);
            }
        });
        assert_eq!(filled, [], "{half:?}");
    }
    for places in [500, 5_000, 10_000] {
        let (mut cache, mut at) = (Vec::new(), 1u64);
        let replaced = after_start_up(|script, _| {
            let block = script.alloc(2, 1000, 1000);
            if cache.len() < places {
                cache.push(block);
                return;
            }
            at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let place = (at >> 33) as usize % places;
            script.free(std::mem::replace(&mut cache[place], block));
        });
        assert_eq!(replaced, [], "{places} places");
    }
}

/// A program that keeps one block of each of 2,000 rounds, and releases them before it ends: what only grew is told at a
/// moment before that, if nothing else followed.
#[test]
fn what_only_grew_is_told_at_a_moment_before_the_exit() {
    let told = |more: u32| {
        let (mut script, mut marks) = (Script::new(), Vec::new());
        let mut kept = Vec::new();
        for _ in 0..2000 {
            kept.push(script.alloc(1, 100, 104));
            let passing = script.alloc(4, 3000, 3000);
            script.free(passing);
        }
        script.mark("planned", &mut marks);
        for _ in 0..more {
            let passing = script.alloc(4, 3000, 3000);
            script.free(passing);
        }
        kept.into_iter().for_each(|block| script.free(block));
        let mut facts = facts();
        facts.marks = marks;
        let options = Options {
            at: Some(At::Mark("planned".into())),
            ..Options::default()
        };
        let mut analyzer = Analyzer::new(facts, options).unwrap();
        script.events.iter().for_each(|event| analyzer.event(event));
        let report = analyzer.finish(&mut Names);
        let all = of(&report, FindingKind::Leak).into_iter();
        let grows: Vec<_> = all
            .filter(|one| one.title == RELEASED_IN_THE_END)
            .map(|one| (one.blocks, one.now_bytes, one.saved_bytes))
            .collect();
        grows
    };
    assert_eq!(told(0), [(2000, 2000 * 104, 0)]);
    assert_eq!(told(250), [(2000, 2000 * 104, 0)]);
    assert_eq!(told(1000), [], "it went on, and kept nothing");
}

/// The same program, which lets go of all of it and idles then: what it kept is no growth, at any moment before. What it lets
/// go of as it ends is told with that.
#[test]
fn what_was_released_before_a_rest_did_not_only_grow() {
    let told = |idle_ms: u64| {
        let mut script = Script::new();
        let kept: Vec<u64> = (0..2000).map(|_| script.alloc(1, 100, 104)).collect();
        let planned = script.events.len() as u64;
        kept.into_iter().for_each(|block| script.free(block));
        // The releases take next to no time.
        let then_ns = planned * 1_000_000;
        let released = script.events[planned as usize..].iter_mut();
        released.for_each(|event| event.time_ns = then_ns + 1);
        let last = script.alloc(4, 64, 72);
        script.free(last);
        let events = script.events.len();
        for event in &mut script.events[events - 2..] {
            event.time_ns = then_ns + 1 + idle_ms * 1_000_000;
        }
        let options = Options {
            at: Some(At::Time(then_ns)),
            ..Options::default()
        };
        let mut analyzer = Analyzer::new(facts(), options).unwrap();
        script.events.iter().for_each(|event| analyzer.event(event));
        let report = analyzer.finish(&mut Names);
        let all = of(&report, FindingKind::Leak).into_iter();
        all.map(|one| (one.title.clone(), one.confidence, one.blocks))
            .collect::<Vec<_>>()
    };
    let ended = [(RELEASED_IN_THE_END.to_owned(), Confidence::Possible, 2000)];
    assert_eq!(told(10), ended);
    assert_eq!(told(4000), [], "it idled for two thirds of its run");
}

/// All that a program acquires, it acquires at first, to work on it: with the same serials as what grows all along.
#[test]
fn what_is_made_in_one_burst_does_not_grow() {
    let until = |rest: u64, ended_ms: u64| {
        let mut script = Script::new();
        for _ in 0..2000 {
            script.alloc(1, 100, 104);
            let passing = script.alloc(4, 64, 72);
            script.free(passing);
        }
        let last = script.alloc(4, 64, 72);
        script.free(last);
        let events = script.events.len();
        script.events[events - 1].time_ns += rest * 1_000_000;
        let mut facts = facts();
        facts.ending = Some(Ending {
            exit: Exit::Exited(0),
            time_ns: ended_ms * 1_000_000,
            ..Ending::default()
        });
        let report = script.report(facts);
        let all = report.findings.iter();
        all.filter(|one| one.title.starts_with("Only grows"))
            .count()
    };
    let told = |rest: u64| until(rest, 6002 + rest);
    assert_eq!(told(0), 1);
    assert_eq!(told(1500), 1, "a fifth of the time");
    assert_eq!(told(18_000), 0, "it worked on it");
    assert_eq!(until(0, 24_000), 0, "it worked on it without a heap call");
}

/// 2,000 blocks are loaded, and the program ends, or the recording of an attached one does: no claim. Beside `temporaries`
/// for each of them they are kept from something that is done again and again.
#[test]
fn a_load_is_not_told_to_only_grow() {
    let told = |temporaries: usize, every: usize, late: bool| {
        let mut script = Script::new();
        for i in 0..2000 {
            script.alloc(1, 100, 104);
            for _ in 0..if i % every == 0 { temporaries } else { 0 } {
                let passing = script.alloc(4, 3000, 3000);
                script.free(passing);
            }
        }
        let mut facts = facts();
        if late {
            facts.ending = Some(Ending {
                notes: vec!["recorded from a moment of its life on (attached): …".into()],
                ..Ending::default()
            });
        }
        let report = script.report(facts);
        let all = of(&report, FindingKind::Leak).into_iter();
        let grew =
            all.filter(|one| one.title.starts_with("Only grows") || one.title == GREW_UNBROKEN);
        grew.map(|one| (one.title == GREW_UNBROKEN, one.confidence))
            .collect::<Vec<_>>()
    };
    for late in [false, true] {
        assert_eq!(told(0, 1, late), [(true, Confidence::Possible)]);
        assert_eq!(told(1, 4, late), [(true, Confidence::Possible)]);
        assert_eq!(told(1, 1, late), [(false, Confidence::Likely)]);
        assert_eq!(told(2, 2, late), [(false, Confidence::Likely)]);
    }
}
