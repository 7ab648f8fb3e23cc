//! Tiles of a map are asked for by level, column and row, and for each question the three are written into a String.
//! Mended: the key is the three numbers.

#[path = "dice.rs"]
mod dice;
use dice::Dice;
use std::collections::HashMap;
#[cfg(not(mended))]
use std::fmt::Write;

#[cfg(mended)]
type Key = (u8, u32, u32);
#[cfg(not(mended))]
type Key = String;

macro_rules! key {
    ($level:expr, $column:expr, $row:expr) => {{
        #[cfg(mended)]
        let key = ($level, $column, $row);
        #[cfg(not(mended))]
        let key = {
            let mut text = String::with_capacity(24);
            let _ = write!(text, "{:02}/{:08}/{:08}.png", $level, $column, $row);
            text
        };
        key
    }};
}

struct Server {
    tiles: HashMap<Key, Box<[u8]>>,
}

impl Server {
    #[inline(never)]
    fn lookup(&self, level: u8, column: u32, row: u32) -> Option<u8> {
        self.tiles.get(&key!(level, column, row)).map(|tile| tile[(column + row) as usize % tile.len()])
    }
}

fn main() {
    const SIDE: u32 = 100;
    let mut dice = Dice(8);
    let mut server = Server { tiles: HashMap::with_capacity((SIDE * SIDE) as usize) };
    for column in 0..SIDE {
        for row in 0..SIDE {
            server.tiles.insert(key!(7u8, column, row), vec![(column ^ row) as u8; 1024].into_boxed_slice());
        }
    }
    let mut sum = 0u64;
    for _ in 0..300_000 {
        let (column, row) = (dice.roll(120) as u32, dice.roll(120) as u32);
        sum += u64::from(server.lookup(7, column, row).unwrap_or(1));
    }
    println!("{sum}");
}
