//! A compiler keeps the tokens of each module beside its code, though only parsing needed them.
//! Mended: the tokens are dropped when the module is parsed.

#[path = "mark.rs"]
mod mark;
use mark::{mark, Seeded};

#[derive(Clone, Copy)]
struct Token {
    kind: u8,
    line: u32,
    value: u64,
}

struct Module {
    tokens: Vec<Token>,
    code: Vec<u8>,
}

#[inline(never)]
fn tokenize(length: usize, seeded: &mut Seeded) -> Vec<Token> {
    let mut tokens = Vec::with_capacity(length);
    for i in 0..length {
        tokens.push(Token { kind: (i % 17) as u8, line: i as u32 / 9, value: seeded.below(1 << 20) as u64 });
    }
    tokens
}

#[inline(never)]
fn generate(tokens: &[Token]) -> Vec<u8> {
    let mut code = Vec::with_capacity(tokens.len());
    code.extend(tokens.iter().map(|t| t.kind ^ t.value as u8 ^ t.line as u8));
    code
}

fn main() {
    let mut seeded = Seeded(17);
    let mut modules = Vec::with_capacity(200);
    mark("compile begin");
    for _ in 0..200 {
        let length = 4000 + seeded.below(5000);
        let tokens = tokenize(length, &mut seeded);
        let code = generate(&tokens);
        let tokens = if cfg!(mended) { Vec::new() } else { tokens };
        modules.push(Module { tokens, code });
    }
    mark("compile end");
    let mut sum = 0usize;
    for _ in 0..200_000 {
        let module = &modules[seeded.below(200)];
        sum += module.code[seeded.below(module.code.len())] as usize;
    }
    mark("run");
    // CLOCK: a program that goes on, at rest; nothing is judged by it
    std::thread::sleep(std::time::Duration::from_millis(200));
    println!("{sum} {}", modules.iter().map(|m| m.tokens.len().min(1)).sum::<usize>() & 0);
}
