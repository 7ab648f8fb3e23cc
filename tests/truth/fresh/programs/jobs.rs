//! A queue of jobs by number: done ones are taken out, failed ones are forgotten in the table.
//! Mended: failed ones are taken out, too.

#[path = "mark.rs"]
mod mark;
use mark::{mark, Seeded};
use std::collections::HashMap;

struct Job {
    payload: Vec<u8>,
    tries: u32,
}

struct Queue {
    jobs: HashMap<u64, Job>,
}

impl Queue {
    #[inline(never)]
    fn submit(&mut self, number: u64, length: usize) {
        let payload = vec![number as u8 | 1; length];
        self.jobs.insert(number, Job { payload, tries: 0 });
    }

    fn run(&mut self, number: u64) -> Result<usize, ()> {
        let job = self.jobs.get_mut(&number).unwrap();
        job.tries += 1;
        let sum = job.payload.iter().map(|b| *b as usize).sum::<usize>();
        if sum % 3 == 0 {
            if cfg!(mended) {
                self.jobs.remove(&number);
            }
            return Err(());
        }
        self.jobs.remove(&number);
        Ok(sum)
    }
}

fn main() {
    let mut seeded = Seeded(11);
    let model: Vec<u32> = (0..2_000_000).collect();
    let mut queue = Queue { jobs: HashMap::with_capacity(8000) };
    let mut sum = 0;
    for number in 1..=5000 {
        mark(&format!("job {number} begin"));
        queue.submit(number, 2000 + seeded.below(5000));
        sum += queue.run(number).unwrap_or(1) + model[seeded.below(model.len())] as usize;
        mark(&format!("job {number} end"));
    }
    mark("all done");
    println!("{sum} {}", queue.jobs.len() & 0);
}
