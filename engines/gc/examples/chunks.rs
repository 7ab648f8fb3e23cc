//! Pages that come and go, and what the runtime makes meanwhile for itself: mixed in arenas, in
//! chunks, or apart.
//!
//! ```text
//!   cargo run --release -p skinflint-gc --example chunks -- mixed | typed | apart [PAGES]
//!       ─► all open, every second closed, all closed: one line of JSON each
//! ```
//!
//! P1  A page is 300 KB of a program's objects in one heap that all pages share, as in a browser of one process. While it is
//!     built the runtime makes objects of its own (atoms, shapes) that stay when the page goes: one for each 64 of the
//!     program's.
//! P2  All forms make the same objects in the same order, in one heap. `mixed`: the runtime's are of the program's type, so in its
//!     arenas. `typed`: of a type of their own, so in arenas of their own among the program's. `apart`: system objects,
//!     in chunks of their own.
//! P3  Resident memory is the kernel's, after a collection and when the heap was shrunk.
//!
//! Not here: alternation, bars (`bench/gc/chunks.py`).

use skinflint_gc::typed::{Cx, Gc, Handle, Locked, Runtime, Tenant};
use skinflint_gc::{Config, object};

object! { struct Node<'gc> { next: Option<Gc<'gc, Node<'gc>>>, words: [u64; 11] } }
object! { struct Typed<'gc> { next: Option<Gc<'gc, Node<'gc>>>, words: [u64; 11] } }
object! { system struct Atom<'gc> { next: Option<Gc<'gc, Node<'gc>>>, words: [u64; 11] } }

object! {
    /// What the runtime keeps for itself.
    struct Own<'gc> {
        mixed: Locked<Vec<Gc<'gc, Node<'gc>>>>,
        typed: Locked<Vec<Gc<'gc, Typed<'gc>>>>,
        apart: Locked<Vec<Gc<'gc, Atom<'gc>>>>,
    }
}

const PAGE_BYTES: usize = 300_000;
const NODES: usize = PAGE_BYTES / size_of::<Node<'static>>();
/// The program's objects for one of the runtime's (P1).
const EACH: usize = 64;

#[derive(Clone, Copy)]
enum Form {
    Mixed,
    Typed,
    Apart,
}

fn resident_kb() -> u64 {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").expect("smaps_rollup");
    let line = text.lines().find(|line| line.starts_with("Rss:"));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    number.and_then(|n| n.parse().ok()).expect("Rss")
}

fn usage() -> ! {
    eprintln!("usage: chunks mixed|typed|apart [PAGES]");
    std::process::exit(2)
}

fn page<'gc>(cx: Cx<'gc>, own: Gc<'gc, Own<'gc>>, form: Form) -> Gc<'gc, Node<'gc>> {
    let words = [7; 11];
    let mut last = None;
    for at in 0..NODES {
        last = Some(cx.alloc(Node { next: last, words }).expect("memory"));
        if at % EACH > 0 {
            continue;
        }
        let next = None;
        match form {
            Form::Mixed => {
                let node = cx.alloc(Node { next, words }).expect("memory");
                own.mixed.borrow_mut(cx).push(node);
            }
            Form::Typed => {
                let typed = cx.alloc(Typed { next, words }).expect("memory");
                own.typed.borrow_mut(cx).push(typed);
            }
            Form::Apart => {
                let atom = cx.alloc_system(Atom { next, words }).expect("memory");
                own.apart.borrow_mut(cx).push(atom);
            }
        }
    }
    last.expect("a page has nodes")
}

fn tell(form: &str, at: &str, tenant: &Tenant, before_kb: u64) {
    tenant.collect().expect("no call is under way");
    tenant.shrink();
    let holds = tenant.heap().holds();
    let chunks = tenant.chunks().expect("no call is under way");
    println!(
        "{{\"form\": \"{form}\", \"at\": \"{at}\", \"objects\": {}, \"cell_bytes\": {}, \"held_bytes\": {}, \"rss_kb\": {}, \
         \"chunks\": {}}}",
        holds.objects,
        holds.cell_bytes,
        holds.held_bytes,
        resident_kb().saturating_sub(before_kb),
        chunks.json(),
    );
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let name = words.first().map_or("", String::as_str);
    let form = match name {
        "mixed" => Form::Mixed,
        "typed" => Form::Typed,
        "apart" => Form::Apart,
        _ => usage(),
    };
    let pages = match words.get(1).map(|word| word.parse()) {
        None => 120,
        Some(Ok(pages)) => pages,
        Some(Err(_)) => usage(),
    };
    let before_kb = resident_kb();
    let runtime = Runtime::new(Config {
        background: false,
        ..Config::default()
    });
    let tenant = runtime.tenant("browser", usize::MAX);
    let own: Handle<Own<'static>> = tenant.enter(|cx| {
        let (mixed, typed) = (Locked::default(), Locked::default());
        let apart = Locked::default();
        cx.keep(
            cx.alloc(Own {
                mixed,
                typed,
                apart,
            })
            .expect("memory"),
            "runtime",
        )
    });
    let mut open: Vec<Option<Handle<Node<'static>>>> = Vec::new();
    for _ in 0..pages {
        open.push(Some(tenant.enter(|cx| {
            let own = own.open(cx).expect("ours");
            cx.keep(page(cx, own, form), "page")
        })));
    }
    tell(name, "all open", &tenant, before_kb);
    open.iter_mut().step_by(2).for_each(|page| *page = None);
    tell(name, "half closed", &tenant, before_kb);
    open.clear();
    tell(name, "all closed", &tenant, before_kb);
}
