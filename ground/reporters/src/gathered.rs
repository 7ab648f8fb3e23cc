//! Gathers the lines of a process that runs, of a page, or of a file of about:memory.
//!
//! ```text
//!   PID ─┬─ socket PID.report ─► a file of about:memory ─┐
//!        ├─ socket PID.heap ───► figures + /proc/PID ────┼─► Gathered: lines, notes
//!        └─ none ──────────────► /proc/PID ──────────────┤
//!   FILE, URL ───────────────────────────────────────────┤
//!   control group ─► group.rs ───────────────────────────┘
//! ```
//!
//! G1  What is not known is no line, and a note says how it could be known: a process without a socket has no heap rows.
//! G2  A process that ends while it is measured is an error.
//! G3  A reporter that was left out is a note.
//!
//! Not here: how lines look (`text`, `json`, `openmetrics`), flags (`cli`).

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use skinflint_procfs::groups::Group;
use skinflint_procfs::stat;

use crate::diff::{Diff, Side};
use crate::endpoint::{self, Answer};
use crate::entry::Entry;
use crate::file::ReadError;
use crate::live_page::{Backend, Shown};
use crate::named::Note;
use crate::process::NoFigures;
use crate::registry::Action;
use crate::store::Store;
use crate::tree::Presence;
use crate::{file, group, heap, process, text};

/// How a process can be made to answer.
pub const HOW: &str =
    "start it with `skinflint exec --memory -- CMD`, or have it link the reporters";

/// The longest that a page may take, and the most bytes that it may save.
const PATIENCE: Duration = Duration::from_secs(60);
const LARGEST: u64 = 1 << 30;

/// The source of a report.
pub enum Target {
    /// A process.
    Pid(u32),
    /// The page of a process.
    Url(String),
    /// A file of about:memory.
    File(PathBuf),
    /// A control group.
    Group(Group),
}

impl Target {
    /// Returns the control group that a word of the command line means: a folder, a name as in `/proc/PID/cgroup`, or
    /// the number of a process that is in it.
    ///
    /// # Errors
    /// If there is none, or its memory is not counted here.
    pub fn of_group(text: &str) -> Result<Target> {
        let pid = text.parse::<u32>();
        let found = match pid {
            Ok(pid) => Group::of_process(pid),
            Err(_) => Group::named(Path::new(text)),
        };
        match (found, pid) {
            (Some(group), _) => Ok(Target::Group(group)),
            (None, Ok(pid)) => {
                process::title(pid).with_context(|| format!("process {pid}"))?;
                bail!(
                    "--cgroup: no control group counts the memory of process {pid}, or it is not shown here"
                )
            }
            (None, Err(_)) => bail!(
                "--cgroup {text}: no control group that counts memory; give its folder (with memory.stat in it), its name \
                 as in /proc/PID/cgroup, or the number of a process"
            ),
        }
    }

    /// Returns what a word of the command line means: a number, an address, else a file.
    ///
    /// # Errors
    /// If it is a number that no process has.
    pub fn of(text: &str) -> Result<Target> {
        if text.starts_with("http://") {
            return Ok(Target::Url(text.to_owned()));
        }
        match text.parse::<u32>() {
            Ok(0) => {
                bail!("0 is no process; `skinflint memory` lists the processes that can be asked")
            }
            Ok(pid) => Ok(Target::Pid(pid)),
            Err(_) if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) => {
                bail!("{text} is no process: numbers of processes are smaller")
            }
            Err(_) => Ok(Target::File(PathBuf::from(text))),
        }
    }
}

/// Lines, and the notes to print beside them.
#[derive(Default)]
pub struct Gathered {
    /// The lines.
    pub lines: Store,
    /// What the user should know beside them.
    pub notes: Vec<String>,
}

impl Gathered {
    fn keep(&mut self, entry: &Entry<'_>, blocks: &[Note]) {
        // If memory runs out, the sums show it by the missing lines; there is no better place.
        let _ = self.lines.push(entry) && self.lines.name_blocks(blocks);
    }

    /// Returns what has changed since a file was written: lines of the difference, and in which of the two each is.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn since(&self, first: &Path) -> Result<(Store, Vec<Presence>)> {
        let mut diff = Diff::new();
        read_file(first, |entry, _| diff.add(Side::First, entry))?;
        self.lines
            .iter()
            .for_each(|entry| diff.add(Side::Second, &entry));
        let (mut lines, mut presences) = (Store::new(), Vec::new());
        diff.each(|entry, presence| {
            presences.push(presence);
            // As above.
            let _ = lines.push(entry);
        });
        Ok((lines, presences))
    }
}

/// Gathers the lines of a target; with `with_blocks`, also the blocks that each line has measured.
///
/// # Errors
/// If it cannot be measured or read.
pub fn gather(target: &Target, with_blocks: bool) -> Result<Gathered> {
    match target {
        Target::Pid(pid) => of_process(*pid, with_blocks),
        Target::Url(url) => of_url(url, with_blocks),
        Target::Group(group) => {
            let (lines, notes) = group::gather(group)?;
            Ok(Gathered { lines, notes })
        }
        Target::File(path) => {
            let mut gathered = Gathered::default();
            let file = open(path)?;
            file::read_with_blocks(file, |entry, _, blocks| gathered.keep(entry, blocks))
                .with_context(|| path.display().to_string())?;
            Ok(gathered)
        }
    }
}

fn of_process(pid: u32, with_blocks: bool) -> Result<Gathered> {
    let named = || format!("process {pid}");
    let title = process::title(pid).with_context(named)?;
    let mut gathered = Gathered::default();
    let mut allocator = None;
    for socket in endpoint::sockets_of(pid) {
        // The drop-in has no reporters, so it has none that could name blocks.
        let request = match with_blocks && endpoint::is_reporters(&socket) {
            true => endpoint::MEASURE_BLOCKS,
            false => "measure",
        };
        match endpoint::ask(&socket, pid, request) {
            Ok(Answer::Report { faults, json }) => {
                gathered.notes.extend(faults);
                file::read_with_blocks(&json[..], |entry, _, blocks| gathered.keep(entry, blocks))
                    .with_context(|| format!("{}: its answer", socket.display()))?;
                return Ok(gathered);
            }
            Ok(Answer::Figures(text)) => {
                allocator = heap::from_text(&title, &text, &mut gathered.lines);
                if allocator.is_some() {
                    break;
                }
                let shown = socket.display();
                gathered
                    .notes
                    .push(format!("{shown}: an answer of another version; ignored"));
            }
            Ok(Answer::No(said)) => gathered.notes.push(said),
            Ok(Answer::Done(_) | Answer::Profile(_)) => {}
            // It may have ended, or closed its socket: /proc says which.
            Err(error) => gathered
                .notes
                .push(format!("{}: {error}", socket.display())),
        }
    }
    if allocator.is_none() {
        let note =
            format!("only what the kernel says of process {pid} is known; for its heap, {HOW}");
        gathered.notes.push(note);
    }
    process::of(pid, &title, allocator.as_ref(), &mut gathered.lines).with_context(named)?;
    Ok(gathered)
}

/// Reads the page at an address.
fn of_url(url: &str, with_blocks: bool) -> Result<Gathered> {
    let more = if with_blocks { "blocks=1" } else { "fresh=1" };
    let json = saved_by(url, more)?;
    let mut gathered = Gathered::default();
    file::read_with_blocks(&json[..], |entry, _, blocks| gathered.keep(entry, blocks))
        .with_context(|| "what the page saves".to_owned())?;
    Ok(gathered)
}

/// Returns what a page saves when it is asked in this way.
///
/// # Errors
/// If there is no page.
pub fn saved_by(url: &str, more: &str) -> Result<Vec<u8>> {
    let (page, query) = url.split_once('?').unwrap_or((url, ""));
    let asked = format!("{}/save?{query}&{more}", page.trim_end_matches('/'));
    // No proxy is asked, and no redirect followed: the address is a key, and for a program on this machine.
    let config = ureq::Agent::config_builder()
        .proxy(None)
        .max_redirects(0)
        .timeout_global(Some(PATIENCE))
        .build();
    let answer = ureq::Agent::new_with_config(config).get(&asked).call();
    let read = answer.and_then(|mut answer| {
        let body = answer.body_mut().with_config();
        body.limit(LARGEST).read_to_vec()
    });
    read.map_err(|error| {
        let said = error.to_string();
        let said = text::plain(&said);
        anyhow!(
            "{page}: {said}; is the program still running, and the address whole, with its token?"
        )
    })
}

fn open(path: &Path) -> Result<File> {
    if path.is_dir() {
        bail!("{}: a folder, and no file of about:memory", path.display());
    }
    File::open(path).with_context(|| {
        format!(
            "{}: cannot be opened; give a process's number, a URL or a file",
            path.display()
        )
    })
}

fn read_file(path: &Path, each: impl FnMut(&Entry<'_>, Presence)) -> Result<()> {
    file::read(open(path)?, each).with_context(|| path.display().to_string())?;
    Ok(())
}

/// Makes a process do an action, and returns the result.
///
/// # Errors
/// If it cannot be asked, or refuses.
pub fn act(pid: u32, action: Action) -> Result<String> {
    let name = action.name();
    let sockets = endpoint::sockets_of(pid);
    let Some(socket) = sockets.first() else {
        bail!("--{name}: process {pid} cannot be asked: {HOW}");
    };
    let answer = endpoint::ask(socket, pid, name)
        .with_context(|| format!("{}: --{name}", socket.display()))?;
    match answer {
        Answer::Done(said) => Ok(said.trim_end().to_owned()),
        Answer::No(said) => bail!("--{name}: process {pid}: {}", text::plain(&said)),
        _ => bail!("--{name}: process {pid} gave another answer than was asked for"),
    }
}

/// Reports whether the process has ended, or the control group is gone, since it was measured.
pub fn has_ended(error: &anyhow::Error) -> bool {
    let gone = error.downcast_ref::<NoFigures>();
    matches!(
        gone,
        Some(NoFigures::Gone | NoFigures::Empty | NoFigures::NoGroup)
    )
}

/// What is measured again and again, told from a later process of the same number.
pub struct Life<'a> {
    target: &'a Target,
    born: Option<u64>,
}

impl Life<'_> {
    /// Notes which one is meant.
    pub fn of(target: &Target) -> Life<'_> {
        let born = match target {
            Target::Pid(pid) => birth(*pid),
            _ => None,
        };
        Life { target, born }
    }

    /// Reports whether it has ended. Of a file or an address that is never so.
    pub fn is_over(&self) -> bool {
        match self.target {
            Target::Group(group) => group.figures().is_none(),
            Target::Pid(pid) => birth(*pid) != self.born,
            _ => false,
        }
    }
}

/// Returns when a process started, in ticks since boot; `None` if it has ended.
fn birth(pid: u32) -> Option<u64> {
    let stat = stat::stat(pid).filter(|stat| !stat.is_dead())?;
    Some(stat.started_ticks)
}

/// Reports whether the file or process is at fault, and not the command line.
pub fn is_of_subject(error: &anyhow::Error) -> bool {
    error.is::<NoFigures>() || error.is::<ReadError>()
}

/// A process as the subject of the page.
pub struct Subject {
    pid: u32,
    born: Option<u64>,
}

impl Subject {
    /// Notes which process has the number now.
    pub fn of(pid: u32) -> Subject {
        let born = birth(pid);
        Subject { pid, born }
    }

    fn still(&self) -> Result<u32, String> {
        match birth(self.pid) == self.born {
            true => Ok(self.pid),
            false => Err(format!("process {}: {}", self.pid, NoFigures::Gone)),
        }
    }
}

impl Backend for Subject {
    fn measure(&mut self, with_blocks: bool) -> Result<Shown, String> {
        let Gathered { lines, notes } =
            of_process(self.still()?, with_blocks).map_err(|error| format!("{error:#}"))?;
        Ok(Shown { lines, notes })
    }

    fn act(&mut self, action: Action) -> Result<String, String> {
        act(self.still()?, action).map_err(|error| format!("{error:#}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_got_the_number_is_not_the_one_that_was_meant() {
        let own = std::process::id();
        let target = Target::Pid(own);
        let mut life = Life::of(&target);
        assert!(life.born.is_some() && !life.is_over());
        // As if the number had been another's when it was noted.
        life.born = life.born.map(|ticks| ticks - 1);
        assert!(life.is_over());

        let mut page = Subject::of(own);
        assert_eq!(page.still(), Ok(own));
        page.born = life.born;
        let refused = page.measure(false).err();
        assert!(refused.is_some_and(|why| why.contains("no such process")));
    }

    #[test]
    fn a_process_that_nobody_has_waited_for_is_over() {
        let mut child = std::process::Command::new("cat");
        let mut child = child
            .stdin(std::process::Stdio::piped())
            .spawn()
            .expect("cat");
        let target = Target::Pid(child.id());
        let life = Life::of(&target);
        assert!(!life.is_over());
        child.kill().expect("ours");
        // SAFETY: it only waits, and leaves the process to be waited for.
        let waited = unsafe {
            let mut info = std::mem::zeroed();
            libc::waitid(
                libc::P_PID,
                child.id(),
                &raw mut info,
                libc::WEXITED | libc::WNOWAIT,
            )
        };
        assert_eq!((waited, life.is_over()), (0, true), "a zombie");
        child.wait().expect("ours");
        assert!(life.is_over());
    }
}
