//! What each subcommand does.
use crate::args::{Command, RecordArgs};
use crate::launch;
use anyhow::Result;

pub fn dispatch(command: Command) -> Result<u8> {
    match command {
        Command::Record(args) => record(&args),
        _ => anyhow::bail!("not yet"),
    }
}
pub fn exit_code(_error: &anyhow::Error) -> u8 {
    2
}
fn record(args: &RecordArgs) -> Result<u8> {
    let outcome = launch::record(&args.record)?;
    for r in &outcome.recorded {
        eprintln!(
            "{} {:?} {} {:?}",
            r.path.display(),
            r.ending,
            r.bytes,
            r.error
        );
    }
    Ok(outcome.exit_code())
}
