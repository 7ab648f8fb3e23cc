//! The files by which the kernel says that memory is short.
//!
//! ```text
//!   /proc/pressure/memory, GROUP/memory.pressure   a trigger is written; poll: POLLPRI        Psi, GroupPsi
//!   version 1: cgroup.event_control                eventfds: usage thresholds, pressure       GroupLimit, GroupReclaim
//!   version 2: memory.events                       poll: POLLPRI when a count changes         GroupReclaim
//! ```
//!
//! W1  Each file is opened once; one that cannot be is a line of [`Watch::state`] with the reason, and no error.
//! W2  An event is a reason to look at the room (group.C1), not a level by itself, except where the kernel
//!     measured a stall (PSI) or counted a kill.
//! W3  Limits are looked at by time, too, since the second version has no event before its limit is met: seldom while
//!     there is room, often when there is little ([`Watch::look_again_ms`]).
//! W4  The system's figure contains stalls of other programs, too: it is never critical by itself. That of the own
//!     group may be.
//!
//! Not here: what follows from a signal.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::event::Source;
use super::group::{self, Groups, Version};
use super::level::Level;

/// Milliseconds of stall in a second that make a level. "Some": a thread waited for memory; "full": all did. From 7 %
/// of a second on users of interactive programs notice it, and a tenth of all threads' time is thrashing.
const STALLS: [(&str, u32, Level); 3] = [
    ("some", 70, Level::Near),
    ("some", 150, Level::High),
    ("full", 100, Level::Critical),
];
/// Windows that are tried, in ms: without CAP_SYS_RESOURCE the kernel takes multiples of two seconds only.
const WINDOWS_MS: [u32; 2] = [1_000, 2_000];

/// The signal that a descriptor is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum About {
    Stall(Source, Level),
    /// An eventfd that the kernel writes to when usage crosses a threshold.
    Threshold,
    Pressure,
    /// `memory.events`.
    Counts,
}

#[derive(Debug)]
struct Open {
    about: About,
    fd: OwnedFd,
}

/// A source, and whether it can be watched.
#[derive(Clone, Debug)]
pub struct SourceState {
    /// The file.
    pub file: String,
    /// `Err`: why it cannot be watched.
    pub watched: Result<(), String>,
}

/// A sign that memory is short.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Signal {
    /// Where it came from.
    pub source: Source,
    /// How short memory is.
    pub level: Level,
    /// Bytes wanted; 0: unknown.
    pub wanted_bytes: usize,
}

/// All files that are watched.
#[derive(Debug)]
pub struct Watch {
    groups: Groups,
    open: Vec<Open>,
    state: Vec<SourceState>,
    counts: (u64, u64, u64),
    look_ms: u64,
    stalls: bool,
}

impl Watch {
    /// Opens the files that exist. `stalls`: whether PSI is to be watched.
    pub fn new(stalls: bool) -> Watch {
        let mut watch = Watch {
            groups: Groups::default(),
            open: Vec::new(),
            state: Vec::new(),
            counts: (0, 0, 0),
            look_ms: LOOKS_MS[0],
            stalls,
        };
        watch.reopen(Groups::own());
        watch
    }

    /// Returns what is watched, what is not, and why.
    pub fn state(&self) -> &[SourceState] {
        &self.state
    }

    fn reopen(&mut self, groups: Groups) {
        self.open.clear();
        self.state.clear();
        self.groups = groups;
        if self.stalls {
            self.stalls_of(Path::new("/proc/pressure/memory"), Source::Psi);
            // The root group's file is the system's once more.
            let own = self
                .groups
                .unified
                .clone()
                .filter(|group| group.join("cgroup.type").exists());
            if let Some(group) = own {
                self.stalls_of(&group.join("memory.pressure"), Source::GroupPsi);
            }
        }
        match self.groups.memory.clone() {
            Some((Version::V1, dir)) => self.first(&dir),
            Some((Version::V2, dir)) => self.second(&dir),
            None => self.note(
                Path::new("/proc/self/cgroup"),
                Err(io::Error::other(
                    "the process is in no memory control group",
                )),
            ),
        }
    }

    fn note(&mut self, file: &Path, watched: io::Result<()>) {
        self.state.push(SourceState {
            file: file.display().to_string(),
            watched: watched.map_err(|error| error.to_string()),
        });
    }

    fn stalls_of(&mut self, file: &Path, source: Source) {
        let mut result = Ok(());
        for (share, stall_ms, level) in STALLS {
            // W4.
            let most = if source == Source::Psi {
                Level::High
            } else {
                Level::Critical
            };
            let level = level.min(most);
            match trigger(file, share, stall_ms) {
                Ok(fd) => self.open.push(Open {
                    about: About::Stall(source, level),
                    fd,
                }),
                Err(error) => result = Err(error),
            }
        }
        self.note(file, result);
    }

    fn first(&mut self, dir: &Path) {
        let pressure = register(dir, "memory.pressure_level", "medium");
        self.keep(
            &dir.join("memory.pressure_level"),
            About::Pressure,
            pressure,
        );
        let Some(room) = self.groups.room() else {
            return;
        };
        let margin = room.margin();
        let file = room.group.join("memory.usage_in_bytes");
        for below in [2 * margin, margin, margin / 4] {
            let at = (room.limit - below.min(room.limit)).to_string();
            let event = register(&room.group, "memory.usage_in_bytes", &at);
            self.keep(&file, About::Threshold, event);
        }
    }

    fn second(&mut self, dir: &Path) {
        let file = dir.join("memory.events");
        let opened = File::open(&file).map(OwnedFd::from);
        if opened.is_ok() {
            self.counts = group::events(dir).unwrap_or_default();
        }
        self.keep(&file, About::Counts, opened);
    }

    fn keep(&mut self, file: &Path, about: About, opened: io::Result<OwnedFd>) {
        let watched = opened.map(|fd| self.open.push(Open { about, fd }));
        if watched.is_err() || self.state.last().is_none_or(|s| Path::new(&s.file) != file) {
            self.note(file, watched);
        }
    }

    /// Returns the descriptors to poll, and the events to poll for.
    pub fn polled(&self) -> impl Iterator<Item = (RawFd, i16)> + '_ {
        self.open.iter().map(|open| match open.about {
            About::Threshold | About::Pressure => (open.fd.as_raw_fd(), libc::POLLIN),
            About::Stall(..) | About::Counts => (open.fd.as_raw_fd(), libc::POLLPRI),
        })
    }

    /// Returns the signals of the ready files (`ready[i]` is about the i-th of [`Watch::polled`]), and of the room
    /// (W2).
    pub fn signals(&mut self, ready: &[bool]) -> Vec<Signal> {
        let mut signals = Vec::new();
        let mut reclaim = false;
        for (open, _) in self.open.iter().zip(ready).filter(|(_, ready)| **ready) {
            match open.about {
                About::Stall(source, level) => signals.push(Signal {
                    source,
                    level,
                    wanted_bytes: 0,
                }),
                About::Threshold | About::Pressure => {
                    let mut count = [0u8; 8];
                    skinflint_base::sys::read(open.fd.as_raw_fd(), &mut count);
                    reclaim |= open.about == About::Pressure;
                }
                About::Counts => {
                    // The next change is an event only after the file was read.
                    let dir = self.groups.memory.as_ref().map(|(_, dir)| dir.clone());
                    let counts = dir
                        .and_then(|dir| group::events(&dir))
                        .unwrap_or(self.counts);
                    if counts.2 > self.counts.2 {
                        signals.push(Signal {
                            source: Source::GroupReclaim,
                            level: Level::Critical,
                            wanted_bytes: 0,
                        });
                    }
                    reclaim |= counts != self.counts;
                    self.counts = counts;
                }
            }
        }
        self.look(reclaim, &mut signals);
        signals
    }

    fn look(&mut self, reclaim: bool, signals: &mut Vec<Signal>) {
        let Some(room) = self.groups.room() else {
            self.look_ms = LOOKS_MS[0];
            return;
        };
        let level = room.level();
        self.look_ms = match level {
            Level::Calm if room.free > room.limit / 2 => LOOKS_MS[0],
            Level::Calm => LOOKS_MS[1],
            _ => LOOKS_MS[2],
        };
        if level != Level::Calm {
            let source = if reclaim {
                Source::GroupReclaim
            } else {
                Source::GroupLimit
            };
            signals.push(Signal {
                source,
                level,
                wanted_bytes: room.wanted() as usize,
            });
        }
    }

    /// Reports whether the process was moved to another group; if so, the files of that group are watched from now on.
    pub fn follow(&mut self) -> bool {
        let groups = Groups::own();
        let moved = groups != self.groups;
        if moved {
            self.reopen(groups);
        }
        moved
    }

    /// Returns the milliseconds until the room is to be looked at again (W3).
    pub fn look_again_ms(&self) -> u64 {
        self.look_ms
    }
}

/// Milliseconds between looks at the room: with more than half of the limit free, with less, and when the limit is
/// near. A look reads three small files for each ancestor with a limit, about 30 µs: at the shortest interval that is a
/// six hundredth of a core.
const LOOKS_MS: [u64; 3] = [1_000, 250, 50];

/// Opens a PSI trigger.
fn trigger(file: &Path, share: &str, stall_ms: u32) -> io::Result<OwnedFd> {
    let mut last = io::Error::other("no window was taken");
    for window_ms in WINDOWS_MS {
        let mut opened = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open(file)?;
        let stall_us = u64::from(stall_ms) * u64::from(window_ms);
        // The zero is part of it: /proc cuts the last byte off.
        let text = format!("{share} {stall_us} {}\0", window_ms * 1_000);
        match opened.write_all(text.as_bytes()) {
            Ok(()) => return Ok(opened.into()),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Returns an eventfd that the kernel writes to when a file of a group of the first version reports an event.
fn register(dir: &Path, name: &str, argument: &str) -> io::Result<OwnedFd> {
    let file = File::open(dir.join(name))?;
    // SAFETY: no memory of ours is touched.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that nothing else owns.
    let event = unsafe { OwnedFd::from_raw_fd(fd) };
    let control: PathBuf = dir.join("cgroup.event_control");
    let text = format!("{} {} {argument}", event.as_raw_fd(), file.as_raw_fd());
    OpenOptions::new()
        .write(true)
        .open(control)?
        .write_all(text.as_bytes())?;
    Ok(event)
}

#[cfg(test)]
#[path = "watch_tests.rs"]
mod tests;
