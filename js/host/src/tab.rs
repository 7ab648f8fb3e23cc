//! A tab: a tenant of the heap, the engine in it, and its turns.
//!
//! ```text
//!   open ─► program ─► turn: a timer, reactions, futures ─► … ─► close: onclose, engine, tenant
//!              every entry: tenant entered, panics caught ──► Failure of this tab alone
//! ```
//!
//! B1  The engine is used inside its tenant only, and by one entry at a time.
//! B2  `cell` and `context` are boxes of this tab alone, made by `Engine::new` and given back by its `drop`, after
//!     the futures, which are all that borrows from them.
//! B3  After a panic the engine is in no known state: it is dropped (its panics caught, too) and not used again.
//! B4  Reactions run to the last after each entry; kept objects (WeakRef) are let go after that (ECMA-262 9.10.3).
//! B5  What a tab takes while it is entered lies in its arena, where the allocator has arenas; what its end frees is
//!     freed there, too. Blocks may outlive the arena.
//!
//! Not here: in which order tabs take turns (`run`).

use std::any::Any;
use std::cell::RefCell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::pin::Pin;
use std::ptr::NonNull;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

use boa_engine::builtins::promise::{OperationType, Promise};
use boa_engine::context::HostHooks;
use boa_engine::{
    Context, JsError, JsNativeErrorKind, JsObject, JsResult, JsValue, Script, Source,
};
use serde::Serialize;

use crate::Arena;
use crate::clock::TabClock;
use crate::heap::{self, Left, Placement, Row, Tenant};
use crate::jobs::{Jobs, Timed};
use crate::natives::{self, Output, TabState};
use skinflint_js_options::host::cpu_time;

/// Depth of calls; the engine's own limit (512) is less than EarleyBoyer needs.
const RECURSION: usize = 10_000;
/// Calls shown of an exception's stack.
const SHOWN_CALLS: usize = 12;
/// Values on the engine's stack, for the same reason.
const STACK_VALUES: usize = 1 << 20;

/// Why a tab ended before its program did.
#[derive(Serialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "snake_case", tag = "kind", content = "text")]
pub enum Failure {
    /// A program that does not parse: `file:line:col: message`.
    Syntax(String),
    /// An uncaught exception.
    Exception(String),
    /// It needs more than its limit.
    Limit(String),
    /// The engine itself gave up.
    Engine(String),
}

impl Failure {
    /// The text for people.
    pub fn text(&self) -> &str {
        match self {
            Failure::Syntax(text)
            | Failure::Exception(text)
            | Failure::Limit(text)
            | Failure::Engine(text) => text,
        }
    }
}

/// A script with its name, read once for all tabs.
pub struct Program {
    /// As given on the command line.
    pub path: std::path::PathBuf,
    /// Its text.
    pub text: Vec<u8>,
}

type Waiting = Box<dyn Future<Output = JsResult<JsValue>> + Unpin>;

/// The engine, at a place that its futures can keep (B2).
struct Engine {
    context: NonNull<Context>,
    cell: NonNull<RefCell<&'static mut Context>>,
    futures: Vec<Waiting>,
}

impl Engine {
    fn new(context: Context) -> Self {
        let mut context = NonNull::from(Box::leak(Box::new(context)));
        // SAFETY: a box that was just leaked; all later use goes through the cell (B2).
        let borrowed: &'static mut Context = unsafe { context.as_mut() };
        let cell = NonNull::from(Box::leak(Box::new(RefCell::new(borrowed))));
        Engine {
            context,
            cell,
            futures: Vec::new(),
        }
    }

    fn cell(&self) -> &'static RefCell<&'static mut Context> {
        // SAFETY: the box lives until `drop`, which ends the futures first (B2).
        unsafe { self.cell.as_ref() }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.futures.clear();
        // SAFETY: both boxes are ours, and nothing borrows from them any more (B2); the cell first, which refers
        // to the context.
        unsafe {
            drop(Box::from_raw(self.cell.as_ptr()));
            drop(Box::from_raw(self.context.as_ptr()));
        }
    }
}

/// Promises that were rejected and have no handler.
#[derive(Default)]
struct Rejections(RefCell<Vec<JsObject<Promise>>>);

impl HostHooks for Rejections {
    fn promise_rejection_tracker(
        &self,
        promise: &JsObject<Promise>,
        operation: OperationType,
        _context: &mut Context,
    ) {
        let mut list = self.0.borrow_mut();
        match operation {
            OperationType::Reject => list.push(promise.clone()),
            OperationType::Handle => list.retain(|other| !JsObject::equals(other, promise)),
        }
    }
}

/// A tab.
pub struct Tab {
    /// Its number, from 1.
    pub number: usize,
    /// Its program's name.
    pub file: String,
    /// Why it ended early, if it did.
    pub failure: Option<Failure>,
    /// What its program's last statement was worth, if that is no object.
    pub result: Option<String>,
    /// Processor time of its program and its turns.
    pub cpu: Duration,
    /// What it printed, if that is kept.
    pub output: Rc<Output>,
    // Dropped by `close`, in this order.
    engine: Option<Engine>,
    on_close: Rc<RefCell<Vec<boa_engine::object::builtins::JsFunction>>>,
    rejections: Rc<Rejections>,
    jobs: Rc<Jobs>,
    clock: Rc<TabClock>,
    tenant: Option<Tenant>,
    // Last: what the others free lies in it (B5).
    arena: Option<Rc<dyn Arena>>,
}

/// Does something where the tab's memory is (B5). A panic comes through. The error: the arena did not do it, and here it
/// is again; or it was begun, panicked, and the arena kept that to itself.
fn within<T, W: FnOnce() -> T>(arena: Option<&Rc<dyn Arena>>, work: W) -> Result<T, Option<W>> {
    let Some(arena) = arena else {
        return Ok(work());
    };
    let (mut work, mut done) = (Some(work), None);
    arena.within(&mut || {
        if let Some(work) = work.take() {
            done = Some(work());
        }
    });
    done.ok_or(work)
}

impl Tab {
    /// Opens a tab with an empty engine in it.
    pub fn open(
        number: usize,
        file: &Path,
        limit: Option<usize>,
        output: Output,
        clock: &Rc<TabClock>,
    ) -> Tab {
        let mut tab = Tab {
            number,
            file: file.display().to_string(),
            failure: None,
            result: None,
            cpu: Duration::ZERO,
            output: Rc::new(output),
            engine: None,
            on_close: Rc::default(),
            rejections: Rc::default(),
            jobs: Rc::default(),
            clock: clock.clone(),
            // Its name, which events have, outlives the tab: not in its arena.
            tenant: Some(Tenant::new(&format!("tab {number}"), limit)),
            arena: crate::ARENA.get().and_then(|make| make()).map(Rc::from),
        };
        tab.enter(|tab| {
            let state = TabState {
                number: tab.number,
                output: tab.output.clone(),
                jobs: tab.jobs.clone(),
                clock: tab.clock.clone(),
                on_close: tab.on_close.clone(),
            };
            let (jobs, hooks, clock) =
                (tab.jobs.clone(), tab.rejections.clone(), tab.clock.clone());
            let made = heap::system(move || -> JsResult<Context> {
                let builder = Context::builder().job_executor(jobs).host_hooks(hooks);
                let mut context = builder.clock(clock).build()?;
                let limits = context.runtime_limits_mut();
                limits.set_recursion_limit(RECURSION);
                limits.set_stack_size_limit(STACK_VALUES);
                limits.set_backtrace_limit(SHOWN_CALLS);
                natives::register(state, &mut context)?;
                Ok(context)
            });
            tab.engine = Some(Engine::new(made.map_err(exception)?));
            Ok(())
        });
        tab
    }

    /// Runs a script, and the reactions that it leaves.
    pub fn run(&mut self, program: &Program) {
        self.enter(|tab| {
            let Some(engine) = &tab.engine else {
                return Ok(());
            };
            let mut context = engine.cell().borrow_mut();
            let source = Source::from_bytes(&program.text).with_path(&program.path);
            let script = Script::parse(source, None, &mut context)
                .map_err(|error| syntax(&error, program))?;
            let value = script.evaluate(&mut context).map_err(exception)?;
            let is_shown = !value.is_undefined() && !value.is_object();
            tab.result = is_shown.then(|| value.display().to_string());
            drop(context);
            tab.settle()
        });
    }

    /// Returns when it wants to run again, in ms of the clock.
    pub fn next_ms(&self) -> Option<u64> {
        self.engine.as_ref()?;
        self.jobs.next_ms()
    }

    /// Runs one timer that is due, and the reactions that it leaves. Whether there was one.
    pub fn turn(&mut self) -> bool {
        let now_ms = self.clock.elapsed().as_millis() as u64;
        if self.engine.is_none() {
            return false;
        }
        let Some((number, timed)) = self.jobs.due(now_ms) else {
            return false;
        };
        self.enter(|tab| {
            let Some(engine) = &tab.engine else {
                return Ok(());
            };
            let mut context = engine.cell().borrow_mut();
            match timed {
                Timed::Call(function, arguments, again) => {
                    if let Some(every_ms) = again {
                        let next = Timed::Call(function.clone(), arguments.clone(), again);
                        tab.jobs.set_again(now_ms + every_ms, number, next);
                    }
                    function
                        .call(&JsValue::undefined(), &arguments, &mut context)
                        .map_err(exception)?;
                }
                Timed::Once(job) => drop(job.call(&mut context).map_err(exception)?),
                Timed::Again(job) => {
                    job.call(&mut context).map_err(exception)?;
                    let next_ms = now_ms + job.interval().as_millis();
                    tab.jobs.set_again(next_ms, number, Timed::Again(job));
                }
            }
            drop(context);
            tab.settle()
        });
        true
    }

    /// Lets what waits for the collector run: registries call back.
    pub fn after_collection(&mut self) {
        self.enter(Tab::settle);
    }

    /// Reactions to the last, then futures, until nothing moves (B4).
    fn settle(&mut self) -> Result<(), Failure> {
        let Some(engine) = &mut self.engine else {
            return Ok(());
        };
        let cell = engine.cell();
        let mut waker = std::task::Context::from_waker(Waker::noop());
        loop {
            while let Some(reaction) = self.jobs.reaction() {
                reaction.call(&mut cell.borrow_mut()).map_err(exception)?;
            }
            while let Some(job) = self.jobs.future() {
                engine.futures.push(Box::new(job.call(cell)));
            }
            let mut moved = false;
            let mut failed = None;
            engine
                .futures
                .retain_mut(|future| match Pin::new(future).poll(&mut waker) {
                    Poll::Pending => true,
                    Poll::Ready(done) => {
                        moved = true;
                        failed = failed.take().or(done.err());
                        false
                    }
                });
            if let Some(error) = failed {
                return Err(exception(error));
            }
            if !moved {
                break;
            }
        }
        cell.borrow_mut().clear_kept_objects();
        let rejected = self.rejections.0.take();
        let Some(promise) = rejected.first() else {
            return Ok(());
        };
        let promise =
            boa_engine::object::builtins::JsPromise::from_object(promise.clone().upcast());
        let reason = match promise.map(|promise| promise.state()) {
            Ok(boa_engine::builtins::promise::PromiseState::Rejected(value)) => {
                exception(JsError::from_opaque(value)).text().to_owned()
            }
            _ => "a reason that is gone".to_owned(),
        };
        Err(Failure::Exception(format!(
            "in a promise without a handler: {reason}"
        )))
    }

    /// Does something in the tab (B1). A failure ends the tab, and only it.
    fn enter(&mut self, work: impl FnOnce(&mut Tab) -> Result<(), Failure>) {
        let Some(tenant) = self.tenant.take() else {
            return;
        };
        let before = cpu_time();
        let done = {
            let _guard = tenant.enter();
            let arena = self.arena.clone();
            let done = within(arena.as_ref(), || {
                catch_unwind(AssertUnwindSafe(|| {
                    work(self)?;
                    tenant.within_limit().map_err(Failure::Limit)
                }))
            });
            done.unwrap_or_else(|_| {
                let text = "the tab's part of the allocator did not do what it was given";
                Ok(Err(Failure::Engine(text.to_owned())))
            })
        };
        self.tenant = Some(tenant);
        self.cpu += cpu_time().saturating_sub(before);
        let failure = match done {
            Ok(Ok(())) => return,
            Ok(Err(failure)) => failure,
            Err(payload) => panicked(payload.as_ref()),
        };
        // B3: what comes of a panicked engine's end is no news.
        if matches!(failure, Failure::Limit(_) | Failure::Engine(_)) {
            self.drop_engine();
        }
        self.failure.get_or_insert(failure);
        self.jobs.clear();
    }

    fn drop_engine(&mut self) {
        let guard = self.tenant.as_ref().map(Tenant::enter);
        let engine = self.engine.take();
        let (jobs, on_close, rejections) = (&self.jobs, &self.on_close, &self.rejections);
        let undone = within(self.arena.as_ref(), || {
            catch_unwind(AssertUnwindSafe(|| {
                drop(on_close.take());
                drop(rejections.0.take());
                jobs.clear();
                drop(engine);
            }))
        });
        // What must end ends, if need be elsewhere.
        if let Err(Some(work)) = undone {
            let _ = work();
        }
        drop(guard);
    }

    /// Reports whether it can still run.
    pub fn is_open(&self) -> bool {
        self.tenant.is_some()
    }

    /// Returns the memory that it holds, where the heap says it.
    pub fn row(&self) -> Option<Row> {
        self.tenant.as_ref()?.row()
    }

    /// Returns what the policy did that places its objects, and its processor time till now.
    pub fn placement(&self) -> Option<Placement> {
        let cpu_ms = self.cpu.as_secs_f64() * 1e3;
        let placement = self.tenant.as_ref()?.placement()?;
        Some(Placement {
            cpu_ms,
            ..placement
        })
    }

    /// Calls what `onclose` was given.
    pub fn say_goodbye(&mut self) {
        let functions = self.on_close.take();
        if functions.is_empty() || self.engine.is_none() {
            return;
        }
        self.enter(|tab| {
            for function in functions {
                let Some(engine) = &tab.engine else { break };
                let context = &mut engine.cell().borrow_mut();
                function
                    .call(&JsValue::undefined(), &[], context)
                    .map_err(exception)?;
            }
            tab.settle()
        });
    }

    /// Closes it: the engine first, then the tenant. What was left alive, where the heap says it.
    pub fn close(&mut self) -> Option<Left> {
        self.say_goodbye();
        self.drop_engine();
        let tenant = self.tenant.take()?;
        let left = match within(self.arena.as_ref(), || tenant.end()) {
            Ok(left) => left,
            Err(work) => work.and_then(|work| work()),
        };
        // What the report will have goes elsewhere, or each string would keep a page of the arena.
        self.output.copy();
        self.result = self.result.clone();
        self.failure = self.failure.clone();
        self.arena = None;
        left
    }
}

/// An uncaught exception.
fn exception(error: JsError) -> Failure {
    Failure::Exception(error.to_string())
}

/// An error of the parser, with its place in front.
fn syntax(error: &JsError, program: &Program) -> Failure {
    let is_syntax = |kind: &JsNativeErrorKind| matches!(kind, JsNativeErrorKind::Syntax);
    let (text, native) = match error.as_native() {
        Some(native) => (native.message().to_string(), is_syntax(native.kind())),
        None => (error.to_string(), false),
    };
    if !native {
        return Failure::Exception(text);
    }
    let (line, column, message) = place(&text, &program.text);
    Failure::Syntax(format!(
        "{}:{line}:{column}: {message}",
        program.path.display()
    ))
}

/// The parser writes the place at the end of its message; where it writes none, the text ended too early.
fn place<'text>(message: &'text str, text: &[u8]) -> (usize, usize, &'text str) {
    let parsed = message.rfind(" at line ").and_then(|at| {
        let (line, column) = message[at + " at line ".len()..].split_once(", col ")?;
        Some((line.parse().ok()?, column.parse().ok()?, &message[..at]))
    });
    parsed.unwrap_or_else(|| {
        let lines = text.iter().filter(|&&byte| byte == b'\n').count() + 1;
        let last = text.rsplit(|&byte| byte == b'\n').next().unwrap_or(text);
        (lines, last.len() + 1, message)
    })
}

fn panicked(payload: &(dyn Any + Send)) -> Failure {
    if let Some(text) = heap::out_of_memory(payload) {
        return Failure::Limit(text);
    }
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
    Failure::Engine(format!(
        "the engine panicked: {}",
        text.unwrap_or("no message")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_a_place_does_not_do_is_an_error_and_comes_back() {
        struct Does;
        struct Refuses;
        struct Hides;
        impl Arena for Does {
            fn within(&self, work: &mut dyn FnMut()) {
                work();
                work();
            }
        }
        impl Arena for Refuses {
            fn within(&self, _: &mut dyn FnMut()) {}
        }
        impl Arena for Hides {
            fn within(&self, work: &mut dyn FnMut()) {
                let _ = catch_unwind(AssertUnwindSafe(work));
            }
        }
        let arena = |arena: Rc<dyn Arena>| Some(arena);
        let mut times = 0;
        assert!(within(arena(Rc::new(Does)).as_ref(), || times += 1).is_ok());
        assert_eq!(times, 1);
        let refused = within(arena(Rc::new(Refuses)).as_ref(), || 7);
        assert_eq!(refused.err().flatten().map(|work| work()), Some(7));
        let lost = within(arena(Rc::new(Hides)).as_ref(), || panic!("by intent"));
        assert!(matches!(lost, Err(None)));
        assert!(matches!(within(None, || 8), Ok(8)));
    }

    #[test]
    fn a_place_is_read_out_of_the_message_or_is_the_end() {
        assert_eq!(
            place("unexpected token ')' at line 3, col 14", b""),
            (3, 14, "unexpected token ')'")
        );
        assert_eq!(
            place("abrupt end", b"let a = {\n  b: 1"),
            (2, 7, "abrupt end")
        );
        assert_eq!(place("at line x, col y", b"a"), (1, 2, "at line x, col y"));
    }
}
