//! The machine on `gc-arena`.
//!
//! ```text
//!   arena.mutate(slice) ─► arena.collect_debt() ─► arena.mutate(slice) …
//! ```
//!
//! Not here: the machine.

pub mod heap {
    //! The names that the machine uses.
    use gc_arena::{Collect, Mutation};
    pub use gc_arena::{Gc, lock::RefLock as Lock};

    pub type Cx<'gc> = &'gc Mutation<'gc>;

    macro_rules! object {
        ($($all:tt)*) => {
            #[derive(gc_arena::Collect)]
            #[collect(no_drop)]
            $($all)*
        };
    }
    pub(crate) use object;

    #[inline]
    pub fn new<'gc, T: Collect<'gc> + 'gc>(cx: Cx<'gc>, value: T) -> Result<Gc<'gc, T>, String> {
        Ok(Gc::new(cx, value))
    }

    pub fn is<'gc, T>(a: Gc<'gc, T>, b: Gc<'gc, T>) -> bool {
        Gc::ptr_eq(a, b)
    }
}

#[path = "machine.rs"]
pub mod machine;

use gc_arena::metrics::Pacing;
use gc_arena::{Arena, Collect, Gc, Rootable};

use crate::code::Program;
use crate::{Done, FUEL};

/// What the arena begins with: a machine, or why there is none.
#[derive(Collect)]
#[collect(no_drop)]
struct Root<'gc> {
    machine: Result<Gc<'gc, machine::Machine<'gc>>, String>,
}

pub fn run(program: &Program, pacing: Pacing) -> Result<Done, String> {
    let mut arena = Arena::<Rootable![Root<'_>]>::new(|mc| Root {
        machine: machine::start(mc, program),
    });
    arena.metrics().set_pacing(pacing);
    let mut out = String::new();
    loop {
        let ended = arena.mutate(|mc, root| {
            let machine = root.machine.clone()?;
            machine::slice(mc, machine, program, &mut out, FUEL)
        })?;
        if ended {
            return Ok(Done {
                out,
                collections: 0,
            });
        }
        arena.collect_debt();
    }
}
