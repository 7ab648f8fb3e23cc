//! `skinflint ctl`: tells a recording that is under way what to do.
//!
//! ```text
//!   PID of the program, of any process it started, or of skinflint ─► the session that has it ─► control socket
//! ```
//!
//! Not here: which session that is (`sessions::under_way`), the words themselves (`collect::control`).

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Args as ClapArgs, Subcommand};
use skinflint_collect::control::{Request, State, Status};
use skinflint_sessions::under_way::{Found, ask, session_of, sessions};

pub const HELP: &str = "\
Examples:
  skinflint ctl start                           # after: skinflint record --paused -- ./server
  skinflint ctl 4711 mark 'load begin'          # a process, if there are several recordings
  skinflint ctl status --json | jq '.processes[].trace'

PID is the program's, that of any process it started, or skinflint's own. While a recording is
stopped, it still records releases, so that the report knows which earlier blocks live; it only
counts acquisitions.";

#[derive(ClapArgs, Debug)]
pub struct CtlArgs {
    /// A process of the recording; not needed if there is only one recording
    #[arg(value_name = "PID", conflicts_with = "socket")]
    pub pid: Option<u32>,

    /// The recording's control socket, as `status` prints it
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,

    /// The command for the recording
    #[command(subcommand)]
    pub action: CtlAction,
}

#[derive(Subcommand, Debug)]
pub enum CtlAction {
    /// Record from now on
    Start,
    /// Record only releases from now on
    Stop,
    /// Name this moment, in all processes of the recording
    Mark {
        /// The mark's name; "X begin" and "X end" make a phase
        name: String,
    },
    /// Take a snapshot now; the report has it as the moment "snapshot N"
    Snapshot,
    /// Show what is being recorded, and to which files; without PID all recordings, with --json as a list if there are
    /// several
    Status {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// Does what was asked.
///
/// # Errors
/// If there is no session, no answer, or a refusal.
pub fn ctl(args: &CtlArgs) -> Result<u8> {
    if let (CtlAction::Status { json }, None, None) = (&args.action, args.pid, &args.socket) {
        let (found, _) = sessions();
        // One is asked as if it had been named; none is an error, which says what to do.
        if found.len() > 1 {
            return list(&found, *json);
        }
    }
    let socket = match &args.socket {
        Some(socket) => socket.clone(),
        None => session_of(args.pid)?.socket,
    };
    let request = match &args.action {
        CtlAction::Start => Request::Start,
        CtlAction::Stop => Request::Stop,
        CtlAction::Mark { name } => Request::Mark { name: name.clone() },
        CtlAction::Snapshot => Request::Snapshot,
        CtlAction::Status { .. } => Request::Status,
    };
    let reply = ask(&socket, &request)?;
    let mut out = io::stdout().lock();
    match (&args.action, &reply.status) {
        (CtlAction::Status { json: true }, Some(status)) => {
            serde_json::to_writer_pretty(&mut out, status)?;
            writeln!(out)?;
        }
        (CtlAction::Status { .. }, Some(status)) => write_status(&mut out, status, &socket)?,
        (_, Some(status)) => writeln!(
            out,
            "mark {:?} in {}; {}",
            reply.mark,
            processes(status.processes.len()),
            said(status.state)
        )?,
        (_, None) => {}
    }
    out.flush()?;
    Ok(0)
}

/// Shows all recordings under way.
fn list(found: &[Found], json: bool) -> Result<u8> {
    let mut out = io::stdout().lock();
    if json {
        let all: Vec<&Status> = found.iter().map(|found| &found.status).collect();
        serde_json::to_writer_pretty(&mut out, &all)?;
        writeln!(out)?;
    } else {
        for found in found {
            write_status(&mut out, &found.status, &found.socket)?;
        }
    }
    out.flush()?;
    Ok(0)
}

fn processes(n: usize) -> String {
    match n {
        1 => "1 process".into(),
        n => format!("{n} processes"),
    }
}

fn said(state: State) -> &'static str {
    match state {
        State::Recording => "recording",
        State::Stopped => "stopped: releases are recorded, acquisitions only counted",
        State::NotBegun => "not begun: `start` begins",
        State::Attaching => "attaching: not all of its calls are seen yet",
    }
}

fn write_status(out: &mut impl Write, status: &Status, socket: &Path) -> io::Result<()> {
    let attached = if status.attached { ", attached" } else { "" };
    writeln!(
        out,
        "skinflint {}{attached}: {}; {} living, {} met; socket {}",
        status.collector,
        said(status.state),
        processes(status.processes.len()),
        status.met,
        socket.display()
    )?;
    for process in &status.processes {
        writeln!(
            out,
            "  {:>8}  {:>10}  {}  {}",
            process.pid,
            skinflint_view::units::bytes(process.rss_bytes),
            process.name,
            process.trace.display()
        )?;
    }
    Ok(())
}
