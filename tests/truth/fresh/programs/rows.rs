//! A table in text is summed up; each field becomes a String before it is read.
//! Mended: fields are read where they lie.

#[path = "mark.rs"]
mod mark;
use mark::Seeded;
use std::fmt::Write;

#[inline(never)]
fn parse_row(row: &str, sums: &mut [u64; 8]) {
    for (column, field) in row.split(',').enumerate() {
        if cfg!(mended) {
            sums[column] += field.parse::<u64>().unwrap_or(0);
        } else {
            let field = String::from(field);
            sums[column] += field.parse::<u64>().unwrap_or(0);
        }
    }
}

fn main() {
    let mut seeded = Seeded(19);
    let mut text = String::with_capacity(14 << 20);
    for _ in 0..150_000 {
        for column in 0..8 {
            let _ = write!(text, "{}{}", if column == 0 { "" } else { "," }, seeded.below(100_000_000));
        }
        text.push('\n');
    }
    let mut sums = [0; 8];
    for row in text.lines() {
        parse_row(row, &mut sums);
    }
    println!("{sums:?}");
}
