//! Files are compressed through a list of buffers that may be used again. A buffer is only taken if it fits, and files come with
//! the smallest first: none ever does.
//! Mended: no list; a buffer goes when its file is done.

#[path = "dice.rs"]
mod dice;
use std::collections::VecDeque;

#[derive(Default)]
struct Buffers {
    idle: VecDeque<Vec<u8>>,
    taken_again: usize,
}

impl Buffers {
    #[inline(never)]
    fn take(&mut self, bytes: usize) -> Vec<u8> {
        match self.idle.iter().position(|buffer| buffer.capacity() >= bytes) {
            Some(fits) => {
                self.taken_again += 1;
                self.idle.swap_remove_back(fits).expect("it was found there")
            }
            None => Vec::with_capacity(bytes),
        }
    }

    fn give(&mut self, mut buffer: Vec<u8>) {
        if cfg!(mended) {
            return;
        }
        buffer.clear();
        self.idle.push_back(buffer);
        if self.idle.len() > 200 {
            self.idle.pop_front();
        }
    }
}

fn compress(file: &[u8], out: &mut Vec<u8>) {
    for chunk in file.chunks(3) {
        out.push(chunk.iter().fold(7, |all, byte| all ^ byte.rotate_left(3)));
    }
    let rest = out.capacity() - out.len();
    out.extend(std::iter::repeat(0).take(rest));
}

fn main() {
    let mut dice = dice::Dice(4);
    let source: Vec<u8> = (0..8 << 20).map(|_| dice.roll(256) as u8).collect();
    let mut buffers = Buffers { idle: VecDeque::with_capacity(256), taken_again: 0 };
    let mut sum = 0u64;
    for n in 0..1500 {
        let file = &source[n * 100..][..10_000 + n * 97];
        let mut out = buffers.take(file.len());
        compress(file, &mut out);
        sum += u64::from(out[n]) + out.len() as u64;
        buffers.give(out);
    }
    dice::mark("compressed");
    println!("{sum} {}", buffers.taken_again);
}
