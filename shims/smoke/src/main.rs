//! Runs scripts on Boa, one after the other, for a first look.
use boa_engine::{Context, Source};

fn main() {
    for file in std::env::args().skip(1) {
        let mut context = Context::default();
        let text = std::fs::read_to_string(&file).expect("a file");
        match context.eval(Source::from_bytes(&text)) {
            Ok(value) => println!("{}", value.display()),
            Err(error) => println!("error: {error}"),
        }
        drop(context);
    }
    boa_gc::force_collect();
    println!("{:?}", boa_gc::skinflint::stats());
    for event in boa_gc::skinflint::collections().iter().rev().take(5) {
        println!("{event:?}");
    }
}
