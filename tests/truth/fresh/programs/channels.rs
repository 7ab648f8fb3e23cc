//! Every subscriber of a feed gets a queue with room for 4,096 messages, and has at most fifty.
//! Mended: room for 64.

#[path = "mark.rs"]
mod mark;
use mark::Seeded;
use std::collections::VecDeque;

#[derive(Clone, Copy)]
struct Message {
    topic: u32,
    at: u64,
    value: f64,
}

struct Subscriber {
    queue: VecDeque<Message>,
}

#[inline(never)]
fn open_channel() -> Subscriber {
    let room = if cfg!(mended) { 64 } else { 4096 };
    Subscriber { queue: VecDeque::with_capacity(room) }
}

fn main() {
    let mut seeded = Seeded(29);
    let mut all: Vec<Subscriber> = (0..500).map(|_| open_channel()).collect();
    let mut sum = 0.0;
    for at in 0..200_000u64 {
        let subscriber = &mut all[seeded.below(500)];
        subscriber.queue.push_back(Message { topic: at as u32 % 100, at, value: seeded.below(1000) as f64 });
        if subscriber.queue.len() > 20 + seeded.below(30) {
            for message in subscriber.queue.drain(..) {
                sum += message.value * message.topic as f64 + message.at as f64;
            }
            subscriber.queue.make_contiguous();
        }
    }
    // CLOCK: a program that goes on, at rest; nothing is judged by it
    std::thread::sleep(std::time::Duration::from_millis(200));
    println!("{sum}");
}
