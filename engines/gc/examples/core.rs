//! A client of the unsafe core: kinds by hand, one root that it names, and a stack that is scanned for the others.
//!
//! ```text
//!   World ─ Heap ◄─ alloc_or_collect(kind, roots) ── the interpreter's loop
//!                        roots: Interpreter { globals } and conservative::Stack
//! ```
//!
//! X1  Every object is written before the next allocation, and holds null or pointers to objects of this heap.
//! X2  Objects that only the stack leads to are found on it; pointers elsewhere (`globals`) are told.
//!
//! Not here: tenants, write barriers: marking is in one go (`Config::incremental` is `None`).

fn main() {
    run();
}

/// Runs the example; the tests call it, too.
pub fn run() {
    #[cfg(target_arch = "x86_64")]
    client::run();
    #[cfg(not(target_arch = "x86_64"))]
    println!("stacks are scanned on x86-64 only");
}

#[cfg(target_arch = "x86_64")]
mod client {
    use std::hint::black_box;
    use std::ptr::{NonNull, null_mut};

    use skinflint_gc::conservative::Stack;
    use skinflint_gc::{
        Config, Finalize, Heap, Kind, Origin, Reason, Roots, Tracer, World, collect,
    };

    /// A cell of the language: no header, since an arena has cells of one kind.
    #[repr(C)]
    struct Cons {
        first: i64,
        rest: *mut Cons,
    }

    /// A constant for each sort of object; the heap knows it by its address.
    static CONS: Kind = Kind {
        name: || "Cons",
        bytes: size_of::<Cons>(),
        align: align_of::<Cons>(),
        trace: Some(trace_cons),
        trace_part: None,
        finalize: None,
        finalize_on: Finalize::Nothing,
        origin: Origin::User,
    };

    /// Tells every edge.
    unsafe fn trace_cons(object: NonNull<u8>, tracer: &mut Tracer) {
        // SAFETY: X1: the collector calls it with objects of this kind.
        let cons = unsafe { object.cast::<Cons>().as_ref() };
        if let Some(rest) = NonNull::new(cons.rest.cast()) {
            tracer.named("rest", |tracer| tracer.edge(rest));
        }
    }

    /// The roots that the client knows, and the stack where the others are found.
    struct Interpreter<'a> {
        heap: &'a Heap,
        globals: *mut Cons,
        stack: Stack,
    }

    impl Roots for Interpreter<'_> {
        fn trace(&mut self, tracer: &mut Tracer) {
            if let Some(globals) = NonNull::new(self.globals.cast()) {
                tracer.edge(globals);
            }
            // SAFETY: on the thread that it was made on.
            unsafe { self.stack.trace(self.heap, tracer) };
        }
    }

    impl Interpreter<'_> {
        /// Allocates a cell. A collection may happen here, with `rest` on the stack.
        #[inline(never)]
        fn cons(&mut self, first: i64, rest: *mut Cons) -> *mut Cons {
            let heap = self.heap;
            // SAFETY: X1 and X2: all objects that are used later are told or on the stack.
            let cell = unsafe { heap.alloc_or_collect(&CONS, self) };
            let cell = cell.expect("room for a cell").cast::<Cons>().as_ptr();
            // SAFETY: X1: the cell is ours and large enough.
            unsafe {
                cell.write(Cons {
                    first,
                    rest: black_box(rest),
                })
            };
            cell
        }

        fn list(&mut self, length: i64) -> *mut Cons {
            (0..length).fold(null_mut(), |rest, first| self.cons(first, rest))
        }
    }

    fn length(mut list: *mut Cons) -> (i64, i64) {
        let (mut cells, mut sum) = (0, 0);
        // SAFETY: X1: a list that is reached is whole.
        while let Some(cons) = unsafe { list.as_ref() } {
            (cells, sum, list) = (cells + 1, sum + cons.first, cons.rest);
        }
        (cells, sum)
    }

    pub fn run() {
        let world = World::new(Config::default());
        let heap = world.heap("interpreter", 64 << 20);
        let stack = Stack::here().expect("the system says where the stack begins");
        let mut interpreter = Interpreter {
            heap: &heap,
            globals: null_mut(),
            stack,
        };
        interpreter.globals = interpreter.list(1000);
        let on_the_stack = interpreter.list(500);
        // Thirty megabytes of garbage; the heap is collected meanwhile.
        (0..20_000).for_each(|_| {
            black_box(interpreter.list(100));
        });
        // SAFETY: as in `cons`.
        unsafe { collect(&[&heap], Reason::Asked, &mut interpreter) }.expect("no tenant is busy");
        assert_eq!(length(interpreter.globals), (1000, 499_500));
        assert_eq!(length(black_box(on_the_stack)), (500, 124_750));
        let (holds, collections) = (heap.holds(), heap.collections());
        // Words that only look like pointers keep a list or two.
        assert!((1500..5000).contains(&holds.objects), "{holds:?}");
        assert!(collections > 1);
        println!("{} objects after {collections} collections", holds.objects);
    }
}
