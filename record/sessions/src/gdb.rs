//! Has gdb make a running program load the recorder and call one of its functions.
//!
//! ```text
//!   attach.py ─► gdb -batch ─► PID: dlopen, dlsym, call ─► a line of JSON ─► the result, or why there is none
//! ```
//!
//! D1  gdb is ended when its time is over; an error names the next step.
//!
//! Not here: what gdb does (attach.py).

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

const SCRIPT: &str = include_str!("attach.py");
/// The longest that gdb may take: it reads the symbols of every library.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// The lines that gdb's script printed.
#[derive(serde::Deserialize, Debug)]
struct Said {
    result: Option<i64>,
    error: Option<String>,
    #[serde(default)]
    why: Option<String>,
}

/// Makes the program call one of the recorder's two functions, and returns the result.
pub(crate) fn in_program(pid: u32, recorder: &Path, function: &str, socket: &Path) -> Result<i64> {
    // The recorder must be found under its name in the program's view of the file system, and by the user that it
    // runs as.
    let asked = serde_json::json!({
        "pid": pid,
        "library": recorder,
        "call": function,
        "socket": socket,
    });
    let mut script = tempfile::Builder::new()
        .prefix("skinflint-")
        .suffix(".py")
        .tempfile()
        .context(
            "no file for gdb's script can be made; set TMPDIR to a folder that can be written",
        )?;
    script.write_all(SCRIPT.as_bytes())?;
    let mut child = Command::new("gdb")
        .args(["-nx", "-q", "-batch", "-x"])
        .arg(script.path())
        .env("SKINFLINT_ATTACH", asked.to_string())
        .env_remove("LD_PRELOAD")
        .env_remove("DEBUGINFOD_URLS")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("gdb cannot be started: attaching needs it (apt-get install gdb)")?;
    let said = read_within(&mut child, PATIENCE)?;
    let line = said
        .lines()
        .find_map(|line| line.strip_prefix("skinflint:"));
    let Some(line) = line else {
        let tail: Vec<&str> = said.lines().rev().take(4).collect();
        let tail: Vec<&str> = tail.into_iter().rev().collect();
        bail!(
            "gdb did not do it (it needs Python, as Debian's has): {}",
            tail.join(" / ")
        );
    };
    let said: Said = serde_json::from_str(line).context("gdb's script said what is no JSON")?;
    match (said.result, said.error) {
        (Some(result), _) => Ok(result),
        (None, error) => bail!("{}", refusal(pid, error.as_deref(), said.why.as_deref())),
    }
}

/// Reads all that gdb prints; gdb is killed when its time is over.
fn read_within(child: &mut std::process::Child, patience: Duration) -> Result<String> {
    use std::io::Read;
    let collect = |stream: Option<Box<dyn Read + Send>>| {
        std::thread::spawn(move || {
            let mut text = Vec::new();
            if let Some(mut stream) = stream {
                let _ = stream.read_to_end(&mut text);
            }
            String::from_utf8_lossy(&text).into_owned()
        })
    };
    let out = collect(child.stdout.take().map(|out| Box::new(out) as _));
    let errors = collect(child.stderr.take().map(|err| Box::new(err) as _));
    let until = Instant::now() + patience;
    while child.try_wait()?.is_none() {
        if Instant::now() > until {
            let _ = child.kill();
            let _ = child.wait();
            bail!(
                "gdb was not done within {patience:?} and was ended; if the program stands still, a call in it waits \
                 for a lock: look at it with gdb"
            );
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let text = |thread: std::thread::JoinHandle<String>| thread.join().unwrap_or_default();
    let errors = text(errors);
    Ok(errors + &text(out))
}

/// Describes what went wrong in gdb, with the next step.
fn refusal(pid: u32, error: Option<&str>, why: Option<&str>) -> String {
    let why = why.unwrap_or_default().trim();
    match error {
        Some("attach") => {
            let scope =
                std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
            let hint = match scope.trim() {
                "" | "0" => "be its user, or root".to_owned(),
                scope => format!(
                    "kernel.yama.ptrace_scope is {scope}: be root, or have root set it to 0"
                ),
            };
            format!("{pid}: gdb may not attach: {why}; {hint}")
        }
        Some("no_dlopen") => format!(
            "{pid}: has no dlopen that gdb can find: statically linked, or a glibc before 2.34"
        ),
        Some("dlopen") => format!(
            "{pid}: cannot load the recorder: {why}; it must be able to read the file (its user, its container)"
        ),
        Some("busy") => format!(
            "{pid}: each of its threads is in the allocator or the loader whenever it is stopped (the last: {why}); \
             try again when it does less"
        ),
        Some("fault") => {
            format!("{pid}: a call in it did not come back ({why}); its registers were put back")
        }
        Some(other) => format!("{pid}: gdb: {other} {why}"),
        None => format!("{pid}: gdb's script said nothing"),
    }
}
