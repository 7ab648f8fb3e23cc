//! Libraries with an allocator of their own: extension modules of Python, addons of Node, whatever a program opens.
//!
//! ```text
//!   an address in its code ─► /proc/PID/maps: path, inode ─► /proc/PID/root/PATH, the same inode? ─► plan (linked/)
//! ```
//!
//! V1  The file is the one that is mapped: what lies under its path now, with another inode, is not looked at.
//!
//! Not here: what is hooked (linked/), when the recorder asks (record_so hooks/arrivals.rs).

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use skinflint_base::ring::{LINKED_HOOKED, MOST_MODULES, ProcessHeader};

use crate::linked::{Plan, Plans, Whose, refused};

/// The most libraries of a process of which something is said.
const MOST_TOLD: usize = 64;

/// A library that the recorder asked about, and in which something was found.
#[derive(Clone, Debug)]
pub struct Library {
    /// The name of its file.
    file: String,
    plan: Arc<Plan>,
    /// Its number in [`ProcessHeader::modules`], if something is to be hooked.
    number: Option<usize>,
}

impl Library {
    /// Returns its plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns its number, if something is to be hooked.
    pub fn number(&self) -> Option<usize> {
        self.number
    }

    /// Returns what a reader of the trace should know, a sentence each.
    pub fn notes(&self, header: &ProcessHeader) -> Vec<String> {
        let mut notes = self.plan.unseen.clone();
        let names = self.plan.names.join(" and ");
        if names.is_empty() {
            return notes;
        }
        let whose = Whose::Library(&self.file);
        let status = self.number.and_then(|number| header.modules.get(number));
        // ORDER: Relaxed; the process has ended.
        notes.push(match status.map(|status| status.load(Ordering::Relaxed)) {
            // The analysis reads it (heaps.rs).
            Some(LINKED_HOOKED) => format!("blocks of {names} in {} are recorded, too", self.file),
            Some(0) => whose.said(&names, "the recorder was not answered in time"),
            Some(status) => whose.said(&names, refused(status).unwrap_or("the recorder refused")),
            None => whose.said(&names, "too many libraries have allocators of their own"),
        });
        notes
    }
}

impl Plans {
    /// Returns what is known of the library whose code is at an address, if there is an allocator in it; `known`: those that
    /// were found in the process before.
    pub fn library(&mut self, pid: u32, address: u64, known: &[Library]) -> Option<Library> {
        let path = mapped_at(pid, address)?;
        let file = path.file_name()?.to_string_lossy().into_owned();
        let plan = self.of_file(pid, &path, Whose::Library(&file));
        if *plan == Plan::default() || known.len() >= MOST_TOLD {
            return None;
        }
        let hooked = known.iter().filter(|one| one.number.is_some()).count();
        let number = (!plan.hooks.is_empty() && hooked < MOST_MODULES).then_some(hooked);
        Some(Library { file, plan, number })
    }
}

/// Returns the path, seen from here, of the file that is mapped at an address of a process (V1).
fn mapped_at(pid: u32, address: u64) -> Option<PathBuf> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    maps.lines().find_map(|line| {
        let mut parts = line.splitn(6, ' ');
        let (low, high) = parts.next()?.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        if !(number(low)?..number(high)?).contains(&address) {
            return None;
        }
        let inode: u64 = parts.nth(3)?.parse().ok()?;
        let path = parts.next()?.trim_start().strip_prefix('/')?;
        let path = PathBuf::from(format!("/proc/{pid}/root/{path}"));
        let is_same = std::fs::metadata(&path).is_ok_and(|about| about.ino() == inode);
        is_same.then_some(path)
    })
}
