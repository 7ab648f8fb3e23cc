//! Finds recordings that are under way, and tells them what to do.
//!
//! ```text
//!   PID of the program, of any process it started, or of skinflint ─► the session that has it ─► control socket
//! ```
//!
//! N1  Only sessions of this user answer (root: all); others are not even opened.
//!
//! Not here: the words themselves (`collect::control`).

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use skinflint_collect::control::{self, Reply, Request, Status};

/// A session that answered.
pub struct Found {
    /// Its control socket.
    pub socket: PathBuf,
    /// Its state.
    pub status: Status,
}

/// Returns all sessions that answer us, and the number of those that refuse us access.
pub fn sessions() -> (Vec<Found>, usize) {
    let mut forbidden = 0;
    let mut found = Vec::new();
    for socket in control::sockets() {
        match control::ask(&socket, &Request::Status) {
            Ok(Reply {
                status: Some(status),
                ..
            }) => found.push(Found { socket, status }),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => forbidden += 1,
            // It has just ended.
            _ => {}
        }
    }
    (found, forbidden)
}

/// Returns the session that a process id belongs to, or the only one.
///
/// # Errors
/// If there is no such session, or several and none was named.
pub fn session_of(pid: Option<u32>) -> Result<Found> {
    let (mut found, forbidden) = sessions();
    let hint = match forbidden {
        0 => String::new(),
        n => format!(" ({n} of other users not looked at)"),
    };
    let Some(pid) = pid else {
        return match found.len() {
            1 => Ok(found.remove(0)),
            0 => bail!(
                "nothing is being recorded{hint}; start the program by `skinflint record`, or attach to it"
            ),
            _ => bail!(
                "{} recordings are under way: {}; give one of these process ids",
                found.len(),
                list(&found)
            ),
        };
    };
    let is_it = |found: &Found| {
        found.status.collector == pid || found.status.processes.iter().any(|one| one.pid == pid)
    };
    match found.iter().position(is_it) {
        Some(index) => Ok(found.swap_remove(index)),
        None if found.is_empty() => bail!(
            "{pid}: nothing is being recorded{hint}; start the program by `skinflint record`, or attach to it"
        ),
        None => bail!(
            "{pid}: not a process that is being recorded{hint}; these are: {}",
            list(&found)
        ),
    }
}

/// Reports whether a process is being recorded into this trace.
pub fn is_recorded_into(trace: &Path) -> bool {
    let Ok(trace) = trace.canonicalize() else {
        return false;
    };
    let is_it = |one: &Path| one.canonicalize().is_ok_and(|own| own == trace);
    let (found, _) = sessions();
    let mut processes = found.iter().flat_map(|one| &one.status.processes);
    processes.any(|process| is_it(&process.trace))
}

/// Lists the process ids of sessions, the program's first.
fn list(found: &[Found]) -> String {
    const SHOWN: usize = 8;
    let processes = found.iter().flat_map(|one| &one.status.processes);
    let mut names: Vec<String> = processes
        .map(|process| format!("{} ({})", process.pid, process.name))
        .collect();
    if names.len() > SHOWN {
        names.truncate(SHOWN);
        names.push("…".into());
    }
    names.join(", ")
}

/// Sends a request, and makes a refusal an error.
///
/// # Errors
/// If the session does not answer, or refuses.
pub fn ask(socket: &Path, request: &Request) -> Result<Reply> {
    let shown = socket.display();
    let reply = control::ask(socket, request);
    if let Err(error) = &reply
        && error.kind() == ErrorKind::InvalidInput
    {
        bail!("{error}");
    }
    let reply = reply.with_context(|| match std::fs::metadata(socket) {
        Ok(_) => format!("{shown}: the session does not answer (another user's, or it is ending)"),
        Err(_) => format!("{shown}: no such socket; the session may have ended"),
    })?;
    if !reply.ok {
        bail!("{}", reply.error);
    }
    Ok(reply)
}
