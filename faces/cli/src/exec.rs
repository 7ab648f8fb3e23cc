//! `skinflint exec`: a program on our allocator, in our place.
//!
//! ```text
//!   skinflint exec -- CMD ── checks ──► LD_PRELOAD=libskinflint.so:… ── execve ──► CMD, same process
//! ```
//!
//! E1  What the loader would ignore in silence is refused beforehand: a static, foreign or
//!     set-user-id program, a file that is no library.
//! E2  The program replaces us: no process of ours stays behind that could swallow a signal or a status.
//!
//! Not here: the checks and the list (`launch`), recording (record.rs).

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Args as ClapArgs;
use skinflint_base::env;
use skinflint_launch::{carried, preflight, preload};

/// Returns what follows the options of `exec`: examples, and the allocator's variables from their one table.
pub fn help() -> String {
    let mut help = String::from(
        "\
Examples:
  skinflint exec -- redis-server
  skinflint exec --stats -- python3 service.py
  skinflint record -- skinflint exec -- ./server    # recorded, on our allocator
  skinflint exec --profile -- ./server              # which stacks hold memory, for pprof
  SKINFLINT_HARDEN=1 skinflint exec -- ./server     # guarded samples, for use in production

The program takes the place of this one: process id, signals and exit status are its own.
Processes that it starts run on our allocator too (LD_PRELOAD is inherited); statically linked
programs keep theirs.

Environment of the program:",
    );
    for variable in env::ALL {
        if variable.reader == env::Reader::Allocator {
            let (name, meaning) = (variable.name(), variable.meaning);
            let (values, default) = (variable.values, variable.default);
            help += &format!("\n  {name}\n      {meaning}\n      {values} [default: {default}]");
        }
    }
    help
}

#[derive(ClapArgs, Debug)]
pub struct ExecArgs {
    /// The allocator's library [default: libskinflint.so beside this program or in ../lib/skinflint, else the one it carries]
    #[arg(long, value_name = "PATH")]
    pub lib: Option<PathBuf>,

    /// Have each process print its totals to stderr when it ends; one that a signal or a system call of its own ends
    /// (exit_group, as by Go's runtime) prints none: ask it by --memory while it runs
    #[arg(long)]
    pub stats: bool,

    /// Let `skinflint memory` ask each process for its figures while it runs
    #[arg(long)]
    pub memory: bool,

    /// Keep a sampled heap profile of each process, one sample in so many requested bytes (1K to 1G), and write it when the
    /// process ends, for `pprof` and others; `skinflint agent` may ask for it while it runs
    #[arg(long, value_name = "RATE", num_args = 0..=1, require_equals = true, default_missing_value = "512K")]
    pub profile: Option<String>,

    /// Where the profiles go: FILE, and FILE.peak for what was in use at the peak; %p is the process's id
    /// [default: skinflint.%p.heap]
    #[arg(long, value_name = "FILE", requires = "profile")]
    pub profile_file: Option<PathBuf>,

    /// The program and its arguments: all that follows, so our own options come before it
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// Becomes the program. Returns only if that fails.
///
/// # Errors
/// Whatever keeps the program from being started on our allocator.
pub fn exec(args: &ExecArgs) -> Result<u8> {
    let Some(program) = args.command.first() else {
        bail!("no program given; as in: skinflint exec -- ls -l");
    };
    let found = preflight::check(program, &preflight::EXEC)?;
    let list = preload::on_our_allocator(args.lib.as_deref())?;
    let mut command = Command::new(program);
    command.args(&args.command[1..]).env("LD_PRELOAD", list);
    if args.stats {
        if preflight::ends_past_libc(&found) {
            // Afterwards nobody could say so (E2).
            eprintln!(
                "skinflint: {}: Go's runtime ends it by a system call of its own, so no totals come at its end; with \
                 --memory, `skinflint memory` shows them while it runs",
                program.to_string_lossy()
            );
        }
        command.env(env::STATS.name(), "1");
    }
    if args.memory {
        command.env(env::MEMORY.name(), "on");
    }
    if let Some(rate) = &args.profile {
        if preflight::ends_past_libc(&found) {
            eprintln!(
                "skinflint: {}: Go's runtime ends it by a system call of its own, so no profile comes at its end",
                program.to_string_lossy()
            );
        }
        command.env(env::PROFILE.name(), "on");
        command.env(env::PROFILE_RATE.name(), checked_rate(rate)?);
        command.env(
            env::PROFILE_FILE.name(),
            profile_file(args.profile_file.as_deref())?,
        );
    }
    carried::hand_on().context("the allocator's library cannot be handed on")?;
    let error = command.exec();
    Err(preflight::Unstartable::refused(program, &error))
}

/// Returns the rate as it was given, if the allocator will take it.
fn checked_rate(rate: &str) -> Result<&str> {
    let (digits, unit) = match rate.as_bytes().last() {
        Some(b'K' | b'k') => (&rate[..rate.len() - 1], 1u64 << 10),
        Some(b'M' | b'm') => (&rate[..rate.len() - 1], 1 << 20),
        Some(b'G' | b'g') => (&rate[..rate.len() - 1], 1 << 30),
        _ => (rate, 1),
    };
    let bytes = digits.parse::<u64>().ok().and_then(|n| n.checked_mul(unit));
    match bytes {
        Some(bytes) if (1 << 10..=1 << 30).contains(&bytes) && !digits.starts_with('+') => Ok(rate),
        _ => bail!("--profile={rate}: not {}", env::PROFILE_RATE.values),
    }
}

/// Returns where the profiles go: a whole path, since the program may change its folder before it ends.
fn profile_file(given: Option<&Path>) -> Result<PathBuf> {
    let file = given.unwrap_or(Path::new("skinflint.%p.heap"));
    let file = std::path::absolute(file).with_context(|| format!("{}", file.display()))?;
    match file.parent() {
        Some(folder) if !folder.is_dir() => {
            bail!(
                "{}: there is no such folder for the profile",
                folder.display()
            )
        }
        _ => Ok(file),
    }
}
