//! The file of a log: opened, compressed or not, and as the process that its trace is of.
//!
//! ```text
//!   LOG, LOG.gz ─► lines          its name, a process id ─► ProcessInfo
//! ```
//!
//! G1  What the log does not say (a start, a uid of the process) is not made to look as if it did: the uid is random, and
//!     recorder and allocator say where it came from.
//!
//! Not here: the lines (logalloc.rs).

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use flate2::bufread::MultiGzDecoder;
use skinflint_trace::ProcessInfo;

/// Opens a log, compressed or not.
///
/// # Errors
/// If it cannot be read.
pub fn open(path: &Path) -> io::Result<Box<dyn BufRead>> {
    let mut file = BufReader::new(File::open(path)?);
    let packed = file.fill_buf()?.starts_with(&[0x1f, 0x8b]);
    Ok(match packed {
        true => Box::new(BufReader::new(MultiGzDecoder::new(file))),
        false => Box::new(file),
    })
}

/// Returns what a trace says of the process that the log is of (G1).
pub fn process(log: &Path, pid: u64) -> ProcessInfo {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let mut uid = [0; 8];
    let random = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut uid));
    if random.is_err() {
        uid = (now.as_nanos() as u64).to_le_bytes();
    }
    ProcessInfo {
        uid: format!("{:016x}", u64::from_le_bytes(uid)),
        pid: u32::try_from(pid).unwrap_or(0),
        name: log
            .file_stem()
            .map_or_else(String::new, |name| name.to_string_lossy().into_owned()),
        argv: vec![log.display().to_string()],
        recorder_version: "logalloc".into(),
        allocator: "not recorded (imported from logalloc)".into(),
        os_page_bytes: 4096,
        ..ProcessInfo::default()
    }
}
