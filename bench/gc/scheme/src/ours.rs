//! The machine on the typed heap of `skinflint-gc`.
//!
//! ```text
//!   tenant.enter(slice) ─► the closure ends: what is due is collected ─► tenant.enter(slice) …
//! ```
//!
//! Not here: the machine.

pub mod heap {
    //! The names that the machine uses.
    use skinflint_gc::typed::Trace;
    pub use skinflint_gc::typed::{Cx, Gc, Locked as Lock};

    macro_rules! object {
        ($($all:tt)*) => { skinflint_gc::object! { $($all)* } };
    }
    pub(crate) use object;

    #[inline]
    pub fn new<'gc, T: Trace + 'gc>(cx: Cx<'gc>, value: T) -> Result<Gc<'gc, T>, String> {
        cx.alloc(value).map_err(|_| "no memory".to_owned())
    }

    pub fn is<'gc, T>(a: Gc<'gc, T>, b: Gc<'gc, T>) -> bool {
        a.is(b)
    }
}

#[path = "machine.rs"]
pub mod machine;

use skinflint_gc::Config;
use skinflint_gc::typed::{Handle, Runtime};

use crate::code::Program;
use crate::{Done, FUEL};

pub fn run(program: &Program, config: Config) -> Result<Done, String> {
    let runtime = Runtime::new(config);
    let tenant = runtime.tenant("scheme", usize::MAX);
    let kept: Handle<machine::Machine<'static>> = tenant.enter(|cx| {
        let machine = machine::start(cx, program)?;
        Ok::<_, String>(cx.keep(machine, "the machine"))
    })?;
    let mut out = String::new();
    loop {
        let ended = tenant.enter(|cx| {
            let machine = kept
                .open(cx)
                .map_err(|_| "another heap's machine".to_owned())?;
            machine::slice(cx, machine, program, &mut out, FUEL)
        })?;
        if ended {
            let collections = tenant.heap().collections();
            return Ok(Done { out, collections });
        }
    }
}
