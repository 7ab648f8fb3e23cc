//! Frames of an interpreter itself, where functions of the language have names: they only pass on what the script's own
//! functions decide.
//!
//! ```text
//!   list_resize · _PyEval_EvalFrameDefault · Server.run      [python] names Server.run ──► the rest is the interpreter's
//!   AllocateUninitialized · Builtins_… · alloc (node:buffer) · load (app.js)   [javascript] names load
//! ```
//!
//! I1  Nothing is passed over unless functions of the language have names, as recorded or from a perf map: without them the
//!     interpreter's own functions are all that a stack tells.
//! I2  JavaScript files that Node brings (`node:…`) are the interpreter's, too.
//!     So is generated code without a name beside scripts that have some: V8 copies what it was built with to where it
//!     generates code, and its map has the rest.
//! I3  So are the files of Python's standard library, if there are others; and where stacks have lines of Python, the
//!     modules in C that it loads.
//! I4  Java's own classes, and those of other languages' runtimes on its machine, are passed over if there are others; and
//!     where Java has names, the machine's libraries. So are classes of no file beside those of one: call sites, accessors
//!     and proxies are generated.
//!
//! Not here: functions that pass an allocation on in every program (plumbing.txt).

use crate::model::{Frame, Report};
use crate::qualified::own_name;

/// How the files of Java's machine and of the libraries that come with it begin.
const JAVAS: [&str; 8] = [
    "libjvm.so",
    "libjava.so",
    "libjli.so",
    "libjimage.so",
    "libverify.so",
    "libnio.so",
    "libnet.so",
    "libzip.so",
];

/// How the packages begin that come with Java, or with another language that runs on its machine.
const CLASSES: [&str; 16] = [
    "java.",
    "jdk.",
    "sun.",
    "com.sun.",
    "javax.crypto.",
    "javax.imageio.",
    "javax.net.",
    "javax.swing.",
    "clojure.lang.",
    "groovy.",
    "kotlin.",
    "org.apache.groovy.",
    "org.codehaus.groovy.",
    "org.jruby.",
    "org.python.",
    "scala.",
];

/// How V8 begins the names in a perf map of code that it generated for itself.
const GENERATED: [&str; 4] = ["Builtin:", "BytecodeHandler:", "Stub:", "RegExp:"];

/// How the crate `symbols` calls generated code of which no map has a name.
const NAMELESS: &str = "[jit] 0x";

/// Returns for each frame of a report whether it is an interpreter's own.
pub(crate) fn own_frames(report: &Report) -> Vec<bool> {
    let python = report.frames.iter().any(is_of_python);
    let lines = report
        .frames
        .iter()
        .any(|frame| is_of_python(frame) && frame.line.is_some());
    let others = report
        .frames
        .iter()
        .any(|frame| is_of_python(frame) && !is_of_its_library(frame));
    let javascript = report.frames.iter().any(is_of_a_script);
    let [ruby, php] =
        ["[ruby]", "[php]"].map(|module| report.frames.iter().any(|f| f.module == module));
    let java = report.frames.iter().any(is_of_java);
    let users = |frame: &&Frame| is_of_java(frame) && !is_of_its_classes(frame);
    let classes = report.frames.iter().any(|frame| users(&frame));
    let files = report.frames.iter().filter(users).any(is_of_a_file);
    let own = |frame: &Frame| {
        python && is_pythons(frame)
            || lines && is_loaded_by_python(frame)
            || others && is_of_python(frame) && is_of_its_library(frame)
            || javascript && is_v8s(frame)
            || ruby && begins(frame, &["ruby", "libruby"])
            || php && begins(frame, &["php"])
            || java && begins(frame, &JAVAS)
            || classes && is_of_java(frame) && is_of_its_classes(frame)
            || files && is_of_java(frame) && !is_of_a_file(frame)
    };
    report.frames.iter().map(own).collect()
}

fn is_pythons(frame: &Frame) -> bool {
    begins(frame, &["python", "libpython"])
}

/// Reports whether a frame's module is a file whose name begins so.
fn begins(frame: &Frame, names: &[&str]) -> bool {
    names.iter().any(|of| frame.module.starts_with(of))
}

fn is_of_python(frame: &Frame) -> bool {
    frame.module == "[python]"
}

/// Reports whether a frame of Python is of a file that comes with it: not what was installed beside.
fn is_of_its_library(frame: &Frame) -> bool {
    let file = frame.file.as_deref().unwrap_or_default();
    let is_installed = ["/site-packages/", "/dist-packages/"]
        .iter()
        .any(|of| file.contains(of));
    file.starts_with("<frozen ") || file.contains("/lib/python3") && !is_installed
}

/// Reports whether a module is one that Python has loaded: its names say for which version, or which interface.
fn is_loaded_by_python(frame: &Frame) -> bool {
    [".cpython-3", ".abi3.so"]
        .iter()
        .any(|of| frame.module.contains(of))
        || frame.module.starts_with("libffi.so")
}

/// Reports whether a frame is a method of Java's.
pub(crate) fn is_of_java(frame: &Frame) -> bool {
    frame.module == "[java]"
}

/// Reports whether the file is known that a frame's function was written in.
fn is_of_a_file(frame: &Frame) -> bool {
    frame.file.is_some()
}

/// Reports whether a method is of a class that comes with Java (I4).
fn is_of_its_classes(frame: &Frame) -> bool {
    CLASSES.iter().any(|of| frame.function.starts_with(of))
}

/// Reports whether a frame is a function of a script, of Node's own or of the program's.
fn is_of_javascript(frame: &Frame) -> bool {
    frame.module == "[javascript]"
}

/// Reports whether a frame is a function of the program's own scripts (I2).
fn is_of_a_script(frame: &Frame) -> bool {
    let file = frame.file.as_deref().unwrap_or_default();
    is_of_javascript(frame) && !file.starts_with("node:")
}

fn is_v8s(frame: &Frame) -> bool {
    if frame.module == "[jit]" {
        return GENERATED.iter().any(|of| frame.function.starts_with(of));
    }
    if is_of_javascript(frame) {
        return !is_of_a_script(frame);
    }
    if frame.function.starts_with(NAMELESS) {
        return true;
    }
    let name = own_name(&frame.function);
    ["v8::", "node::", "Builtins_"]
        .iter()
        .any(|of| name.starts_with(of))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame by its function and its module; of a script by its function and its file.
    fn own(frames: &[(&str, &str)]) -> Vec<bool> {
        let frame = |(function, module): &(&str, &str)| {
            let is_file = module.starts_with("/srv/") || module.starts_with("node:");
            Frame {
                function: (*function).into(),
                module: if is_file { "[javascript]" } else { module }.into(),
                file: is_file.then(|| (*module).into()),
                ..Frame::default()
            }
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
            ("alloc", "node:buffer"),
            // Generated by another virtual machine, or without a map.
            ("[jit] 0x7f219fe4958f", ""),
        ];
        assert_eq!(own(&frames), [false; 5]);
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
            ("createUnsafeBuffer", "node:internal/buffer"),
            ("BytecodeHandler:LdaSmi", "[jit]"),
            // A copy of what V8 was built with, which is in no map.
            ("[jit] 0x7f219fe4958f", ""),
            ("loadBuffers", "/srv/app.js"),
            ("handle", "/srv/app.js"),
            // An addon of the program's.
            (
                "render(v8::FunctionCallbackInfo<v8::Value> const&)",
                "canvas.node",
            ),
        ];
        assert_eq!(
            own(&frames),
            [true, true, true, true, true, false, false, false]
        );
    }

    #[test]
    fn functions_of_ruby_and_php_are_before_their_interpreters() {
        let frames = [
            ("str_new0", "libruby-3.1.so.3.1"),
            ("make", "[ruby]"),
            ("main", "ruby3.1"),
            ("execute_ex", "php8.2"),
        ];
        assert_eq!(own(&frames), [true, false, true, false]);
        let frames = [("execute_ex", "php8.2"), ("Rows::make", "[php]")];
        assert_eq!(own(&frames), [true, false]);
    }

    #[test]
    fn what_comes_with_python_is_passed_over_for_what_does_not() {
        let frame = |function: &str, module: &str, file: Option<&str>, line| Frame {
            function: function.into(),
            module: module.into(),
            file: file.map(Into::into),
            line,
            ..Frame::default()
        };
        let python = |file, line| frame("f", "[python]", Some(file), line);
        let mut frames = vec![
            python("<frozen importlib._bootstrap>", Some(241)),
            python("/usr/lib/python3.11/json/decoder.py", Some(353)),
            frame(
                "scan_once",
                "_json.cpython-311-x86_64-linux-gnu.so",
                None,
                None,
            ),
        ];
        let own = |frames: &[Frame]| {
            own_frames(&Report {
                frames: frames.to_vec(),
                ..Report::default()
            })
        };
        // There is nothing else that could be named.
        assert_eq!(own(&frames), [false, false, true]);
        frames.push(python(
            "/usr/lib/python3/dist-packages/yaml/loader.py",
            Some(1),
        ));
        frames.push(python("/srv/app.py", Some(7)));
        assert_eq!(own(&frames), [true, true, true, false, false]);
        // A perf map has no lines: what C does there is more than a function's name.
        let frames = [frame("f", "[python]", None, None), frames[2].clone()];
        assert_eq!(own(&frames), [false, false]);
    }

    #[test]
    fn what_comes_with_java_is_passed_over_for_what_does_not() {
        let mut frames = vec![
            ("os::malloc(unsigned long, MEMFLAGS)", "libjvm.so"),
            ("jdk.internal.misc.Unsafe.allocateMemory", "[java]"),
            ("java.nio.DirectByteBuffer.<init>", "[java]"),
            ("deflateInit2_", "libz.so.1.2.13"),
        ];
        // There is nothing else that could be named.
        assert_eq!(own(&frames), [true, false, false, false]);
        frames.push(("org.example.Rows.load", "[java]"));
        frames.push(("javaagent.Rows.load", "[java]"));
        assert_eq!(own(&frames), [true, true, true, false, false, false]);
    }

    #[test]
    fn what_is_generated_is_passed_over_for_what_has_a_file() {
        let method = |function: &str, file: Option<&str>| Frame {
            function: function.into(),
            module: "[java]".into(),
            file: file.map(Into::into),
            ..Frame::default()
        };
        let of = |frames: &[Frame]| {
            own_frames(&Report {
                frames: frames.into(),
                ..Report::default()
            })
        };
        let mut frames = vec![
            method(
                "java.nio.ByteBuffer.allocateDirect",
                Some("nio/ByteBuffer.java"),
            ),
            method("java_nio_ByteBuffer$allocateDirect.call", None),
        ];
        // It is all that there is of the program.
        assert_eq!(of(&frames), [true, false]);
        frames.push(method("g$_run_closure1.doCall", Some("g.groovy")));
        frames.push(method(
            "org.codehaus.groovy.runtime.callsite.A.call",
            Some("callsite/A.java"),
        ));
        assert_eq!(of(&frames), [true, true, false, true]);
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
