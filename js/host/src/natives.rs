//! Native functions: what programs can call besides the language itself.
//!
//! ```text
//!   print, console.log/info/warn/error/debug      setTimeout, setInterval, clear…      performance.now
//!   onclose(f): f when the tab is closed          gc(): collect now      load(file)     tab: the tab's number
//! ```
//!
//! N1  They do the same on every heap.
//! N2  What is printed goes through [`Output`]: to the terminal at once, or into the report, bounded.
//!
//! Not here: when timers run (`tab`).

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;

use boa_engine::object::ObjectInitializer;
use boa_engine::object::builtins::JsFunction;
use boa_engine::property::Attribute;
use boa_engine::{
    Context, JsArgs as _, JsError, JsNativeError, JsResult, JsString, JsValue, NativeFunction,
    Script, Source, js_string,
};
use skinflint_js_options::host;

use crate::clock::TabClock;
use crate::jobs::{Jobs, Timed};

/// Most bytes of a tab's output that a report holds; what is beyond is counted.
const KEPT_BYTES: usize = 1 << 20;

/// Where a tab's words go.
#[derive(Default)]
pub struct Output {
    /// Into the report rather than to the terminal.
    pub keep: bool,
    /// To stderr, all of it: stdout is the script's.
    aside: bool,
    lines: RefCell<Vec<String>>,
    bytes: Cell<usize>,
    cut: Cell<usize>,
}

impl Output {
    /// For the terminal, or for the report.
    pub fn new(keep: bool) -> Self {
        Output {
            keep,
            ..Output::default()
        }
    }

    /// For a terminal beside stdout.
    pub fn aside() -> Self {
        Output {
            aside: true,
            ..Output::default()
        }
    }

    fn line(&self, line: String, to_stderr: bool) {
        if !self.keep {
            host::print(&line, to_stderr || self.aside);
        } else if self.bytes.get() + line.len() > KEPT_BYTES {
            self.cut.set(self.cut.get() + 1);
        } else {
            self.bytes.set(self.bytes.get() + line.len());
            self.lines.borrow_mut().push(line);
        }
    }

    /// Has what was kept lie where this is called.
    pub fn copy(&self) {
        let lines = self.lines.take();
        self.lines
            .replace(lines.iter().map(String::clone).collect());
    }

    /// Returns the lines that were kept, and the number of those that were not.
    pub fn take(&self) -> (Vec<String>, usize) {
        (self.lines.take(), self.cut.get())
    }
}

/// The state of a tab that its native functions use.
#[derive(Clone)]
pub struct TabState {
    /// Its number, from 1.
    pub number: usize,
    /// Where its words go.
    pub output: Rc<Output>,
    /// Its queues.
    pub jobs: Rc<Jobs>,
    /// The clock of all tabs.
    pub clock: Rc<TabClock>,
    /// What it wants to do when it is closed.
    pub on_close: Rc<RefCell<Vec<JsFunction>>>,
}

type Native = fn(&JsValue, &[JsValue], &mut Context) -> JsResult<JsValue>;

fn state(context: &Context) -> JsResult<TabState> {
    let state = context.get_data::<TabState>().cloned();
    state.ok_or_else(|| fault("the tab is closed"))
}

fn fault(message: &str) -> JsError {
    JsNativeError::typ().with_message(message.to_owned()).into()
}

/// Puts everything into the global object.
///
/// # Errors
/// The engine's, if a name is taken.
pub fn register(state: TabState, context: &mut Context) -> JsResult<()> {
    let number = state.number;
    context.insert_data(state);
    let functions: [(&str, usize, Native); 9] = [
        ("print", 1, print),
        ("setTimeout", 2, set_timeout),
        ("setInterval", 2, set_interval),
        ("clearTimeout", 1, clear_timer),
        ("clearInterval", 1, clear_timer),
        ("queueMicrotask", 1, queue_microtask),
        ("onclose", 1, on_close),
        ("gc", 0, collect),
        ("load", 1, load),
    ];
    for (name, arguments, function) in functions {
        let function = NativeFunction::from_fn_ptr(function);
        context.register_global_builtin_callable(JsString::from(name), arguments, function)?;
    }
    let console = ObjectInitializer::new(context)
        .function(NativeFunction::from_fn_ptr(print), js_string!("log"), 0)
        .function(NativeFunction::from_fn_ptr(print), js_string!("info"), 0)
        .function(NativeFunction::from_fn_ptr(print), js_string!("debug"), 0)
        .function(NativeFunction::from_fn_ptr(complain), js_string!("warn"), 0)
        .function(
            NativeFunction::from_fn_ptr(complain),
            js_string!("error"),
            0,
        )
        .build();
    let performance = ObjectInitializer::new(context)
        .function(NativeFunction::from_fn_ptr(now), js_string!("now"), 0)
        .build();
    let shown = Attribute::WRITABLE | Attribute::CONFIGURABLE;
    context.register_global_property(js_string!("console"), console, shown)?;
    context.register_global_property(js_string!("performance"), performance, shown)?;
    context.register_global_property(js_string!("tab"), number as f64, shown)
}

fn words(arguments: &[JsValue], context: &mut Context) -> JsResult<String> {
    let mut line = String::new();
    for (at, value) in arguments.iter().enumerate() {
        if at > 0 {
            line.push(' ');
        }
        if value.is_object() && !value.is_callable() {
            line.push_str(&value.display().to_string());
        } else if value.is_symbol() {
            line.push_str(&value.display().to_string());
        } else if value
            .as_number()
            .is_some_and(|n| n == 0.0 && n.is_sign_negative())
        {
            // As node prints it: a lost sign is a difference that tests should see.
            line.push_str("-0");
        } else {
            line.push_str(&value.to_string(context)?.to_std_string_lossy());
        }
    }
    Ok(line)
}

fn print(_: &JsValue, arguments: &[JsValue], context: &mut Context) -> JsResult<JsValue> {
    let line = words(arguments, context)?;
    state(context)?.output.line(line, false);
    Ok(JsValue::undefined())
}

fn complain(_: &JsValue, arguments: &[JsValue], context: &mut Context) -> JsResult<JsValue> {
    let line = words(arguments, context)?;
    state(context)?.output.line(line, true);
    Ok(JsValue::undefined())
}

fn now(_: &JsValue, _: &[JsValue], context: &mut Context) -> JsResult<JsValue> {
    Ok((state(context)?.clock.elapsed().as_secs_f64() * 1e3).into())
}

fn callable(value: &JsValue, name: &str) -> JsResult<JsFunction> {
    let function = value.as_object().and_then(JsFunction::from_object);
    function.ok_or_else(|| fault(&format!("{name}: the first argument must be a function")))
}

fn timer(arguments: &[JsValue], again: bool, context: &mut Context) -> JsResult<JsValue> {
    let name = if again { "setInterval" } else { "setTimeout" };
    let function = callable(arguments.get_or_undefined(0), name)?;
    let delay = arguments.get_or_undefined(1).to_number(context)?;
    // As in browsers and node: below 1, beyond 31 bits and NaN are 1 ms; a timeout of 0 stays in its turn.
    let delay_ms = if (1.0..=2_147_483_647.0).contains(&delay) {
        delay as u64
    } else {
        u64::from(again)
    };
    let rest = arguments.get(2..).unwrap_or_default().to_vec();
    let state = state(context)?;
    let at_ms = state.clock.elapsed().as_millis() as u64 + delay_ms;
    let timed = Timed::Call(function, rest, again.then_some(delay_ms));
    Ok((state.jobs.set(at_ms, timed) as f64).into())
}

fn set_timeout(_: &JsValue, arguments: &[JsValue], context: &mut Context) -> JsResult<JsValue> {
    timer(arguments, false, context)
}

fn set_interval(_: &JsValue, arguments: &[JsValue], context: &mut Context) -> JsResult<JsValue> {
    timer(arguments, true, context)
}

fn clear_timer(_: &JsValue, arguments: &[JsValue], context: &mut Context) -> JsResult<JsValue> {
    let number = arguments.get_or_undefined(0).to_number(context)?;
    state(context)?.jobs.unset(number as u64);
    Ok(JsValue::undefined())
}

fn queue_microtask(_: &JsValue, arguments: &[JsValue], context: &mut Context) -> JsResult<JsValue> {
    let function = callable(arguments.get_or_undefined(0), "queueMicrotask")?;
    let realm = context.realm().clone();
    let job = boa_engine::job::GenericJob::new(
        move |context| function.call(&JsValue::undefined(), &[], context),
        realm,
    );
    context.enqueue_job(job.into());
    Ok(JsValue::undefined())
}

fn on_close(_: &JsValue, arguments: &[JsValue], context: &mut Context) -> JsResult<JsValue> {
    let function = callable(arguments.get_or_undefined(0), "onclose")?;
    state(context)?.on_close.borrow_mut().push(function);
    Ok(JsValue::undefined())
}

/// Runs another script in the same tab, as JavaScript shells do.
fn load(_: &JsValue, arguments: &[JsValue], context: &mut Context) -> JsResult<JsValue> {
    let path = arguments
        .get_or_undefined(0)
        .to_string(context)?
        .to_std_string_lossy();
    let text = std::fs::read(&path).map_err(|error| fault(&format!("load: {path}: {error}")))?;
    let source = Source::from_bytes(&text).with_path(Path::new(&path));
    Script::parse(source, None, context)?.evaluate(context)
}

fn collect(_: &JsValue, _: &[JsValue], _: &mut Context) -> JsResult<JsValue> {
    crate::heap::collect_all();
    Ok(JsValue::undefined())
}
