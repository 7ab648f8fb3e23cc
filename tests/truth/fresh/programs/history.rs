//! Control. The last 3,000 messages of a chat, each a String of its own length; the oldest goes when a new one comes.

#[path = "mark.rs"]
mod mark;
use mark::{mark, Seeded};
use std::collections::VecDeque;

fn main() {
    let mut seeded = Seeded(37);
    let mut history: VecDeque<String> = VecDeque::with_capacity(3001);
    let mut sum = 0;
    for minute in 1..=200 {
        mark(&format!("minute {minute} begin"));
        for _ in 0..100 {
            let length = 1000 + seeded.below(5000);
            let mut message = String::with_capacity(length);
            while message.len() < length {
                message.push((b'a' + seeded.below(26) as u8) as char);
            }
            history.push_back(message);
            if history.len() > 3000 {
                history.pop_front();
            }
            sum += history[seeded.below(history.len())].len();
        }
        mark(&format!("minute {minute} end"));
    }
    println!("{sum}");
}
