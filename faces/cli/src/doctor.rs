//! `skinflint doctor`: what this machine allows, and what to change.
//!
//! ```text
//!   launch: machine, installed, carried ─► one line each: yes, part, no ─► 0, or 1 if a command cannot do its work
//! ```

use std::io::{self, Write};

use anyhow::Result;
use clap::Args as ClapArgs;
use serde_json::json;
use skinflint_launch::machine::{Allowed, Finding, Machine};
use skinflint_launch::{carried, installed};

pub const HELP: &str = "\
Examples:
  skinflint doctor            # a line for each need
  skinflint doctor --json

One line for each need: yes, part (what few programs need is missing) or no (a command cannot do
its work), and behind the arrow what to change. Exit status: 1 if a line says no, else 0.";

#[derive(ClapArgs, Debug)]
pub struct DoctorArgs {
    /// Print the same as JSON
    #[arg(long)]
    pub json: bool,
}

/// Prints what this machine allows. Returns 1 if a command cannot do its work here.
///
/// # Errors
/// If stdout cannot be written.
pub fn doctor(args: &DoctorArgs) -> Result<u8> {
    let mut findings = vec![libraries()];
    findings.extend(Machine::this().findings());
    let mut out = io::stdout().lock();
    if args.json {
        let all: Vec<_> = findings.iter().map(as_json).collect();
        serde_json::to_writer_pretty(&mut out, &all)?;
        writeln!(out)?;
    } else {
        for finding in &findings {
            let change = finding.change.as_ref().map(|change| format!(" → {change}"));
            let (name, allowed) = (finding.name, word(finding.allowed));
            writeln!(
                out,
                "{name:9} {allowed:4} {}{}",
                finding.said,
                change.unwrap_or_default()
            )?;
        }
    }
    let is_denied = findings
        .iter()
        .any(|finding| finding.allowed == Allowed::No);
    Ok(u8::from(is_denied))
}

fn word(allowed: Allowed) -> &'static str {
    match allowed {
        Allowed::Yes => "yes",
        Allowed::InPart => "part",
        Allowed::No => "no",
    }
}

fn as_json(finding: &Finding) -> serde_json::Value {
    json!({
        "name": finding.name,
        "allowed": word(finding.allowed),
        "said": finding.said,
        "change": finding.change,
    })
}

/// Says where our libraries are. They are laid out on the way, so that a user can load them by hand.
fn libraries() -> Finding {
    let name = "libraries";
    let all: Result<Vec<_>> = installed::all().collect();
    let files = match all {
        Ok(files) => files,
        Err(missing) => {
            return Finding {
                name,
                allowed: Allowed::No,
                said: format!("{missing:#}"),
                change: Some(
                    "install skinflint again, as one file or with ../lib/skinflint".into(),
                ),
            };
        }
    };
    let folder = files[0].parent().map(|folder| folder.display().to_string());
    let folder = folder.unwrap_or_default();
    let is_for_all = carried::is_for_all_users(&files[0]);
    match carried::why_in_memory() {
        Some(why) => Finding {
            name,
            allowed: Allowed::InPart,
            said: format!("carried, and in memory only: {why}"),
            change: Some("name a folder of your own, with 2 MiB of room, by XDG_CACHE_HOME".into()),
        },
        None => Finding {
            name,
            allowed: Allowed::Yes,
            said: match is_for_all {
                true => format!("in {folder}, which all users can read"),
                false => format!(
                    "in {folder}, which other users cannot read: what becomes another user and starts a program is \
                     then not seen"
                ),
            },
            change: None,
        },
    }
}
