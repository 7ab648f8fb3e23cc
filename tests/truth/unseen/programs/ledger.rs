//! A control: tables whose sizes are known before they are filled, all by with_capacity, and all filled to the last place.

#[path = "dice.rs"]
mod dice;
use dice::Dice;
use std::collections::HashMap;

const ACCOUNTS: usize = 57_344; // what a table of 65,536 places holds
const BOOKINGS: usize = 500_000;

struct Ledger {
    balance: HashMap<u64, i64>,
    from: Vec<u32>,
    amount: Vec<i64>,
}

fn main() {
    let mut dice = Dice(2);
    let mut ledger = Ledger {
        balance: HashMap::with_capacity(ACCOUNTS),
        from: Vec::with_capacity(BOOKINGS),
        amount: Vec::with_capacity(BOOKINGS),
    };
    for account in 0..ACCOUNTS as u64 {
        ledger.balance.insert(account * 31, 100);
    }
    for _ in 0..BOOKINGS {
        ledger.from.push(dice.roll(ACCOUNTS as u64) as u32);
        ledger.amount.push(dice.roll(500) as i64 - 250);
    }
    for _ in 0..4 {
        for (from, amount) in ledger.from.iter().zip(&ledger.amount) {
            *ledger.balance.get_mut(&(u64::from(*from) * 31)).expect("an account") += amount;
        }
    }
    println!("{}", ledger.balance.values().map(|balance| balance.abs()).sum::<i64>());
}
