//! The engine's C interface, as far as a tab needs it.
//!
//! ```text
//!   Engine::new ─► runtime, context, the host's functions ─► prelude.js ─► turn, next, close
//!   run(text) │ turn │ next_ms │ close │ end: freed by the engine, or with its heap
//! ```
//!
//! E1  One thread has the engine; nothing of it is called from within the host's functions but what C's contract allows.
//! E2  A value that C returns is ours to free; one that is passed to a function stays ours. Values that live as long as the
//!     context (`parts`) are freed before it, or go with the heap.
//! E3  The context's opaque pointer is the `State` of the tab, which is boxed and outlives the context.
//!
//! Not here: where blocks come from (`memory`), when timers run (`tab`).

use core::ffi::{c_char, c_int, c_void};
use std::collections::HashMap;
use std::ffi::CString;
use std::time::Instant;

use rquickjs_sys as js;
use rquickjs_sys::{JSContext, JSRuntime, JSValue};
use skinflint_js_options::host;

use crate::memory::Memory;

/// The most of the stack that a program may use; the thread has four times as much.
const STACK_BYTES: usize = 256 << 20;
/// Most bytes of a tab's output that a report holds.
const KEPT_BYTES: usize = 1 << 20;

/// What the host's functions of a tab use.
pub(crate) struct State {
    start: Instant,
    /// Lines for the report; `None`: to the terminal.
    pub(crate) kept: Option<Vec<String>>,
    kept_bytes: usize,
    pub(crate) cut: usize,
    /// Rejected promises that nobody handles: reason by the promise's address.
    rejected: HashMap<usize, String>,
}

/// A runtime with one context.
pub(crate) struct Engine {
    runtime: *mut JSRuntime,
    context: *mut JSContext,
    pub(crate) state: Box<State>,
    /// The prelude's object.
    parts: JSValue,
    limit_bytes: Option<usize>,
}

/// Why a program failed: what it threw, as text.
pub(crate) type Thrown = String;

fn state<'a>(context: *mut JSContext) -> &'a mut State {
    // SAFETY: E3, and E1: no other reference is in use while C calls us.
    unsafe { &mut *js::JS_GetContextOpaque(context).cast::<State>() }
}

/// Returns a value as text.
fn text(context: *mut JSContext, value: JSValue) -> String {
    let mut length = 0;
    // SAFETY: C's contract; the bytes live until they are freed.
    unsafe {
        let bytes = js::JS_ToCStringLen2(context, &raw mut length, value, false);
        if bytes.is_null() {
            js::JS_FreeValue(context, js::JS_GetException(context));
            return "(no text)".into();
        }
        let slice = core::slice::from_raw_parts(bytes.cast::<u8>(), length as usize);
        let owned = String::from_utf8_lossy(slice).into_owned();
        js::JS_FreeCString(context, bytes);
        owned
    }
}

/// Returns one of a function's arguments.
fn argument(argc: c_int, argv: *mut JSValue, index: c_int) -> JSValue {
    if index < argc {
        // SAFETY: C passes `argc` values.
        unsafe { *argv.add(index as usize) }
    } else {
        js::JS_UNDEFINED
    }
}

unsafe extern "C" fn print(
    context: *mut JSContext,
    _: JSValue,
    argc: c_int,
    argv: *mut JSValue,
) -> JSValue {
    let mut level = 0;
    // SAFETY: C's contract; a number is only looked at.
    unsafe { js::JS_ToInt32(context, &raw mut level, argument(argc, argv, 0)) };
    let line = text(context, argument(argc, argv, 1));
    let state = state(context);
    match &mut state.kept {
        Some(_) if state.kept_bytes + line.len() > KEPT_BYTES => state.cut += 1,
        Some(lines) => {
            state.kept_bytes += line.len();
            lines.push(line);
        }
        None => host::print(&line, level != 0),
    }
    js::JS_UNDEFINED
}

unsafe extern "C" fn now(
    context: *mut JSContext,
    _: JSValue,
    _: c_int,
    _: *mut JSValue,
) -> JSValue {
    js::JS_NewFloat64(state(context).start.elapsed().as_secs_f64() * 1e3)
}

unsafe extern "C" fn gc(context: *mut JSContext, _: JSValue, _: c_int, _: *mut JSValue) -> JSValue {
    // SAFETY: C's contract.
    unsafe { js::JS_RunGC(js::JS_GetRuntime(context)) };
    js::JS_UNDEFINED
}

unsafe extern "C" fn load(
    context: *mut JSContext,
    _: JSValue,
    argc: c_int,
    argv: *mut JSValue,
) -> JSValue {
    let name = text(context, argument(argc, argv, 0));
    match std::fs::read(&name) {
        Ok(program) => evaluate(context, &program, &name),
        Err(error) => {
            let said = CString::new(format!("load: {name}: {error}")).unwrap_or_default();
            // SAFETY: C's contract: a format with one text.
            unsafe { js::JS_ThrowTypeError(context, c"%s".as_ptr(), said.as_ptr()) }
        }
    }
}

unsafe extern "C" fn rejection(
    context: *mut JSContext,
    promise: JSValue,
    reason: JSValue,
    is_handled: bool,
    _: *mut c_void,
) {
    // SAFETY: a promise is an object.
    let at = unsafe { js::JS_VALUE_GET_PTR(promise) }.addr();
    if is_handled {
        state(context).rejected.remove(&at);
    } else {
        let reason = text(context, reason);
        state(context).rejected.insert(at, reason);
    }
}

/// Evaluates a script; the result, or the exception, is C's.
fn evaluate(context: *mut JSContext, program: &[u8], name: &str) -> JSValue {
    // C wants a zero behind the program.
    let program = [program, b"\0"].concat();
    let name = CString::new(name).unwrap_or_default();
    // SAFETY: C's contract: the length is without the zero.
    unsafe {
        js::JS_Eval(
            context,
            program.as_ptr().cast::<c_char>(),
            (program.len() - 1) as js::size_t,
            name.as_ptr(),
            js::JS_EVAL_TYPE_GLOBAL as c_int,
        )
    }
}

impl Engine {
    /// Makes a runtime in a tab's memory. `None`: there is too little. `limit_bytes`: the most that it may have.
    pub(crate) fn new(
        memory: &Memory,
        number: usize,
        keep: bool,
        start: Instant,
        limit_bytes: Option<usize>,
    ) -> Option<Engine> {
        let runtime = memory.runtime();
        if runtime.is_null() {
            return None;
        }
        let mut state = Box::new(State {
            start,
            kept: keep.then(Vec::new),
            kept_bytes: 0,
            cut: 0,
            rejected: HashMap::new(),
        });
        // SAFETY: C's contract; E3.
        let context = unsafe {
            js::JS_SetMaxStackSize(runtime, STACK_BYTES as js::size_t);
            if let Some(bytes) = limit_bytes {
                js::JS_SetMemoryLimit(runtime, bytes as js::size_t);
            }
            let context = js::JS_NewContext(runtime);
            if context.is_null() {
                js::JS_FreeRuntime(runtime);
                return None;
            }
            js::JS_SetContextOpaque(context, (&raw mut *state).cast());
            js::JS_SetHostPromiseRejectionTracker(runtime, Some(rejection), core::ptr::null_mut());
            context
        };
        let mut engine = Engine {
            runtime,
            context,
            state,
            parts: js::JS_UNDEFINED,
            limit_bytes,
        };
        let prelude = evaluate(context, include_bytes!("prelude.js"), "prelude");
        let function = |of, name: &core::ffi::CStr, arguments| {
            // SAFETY: C's contract.
            unsafe {
                let kind = js::JSCFunctionEnum_JS_CFUNC_generic;
                js::JS_NewCFunction2(context, of, name.as_ptr(), arguments, kind, 0)
            }
        };
        let mut given = [
            function(Some(print), c"print", 2),
            function(Some(load), c"load", 1),
            function(Some(now), c"now", 0),
            function(Some(gc), c"gc", 0),
            js::JS_NewFloat64(number as f64),
        ];
        engine.parts = engine.call(prelude, js::JS_UNDEFINED, &mut given).ok()?;
        for value in given.into_iter().chain([prelude]) {
            engine.free(value);
        }
        Some(engine)
    }

    fn free(&self, value: JSValue) {
        // SAFETY: E2.
        unsafe { js::JS_FreeValue(self.context, value) };
    }

    /// Returns a result, or what was thrown as text.
    fn result(&self, value: JSValue) -> Result<JSValue, Thrown> {
        // SAFETY: the tag of a value is only looked at; C's contract for the exception.
        unsafe {
            if !js::JS_IsException(value) {
                return Ok(value);
            }
            let thrown = js::JS_GetException(self.context);
            // What the engine throws where there is no memory for an error, either.
            let said = match self.limit_bytes.filter(|_| js::JS_IsNull(thrown)) {
                Some(limit) => format!(
                    "it threw null, as at the end of its memory: the limit is {limit} bytes"
                ),
                None => text(self.context, thrown),
            };
            self.free(thrown);
            Err(said)
        }
    }

    fn call(
        &self,
        function: JSValue,
        this: JSValue,
        given: &mut [JSValue],
    ) -> Result<JSValue, Thrown> {
        // SAFETY: C's contract; the values stay ours (E2).
        let result = unsafe {
            js::JS_Call(
                self.context,
                function,
                this,
                given.len() as c_int,
                given.as_mut_ptr(),
            )
        };
        self.result(result)
    }

    /// Calls a part of the prelude.
    fn part(&self, name: &core::ffi::CStr) -> Result<JSValue, Thrown> {
        // SAFETY: C's contract.
        let function = unsafe { js::JS_GetPropertyStr(self.context, self.parts, name.as_ptr()) };
        let result = self.call(function, self.parts, &mut []);
        self.free(function);
        result
    }

    /// Runs all reactions of promises that wait.
    fn react(&mut self) -> Result<(), Thrown> {
        let mut context = core::ptr::null_mut();
        // SAFETY: C's contract.
        while unsafe { js::JS_ExecutePendingJob(self.runtime, &raw mut context) } != 0 {}
        let rejected = std::mem::take(&mut self.state.rejected);
        match rejected.into_values().next() {
            None => Ok(()),
            Some(reason) => Err(format!(
                "a promise was rejected, and nobody handled it: {reason}"
            )),
        }
    }

    /// Runs a program, and the reactions that it leaves; returns what it is worth, if that is no object.
    ///
    /// # Errors
    /// What it threw.
    pub(crate) fn run(&mut self, program: &[u8], name: &str) -> Result<Option<String>, Thrown> {
        let value = self.result(evaluate(self.context, program, name))?;
        // SAFETY: the tag is only looked at.
        let is_plain = unsafe { !js::JS_IsObject(value) && !js::JS_IsUndefined(value) };
        let worth = is_plain.then(|| text(self.context, value));
        self.free(value);
        self.react()?;
        Ok(worth)
    }

    /// Runs a timer that is due, and its reactions; `false`: none is due.
    ///
    /// # Errors
    /// What it threw.
    pub(crate) fn turn(&mut self) -> Result<bool, Thrown> {
        let value = self.part(c"turn")?;
        // SAFETY: it is a Boolean.
        let ran = unsafe { js::JS_VALUE_GET_BOOL(value) };
        self.react()?;
        Ok(ran)
    }

    /// Returns when the next timer is due, in milliseconds since the start.
    pub(crate) fn next_ms(&self) -> Option<f64> {
        let value = self.part(c"next").ok()?;
        let mut at = -1.0;
        // SAFETY: C's contract; a number needs no freeing.
        unsafe { js::JS_ToFloat64(self.context, &raw mut at, value) };
        (at >= 0.0).then_some(at)
    }

    /// Calls what the program wants to do at its end.
    ///
    /// # Errors
    /// What it threw.
    pub(crate) fn say_goodbye(&mut self) -> Result<(), Thrown> {
        let value = self.part(c"close")?;
        self.free(value);
        self.react()
    }

    /// Collects cycles.
    pub(crate) fn collect(&self) {
        // SAFETY: C's contract.
        unsafe { js::JS_RunGC(self.runtime) };
    }

    /// Returns the bytes that the engine counts in its blocks.
    pub(crate) fn bytes(&self) -> u64 {
        // SAFETY: zeroes are a value of this type, which C fills.
        unsafe {
            let mut usage: js::JSMemoryUsage = core::mem::zeroed();
            js::JS_ComputeMemoryUsage(self.runtime, &raw mut usage);
            usage.malloc_size.unsigned_abs()
        }
    }

    /// Ends it: with its heap, or taken apart by the engine.
    pub(crate) fn end(self, memory: Memory) {
        if !memory.ends_whole() {
            self.free(self.parts);
            // SAFETY: C's contract: nothing of the context is left in our hands (E2).
            unsafe {
                js::JS_FreeContext(self.context);
                js::JS_FreeRuntime(self.runtime);
            }
        }
        // SAFETY: nobody has the engine any more.
        unsafe { memory.end() };
    }
}

/// Returns the engine's version.
pub(crate) fn version() -> String {
    // SAFETY: C's contract: a text that lives for ever.
    let text = unsafe { core::ffi::CStr::from_ptr(js::JS_GetVersion()) };
    text.to_string_lossy().into_owned()
}
