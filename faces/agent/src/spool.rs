//! What waits to be sent: bounded in bytes and age, on disk if there is a folder, and nothing is dropped uncounted.
//!
//! ```text
//!   add ─► [ oldest … newest ] ─► first ─► sent: done       too many bytes, too old, refused for good: dropped, counted
//!           FOLDER/0000000000000042-1790000000.profile      written beside, then renamed: whole, or not there
//! ```
//!
//! Q1  What waits has at most `most_bytes`: the oldest goes first. What is older than `most_age_s` goes, too.
//! Q2  Every profile is counted once, as sent, or dropped by one of four reasons; until then it waits.
//! Q3  With a folder what waits is there after a kill, and the next agent sends it. Other files in the folder are let be.
//! Q4  One agent at a time has the folder: its lock goes with the process.
//! Q5  Where a file cannot be written, the profile is dropped and counted, not kept in memory.
//!
//! Not here: sending (`push`).

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// The ending of what waits, and of what is being written.
const ENDING: &str = "profile";
const PART: &str = "part";

/// Bounds of what waits.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// The folder; none: memory.
    pub folder: Option<PathBuf>,
    /// The most bytes.
    pub most_bytes: u64,
    /// The greatest age, in seconds.
    pub most_age_s: u64,
}

/// What became of profiles.
#[derive(Clone, Copy, Default, Debug, PartialEq)]
pub struct Counts {
    /// Taken by the receiver.
    pub sent: u64,
    /// Dropped for the room.
    pub dropped_for_room: u64,
    /// Dropped for their age.
    pub dropped_for_age: u64,
    /// Dropped, for the receiver refuses them for good.
    pub refused: u64,
    /// Dropped, for they could not be written to disk or read back.
    pub unwritten: u64,
}

impl Counts {
    /// Returns the number of all that were dropped.
    pub fn dropped(&self) -> u64 {
        self.dropped_for_room + self.dropped_for_age + self.refused + self.unwritten
    }
}

struct Waiting {
    number: u64,
    at_s: u64,
    bytes: u64,
    /// In memory, if there is no folder.
    body: Vec<u8>,
}

/// Profiles that wait for one receiver.
pub struct Spool {
    bounds: Bounds,
    waiting: VecDeque<Waiting>,
    bytes: u64,
    next: u64,
    /// What became of the others.
    pub counts: Counts,
    _lock: Option<File>,
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Takes the folder for this process (Q4).
fn lock(folder: &Path) -> io::Result<File> {
    std::fs::create_dir_all(folder).map_err(|error| named(folder, &error))?;
    let path = folder.join("lock");
    let file = File::create(&path).map_err(|error| named(&path, &error))?;
    // SAFETY: no memory is involved; the descriptor is open.
    if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } != 0 {
        let what = format!("{}: another agent has this folder", folder.display());
        return Err(io::Error::new(io::ErrorKind::WouldBlock, what));
    }
    Ok(file)
}

/// Returns number and time in the name of a file that waits.
fn parts(path: &Path) -> Option<(u64, u64)> {
    if path.extension()? != ENDING {
        return None;
    }
    let (number, at_s) = path.file_stem()?.to_str()?.split_once('-')?;
    Some((number.parse().ok()?, at_s.parse().ok()?))
}

impl Spool {
    /// Opens a spool, with what waits in its folder.
    ///
    /// # Errors
    /// If the folder cannot be used.
    pub fn open(bounds: Bounds) -> io::Result<Spool> {
        let mut waiting = Vec::new();
        let mut taken = None;
        if let Some(folder) = &bounds.folder {
            taken = Some(lock(folder)?);
            for entry in std::fs::read_dir(folder)
                .map_err(|error| named(folder, &error))?
                .flatten()
            {
                let path = entry.path();
                if path.extension().is_some_and(|ending| ending == PART) {
                    // Cut off by a kill; its profile was not counted as waiting yet.
                    let _ = std::fs::remove_file(&path);
                } else if let (Some((number, at_s)), Ok(about)) = (parts(&path), entry.metadata()) {
                    waiting.push(Waiting {
                        number,
                        at_s,
                        bytes: about.len(),
                        body: Vec::new(),
                    });
                }
            }
        }
        waiting.sort_by_key(|one| one.number);
        Ok(Spool {
            next: waiting
                .last()
                .map_or(1, |last| last.number.saturating_add(1)),
            bytes: waiting.iter().map(|one| one.bytes).sum(),
            waiting: waiting.into(),
            counts: Counts::default(),
            bounds,
            _lock: taken,
        })
    }

    fn path(&self, one: &Waiting, ending: &str) -> Option<PathBuf> {
        let name = format!("{:016}-{}.{ending}", one.number, one.at_s);
        Some(self.bounds.folder.as_ref()?.join(name))
    }

    /// Returns how many wait, and their bytes.
    pub fn waits(&self) -> (usize, u64) {
        (self.waiting.len(), self.bytes)
    }

    /// Adds a profile, as of this second.
    pub fn add(&mut self, body: Vec<u8>, now_s: u64) {
        let bytes = body.len() as u64;
        let mut one = Waiting {
            number: self.next,
            at_s: now_s,
            bytes,
            body,
        };
        self.next += 1;
        if bytes > self.bounds.most_bytes {
            self.counts.dropped_for_room += 1;
            return;
        }
        while self.bytes + bytes > self.bounds.most_bytes {
            self.counts.dropped_for_room += 1;
            self.remove_first();
        }
        if let (Some(path), Some(part)) = (self.path(&one, ENDING), self.path(&one, PART)) {
            let body = std::mem::take(&mut one.body);
            let written = File::create(&part).and_then(|mut file| file.write_all(&body));
            if written
                .and_then(|()| std::fs::rename(&part, &path))
                .is_err()
            {
                let _ = std::fs::remove_file(&part);
                self.counts.unwritten += 1;
                return;
            }
        }
        self.bytes += bytes;
        self.waiting.push_back(one);
    }

    fn remove_first(&mut self) {
        if let Some(first) = self.waiting.pop_front() {
            self.bytes -= first.bytes;
            if let Some(path) = self.path(&first, ENDING) {
                let _ = std::fs::remove_file(path);
            }
        }
    }

    /// Returns the oldest that is not too old: its number, and its bytes.
    pub fn first(&mut self, now_s: u64) -> Option<(u64, Vec<u8>)> {
        loop {
            let first = self.waiting.front()?;
            if first.at_s.saturating_add(self.bounds.most_age_s) < now_s {
                self.counts.dropped_for_age += 1;
                self.remove_first();
                continue;
            }
            let number = first.number;
            match self.path(first, ENDING) {
                None => return Some((number, first.body.clone())),
                Some(path) => match std::fs::read(path) {
                    Ok(body) => return Some((number, body)),
                    Err(_) => {
                        self.counts.unwritten += 1;
                        self.remove_first();
                    }
                },
            }
        }
    }

    /// Takes out the oldest, if it is still this one, as sent or as refused for good.
    pub fn done(&mut self, number: u64, was_sent: bool) {
        if self
            .waiting
            .front()
            .is_some_and(|first| first.number == number)
        {
            match was_sent {
                true => self.counts.sent += 1,
                false => self.counts.refused += 1,
            }
            self.remove_first();
        } else if was_sent {
            // Dropped for its room while it was on its way, and counted as that: it arrived all the same.
            self.counts.dropped_for_room = self.counts.dropped_for_room.saturating_sub(1);
            self.counts.sent += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds(folder: Option<&Path>, most_bytes: u64) -> Bounds {
        Bounds {
            folder: folder.map(Path::to_owned),
            most_bytes,
            most_age_s: 100,
        }
    }

    fn bodies(spool: &mut Spool, now_s: u64) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        while let Some((number, body)) = spool.first(now_s) {
            all.push(body);
            spool.done(number, true);
        }
        all
    }

    /// In memory and on disk alike, for each place at which an old one has to go.
    #[test]
    fn bytes_and_age_are_bounded_and_each_profile_is_counted_once() {
        let folder = tempfile::tempdir().expect("a folder");
        for folder in [None, Some(folder.path())] {
            let mut spool = Spool::open(bounds(folder, 10)).expect("open");
            for at in 0..5u8 {
                spool.add(vec![at; 3], u64::from(at));
                assert!(spool.waits().1 <= 10);
            }
            spool.add(vec![9; 11], 5);
            assert_eq!(spool.counts.dropped_for_room, 3);
            assert_eq!(spool.waits(), (3, 9));
            // 2 is too old at 103.
            assert_eq!(bodies(&mut spool, 103), [vec![3; 3], vec![4; 3]]);
            let counts = spool.counts;
            assert_eq!(
                (counts.sent, counts.dropped_for_age, counts.dropped()),
                (2, 1, 4)
            );
            assert_eq!(spool.waits(), (0, 0));
        }
        let left: Vec<_> = std::fs::read_dir(folder.path())
            .expect("it")
            .flatten()
            .collect();
        assert_eq!(left.len(), 1, "the lock: {left:?}");
    }

    #[test]
    fn what_waits_is_there_after_a_kill() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut spool = Spool::open(bounds(Some(folder.path()), 100)).expect("open");
        spool.add(b"one".to_vec(), 1);
        spool.add(b"two".to_vec(), 2);
        assert_eq!(
            Spool::open(bounds(Some(folder.path()), 100))
                .err()
                .map(|error| error.kind()),
            Some(io::ErrorKind::WouldBlock)
        );
        drop(spool);
        std::fs::write(folder.path().join("0000000000000003-3.part"), "cut").expect("written");
        std::fs::write(folder.path().join("mine.txt"), "mine").expect("written");
        let mut spool = Spool::open(bounds(Some(folder.path()), 100)).expect("open");
        spool.add(b"three".to_vec(), 3);
        assert_eq!(bodies(&mut spool, 3), [&b"one"[..], b"two", b"three"]);
        assert!(folder.path().join("mine.txt").exists());
        assert!(!folder.path().join("0000000000000003-3.part").exists());
    }

    /// A day of minutes by a clock of its own, five processes, a receiver that is gone from six to twenty o'clock: files are bounded all
    /// day, in bytes and age, and each profile is sent, dropped or waits.
    #[test]
    fn a_day_is_bounded() {
        const PROCESSES: u64 = 5;
        let folder = tempfile::tempdir().expect("a folder");
        let bounds = Bounds {
            folder: Some(folder.path().to_owned()),
            most_bytes: 400_000,
            most_age_s: 3600,
        };
        let mut spool = Spool::open(bounds).expect("open");
        let on_disk = || {
            let files = std::fs::read_dir(folder.path()).expect("it").flatten();
            let files = files.filter(|file| file.file_name() != "lock");
            let sizes = files.map(|file| file.metadata().expect("a size").len());
            sizes.fold((0, 0), |(count, bytes), size| (count + 1, bytes + size))
        };
        let mut most_waiting = 0;
        for minute in 0..24 * 60 {
            let now_s = minute * 60;
            // At noon they are three times as large: then it is bytes that bound, and age at other times.
            let times = if (12 * 60..16 * 60).contains(&minute) {
                3
            } else {
                1
            };
            for process in 0..PROCESSES {
                let bytes = 500 + (minute * 7919 + process * 104_729) % 1000;
                spool.add(vec![7; (bytes * times) as usize], now_s);
            }
            let is_there = !(6 * 60..20 * 60).contains(&minute);
            while let Some((number, _)) = spool.first(now_s) {
                if !is_there {
                    break;
                }
                spool.done(number, true);
            }
            let (count, bytes) = spool.waits();
            assert!(bytes <= 400_000, "{minute}: {bytes}");
            let oldest = spool.waiting.front().map_or(now_s, |one| one.at_s);
            assert!(now_s - oldest <= 3600, "{minute}: {oldest}");
            most_waiting = most_waiting.max(count);
            if minute % 60 == 0 {
                assert_eq!(on_disk(), (count, bytes), "{minute}");
            }
        }
        let counts = spool.counts;
        assert_eq!(counts.sent + counts.dropped(), 24 * 60 * PROCESSES);
        assert!(
            counts.dropped_for_room > 0 && counts.dropped_for_age > 0,
            "{counts:?}"
        );
        assert!(most_waiting > 250, "{most_waiting}");
        assert_eq!(on_disk(), (0, 0), "all that waited was sent");
    }

    #[test]
    fn what_cannot_be_written_or_read_is_counted() {
        let folder = tempfile::tempdir().expect("a folder");
        let inner = folder.path().join("spool");
        let mut spool = Spool::open(bounds(Some(&inner), 100)).expect("open");
        spool.add(b"one".to_vec(), 1);
        std::fs::remove_dir_all(&inner).expect("removed");
        spool.add(b"two".to_vec(), 2);
        assert_eq!(spool.first(2), None);
        assert_eq!((spool.counts.unwritten, spool.counts.sent), (2, 0));
    }

    #[test]
    fn one_that_was_dropped_on_its_way_and_arrived_is_sent() {
        let mut spool = Spool::open(bounds(None, 3)).expect("open");
        spool.add(b"one".to_vec(), 1);
        let (number, _) = spool.first(1).expect("it waits");
        spool.add(b"two".to_vec(), 1);
        assert_eq!(spool.counts.dropped_for_room, 1);
        spool.done(number, true);
        assert_eq!((spool.counts.sent, spool.counts.dropped()), (1, 0));
        let (number, _) = spool.first(1).expect("two");
        spool.done(number, false);
        assert_eq!((spool.counts.refused, spool.waits()), (1, (0, 0)));
    }
}
