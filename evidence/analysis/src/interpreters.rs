//! Frames of an interpreter itself, where functions of the language have names: they only pass on what the script's own
//! functions decide.
//!
//! ```text
//!   list_resize · _PyEval_EvalFrameDefault · Server.run      [python] names Server.run ──► the rest is the interpreter's
//!   AllocateUninitialized · Builtins_… · JS:^alloc node:buffer · JS:^load app.js ──► load
//! ```
//!
//! I1  Nothing is passed over unless a perf map names functions of the language: without them the interpreter's own
//!     functions are all that a stack tells.
//! I2  JavaScript files that Node brings (`node:…`) are the interpreter's, too.
//!
//! Not here: functions that pass an allocation on in every program (plumbing.txt).

use crate::model::{Frame, Report};
use crate::qualified::own_name;

/// How V8 begins the names of functions of scripts in a perf map, by version.
const SCRIPTS: [&str; 4] = ["JS:", "LazyCompile:", "Function:", "Script:"];
/// How it begins those of code that it generated for itself.
const GENERATED: [&str; 4] = ["Builtin:", "BytecodeHandler:", "Stub:", "RegExp:"];

/// Returns for each frame of a report whether it is an interpreter's own.
pub(crate) fn own_frames(report: &Report) -> Vec<bool> {
    let python = report.frames.iter().any(|frame| frame.module == "[python]");
    let javascript = report.frames.iter().any(is_of_a_script);
    let own = |frame: &Frame| python && is_pythons(frame) || javascript && is_v8s(frame);
    report.frames.iter().map(own).collect()
}

fn is_pythons(frame: &Frame) -> bool {
    ["python", "libpython"]
        .iter()
        .any(|of| frame.module.starts_with(of))
}

/// Returns the rest of a name in a perf map that V8 has written for a function of a script: `^load /srv/app.js:1:21`.
fn script(frame: &Frame) -> Option<&str> {
    let starts = SCRIPTS.iter();
    let rest = starts.filter_map(|start| frame.function.strip_prefix(start));
    rest.into_iter().next().filter(|_| frame.module == "[jit]")
}

/// Reports whether a frame is a function of the program's own scripts (I2).
fn is_of_a_script(frame: &Frame) -> bool {
    script(frame).is_some_and(|rest| !rest.contains(" node:"))
}

fn is_v8s(frame: &Frame) -> bool {
    if frame.module == "[jit]" {
        let generated = GENERATED.iter().any(|of| frame.function.starts_with(of));
        return generated || script(frame).is_some() && !is_of_a_script(frame);
    }
    let name = own_name(&frame.function);
    ["v8::", "node::", "Builtins_"]
        .iter()
        .any(|of| name.starts_with(of))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(frames: &[(&str, &str)]) -> Vec<bool> {
        let frame = |(function, module): &(&str, &str)| Frame {
            function: (*function).into(),
            module: (*module).into(),
            ..Frame::default()
        };
        own_frames(&Report {
            frames: frames.iter().map(frame).collect(),
            ..Report::default()
        })
    }

    #[test]
    fn nothing_is_passed_over_without_names_of_the_language() {
        let frames = [
            ("node::Buffer::New(v8::Isolate*)", "node"),
            ("Builtins_InterpreterEntryTrampoline", "node"),
            ("list_resize", "python3.11"),
            // Node's own scripts are no program's.
            ("JS:^alloc node:buffer:391:30", "[jit]"),
        ];
        assert_eq!(own(&frames), [false; 4]);
    }

    #[test]
    fn what_lies_between_a_script_and_malloc_is_the_interpreters() {
        let frames = [
            (
                "v8::internal::BackingStore::Allocate(v8::internal::Isolate*, unsigned long)",
                "node",
            ),
            (
                "Builtins_CEntry_Return1_ArgvOnStack_BuiltinExit",
                "libnode.so.108",
            ),
            (
                "JS:^createUnsafeBuffer node:internal/buffer:1056:28",
                "[jit]",
            ),
            ("BytecodeHandler:LdaSmi", "[jit]"),
            ("JS:^loadBuffers /srv/app.js:1:21", "[jit]"),
            ("LazyCompile:*handle /srv/app.js:9:1", "[jit]"),
            // An addon of the program's.
            (
                "render(v8::FunctionCallbackInfo<v8::Value> const&)",
                "canvas.node",
            ),
        ];
        assert_eq!(own(&frames), [true, true, true, true, false, false, false]);
    }

    #[test]
    fn python_is_passed_over_where_its_functions_have_names() {
        let frames = [
            ("list_resize", "libpython3.12.so.1.0"),
            ("Server.run", "[python]"),
            ("array_new", "_multiarray_umath.so"),
        ];
        assert_eq!(own(&frames), [true, false, false]);
    }
}
