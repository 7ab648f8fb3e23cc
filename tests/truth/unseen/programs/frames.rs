//! A recording of sound: each frame of 2,700 samples is a vector of its own, 5,400 bytes, for which there is no class near.
//! Mended: all frames lie in one vector, whose size is known.

#[path = "dice.rs"]
mod dice;
use dice::Dice;

const SAMPLES: usize = 2700;
const FRAMES: usize = 3000;

struct Recording {
    frames: Vec<Vec<i16>>,
    all: Vec<i16>,
}

impl Recording {
    #[inline(never)]
    fn record_frame(&mut self, dice: &mut Dice) {
        let pitch = dice.roll(50) as usize + 1;
        let samples = (0..SAMPLES).map(move |i| (i * pitch % 997) as i16);
        if cfg!(mended) {
            self.all.extend(samples);
        } else {
            self.frames.push(samples.collect());
        }
    }

    fn frame(&self, n: usize) -> &[i16] {
        if cfg!(mended) { &self.all[n * SAMPLES..][..SAMPLES] } else { &self.frames[n] }
    }
}

fn main() {
    let mut dice = Dice(9);
    let mut recording = Recording {
        frames: Vec::with_capacity(FRAMES),
        all: Vec::with_capacity(if cfg!(mended) { FRAMES * SAMPLES } else { 0 }),
    };
    for _ in 0..FRAMES {
        recording.record_frame(&mut dice);
    }
    dice::mark("recorded");
    let mut loudest = 0i64;
    for _ in 0..20_000 {
        let frame = recording.frame(dice.roll(FRAMES as u64) as usize);
        loudest += i64::from(*frame.iter().max().expect("samples"));
    }
    println!("{loudest}");
}
