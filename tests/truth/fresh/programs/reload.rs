//! A daemon loads its rules, boils them down to a small table, drops them, and goes on with the table alone.
//! Mended: malloc_trim when the rules are dropped.

#[path = "mark.rs"]
mod mark;
use mark::{mark, Seeded};
use std::collections::BTreeMap;

extern "C" {
    fn malloc_trim(pad: usize) -> i32;
}

fn load(seeded: &mut Seeded) -> Vec<String> {
    let mut rules = Vec::with_capacity(120_000);
    for i in 0..120_000 {
        let mut rule = format!("rule {i}: ");
        rule.extend(std::iter::repeat('x').take(60 + seeded.below(300)));
        rules.push(rule);
    }
    rules
}

fn boil_down(rules: &[String]) -> BTreeMap<usize, usize> {
    let mut lengths = BTreeMap::new();
    for rule in rules {
        *lengths.entry(rule.len()).or_insert(0) += 1;
    }
    lengths
}

fn main() {
    let mut seeded = Seeded(31);
    let rules = load(&mut seeded);
    let table = boil_down(&rules);
    drop(rules);
    if cfg!(mended) {
        // SAFETY: may be called at any time.
        unsafe { malloc_trim(0) };
    }
    // CLOCK: a program that goes on, at rest; nothing is judged by it
    std::thread::sleep(std::time::Duration::from_millis(100));
    mark("idle");
    let mut sum = 0;
    for i in 0..40 {
        let answer = vec![i as u8; 300];
        sum += table.values().nth(i % table.len()).unwrap() + answer[7] as usize;
        // CLOCK: a program that goes on, at rest; nothing is judged by it
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    println!("{sum}");
}
