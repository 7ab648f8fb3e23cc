//! The cost of marking an object, where objects lie in the order of their creation and where they lie anywhere; and of
//! the end of a collection, when all is marked: also where half of the objects were garbage once and each arena has gaps.
//!
//! ```text
//!   cargo run --release -p skinflint-gc --example marking [nodes] ─► ns of marking for each reached object, and the end
//! ```
//!
//! K1  The figure is the least of several collections: other load on the machine only adds to it.
//!
//! Not here: whole programs (`bench/gc`).

use skinflint_base::random::Random;
use skinflint_gc::typed::{Gc, Handle, Runtime, Slot, Tenant};
use skinflint_gc::{Collection, Config, Growth, object};

object! {
    struct Node<'gc> {
        first: Slot<Gc<'gc, Node<'gc>>>,
        second: Slot<Gc<'gc, Node<'gc>>>,
        payload: [u64; 8],
    }
}

/// Builds a binary tree over a permutation of `count` nodes: one edge leads to every node but the first. `gaps`: after
/// each of them one is made that nothing leads to.
fn build(tenant: &Tenant, count: usize, random: bool, gaps: bool) -> Handle<Node<'static>> {
    tenant.enter(|cx| {
        let make = || {
            cx.alloc(Node {
                first: Slot::new(None),
                second: Slot::new(None),
                payload: [1; 8],
            })
            .expect("memory")
        };
        let made = (0..count).map(|_| {
            let node = make();
            if gaps {
                make();
            }
            node
        });
        let mut nodes: Vec<_> = made.collect();
        let mut order = Random::new(1);
        if random {
            for at in (1..count).rev() {
                nodes.swap(at, order.index(at + 1));
            }
        }
        for (at, node) in nodes.iter().enumerate() {
            node.first.set(cx, nodes.get(2 * at + 1).copied());
            node.second.set(cx, nodes.get(2 * at + 2).copied());
        }
        cx.keep(nodes[0], "tree")
    })
}

fn main() {
    let count = std::env::args().nth(1).and_then(|word| word.parse().ok());
    let count: usize = count.unwrap_or(1_000_000);
    for (order, random, gaps) in [
        ("as made", false, false),
        ("anywhere", true, false),
        ("with gaps", false, true),
    ] {
        let runtime = Runtime::new(Config {
            growth: Growth::SPIDERMONKEY,
            ..Config::default()
        });
        let tenant = runtime.tenant("marking", usize::MAX);
        let kept = build(&tenant, count, random, gaps);
        for _ in 0..9 {
            tenant.collect().expect("no tenant is busy");
            while !tenant.poll() {}
        }
        let log = tenant.heap().log();
        let least_of = |part: &dyn Fn(&Collection) -> u64| {
            log.iter().skip(1).map(part).min().unwrap_or(0) as f64 / 1e6
        };
        let least = log.iter().map(|c| c.mark_ns).min().unwrap_or(0);
        println!(
            "{count} objects {order:9} {:6.1} ns each, pause {:.1} ms, its end {:.3} ms",
            least as f64 / count as f64,
            least_of(&|c| c.pause_ns),
            least_of(&|c| c.pause_ns - c.finish_ns - c.mark_ns)
        );
        drop(kept);
    }
}
