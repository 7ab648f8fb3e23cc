//! A spreadsheet's columns in chunks: a count in front of 96 numbers, together 8 bytes more than 768.
//! Mended: 95 numbers a chunk.

#[path = "dice.rs"]
mod dice;
use dice::Dice;

const CELLS: usize = if cfg!(mended) { 95 } else { 96 };

struct Chunk {
    used: u64,
    cells: [f64; CELLS],
}

#[derive(Default)]
struct Column {
    chunks: Vec<Box<Chunk>>,
}

impl Column {
    #[inline(never)]
    fn open_chunk(&mut self) {
        self.chunks.push(Box::new(Chunk { used: 0, cells: [0.0; CELLS] }));
    }

    fn push(&mut self, value: f64) {
        if self.chunks.last().map_or(true, |chunk| chunk.used as usize == CELLS) {
            self.open_chunk();
        }
        let chunk = self.chunks.last_mut().expect("just opened");
        chunk.cells[chunk.used as usize] = value;
        chunk.used += 1;
    }

    fn cells(&self) -> impl Iterator<Item = f64> + '_ {
        self.chunks.iter().flat_map(|chunk| chunk.cells[..chunk.used as usize].iter().copied())
    }
}

fn main() {
    const COLUMNS: usize = 40;
    const ROWS: usize = 40_000;
    let mut dice = Dice(5);
    let mut columns: Vec<Column> =
        (0..COLUMNS).map(|_| Column { chunks: Vec::with_capacity(ROWS / CELLS + 1) }).collect();
    for _ in 0..ROWS {
        for column in &mut columns {
            column.push(dice.roll(10_000) as f64);
        }
    }
    dice::mark("filled");
    let mut sum = 0.0;
    for pass in 0..20 {
        sum += columns[pass].cells().zip(columns[pass + 20].cells()).map(|(a, b)| a * b).sum::<f64>();
    }
    println!("{sum}");
}
