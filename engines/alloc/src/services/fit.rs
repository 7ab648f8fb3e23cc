//! The fit profile at start: read, checked, and copied into a plan, or left alone.
//!
//! ```text
//!   SKINFLINT_FIT=app.fit ─► open, read ≤ 1.6 KiB ─► sizes::fit::parse ─► is it this program's? ─► Plan
//!                                  │                      │                        └─► left alone, silently
//!                                  └──────────────────────┴─► one line on stderr, and on without it
//! ```
//!
//! P1  Nothing is allocated or mapped, errno is left alone, no descriptor stays open. It may run before
//!     the first block; it needs 7 KiB of stack while it runs.
//! P2  The plan changes only if all of the file was found good; then every class and length in it keeps
//!     sizes::fit.F3. A profile can make a program larger or slower, and nothing else.
//! P3  A program that runs with more rights than its caller (AT_SECURE) opens nothing.
//! P4  A profile of another program is no fault: child processes inherit the variable, and a shell that complained of
//!     each would write a line in every pipeline. A rebuilt program of the same name takes it: sizes outlive builds,
//!     and wrong ones cannot harm (P2).
//!
//! Not here: what the engine does with a plan, reading the environment.

use core::ffi::CStr;

use skinflint_base::sys;
use skinflint_sizes::fit as format;
use skinflint_sizes::fit::{EARNED_MAX, FILE_BYTES_MAX, SPANS_MAX};

use crate::heaps::fault::Line;
use crate::heaps::pool::with_pool;
use crate::heaps::tls;
use crate::mechanism::class;

/// The most reads of the file: a signal may cut one short, and a pipe may give a byte at a time.
const READS_MAX: usize = 64;
/// Bytes of the longest program path that is looked at.
const PATH_BYTES: usize = 4096;

/// The settings that a profile asks for.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Earned classes in bytes, ascending; the first `n`.
    pub classes: [u16; EARNED_MAX],
    /// Number of earned classes.
    pub n: usize,
    /// Class in bytes and pages of its spans, ascending by class; the first `m`.
    pub span_pages: [(u16, u8); SPANS_MAX],
    /// Number of span lengths.
    pub m: usize,
    /// Dirty pages worth keeping; 0: unknown.
    pub spare_pages: u32,
}

impl Plan {
    /// Creates a plan that asks for nothing.
    pub const fn new() -> Plan {
        Plan {
            classes: [0; EARNED_MAX],
            n: 0,
            span_pages: [(0, 0); SPANS_MAX],
            m: 0,
            spare_pages: 0,
        }
    }

    /// Returns the earned classes, ascending.
    pub fn classes(&self) -> &[u16] {
        self.classes.get(..self.n).unwrap_or(&[])
    }

    /// Returns the pages that spans of a class of `size` bytes should have, if the profile says so. Cost: a binary
    /// search among at most 256.
    pub fn pages_of(&self, size: u16) -> Option<u8> {
        let known = self.span_pages.get(..self.m)?;
        let at = known
            .binary_search_by_key(&size, |(class, _)| *class)
            .ok()?;
        known.get(at).map(|(_, pages)| *pages)
    }
}

impl Default for Plan {
    fn default() -> Self {
        Plan::new()
    }
}

/// Why a profile was left alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FitError {
    /// The system refused to open it, with this error number.
    Open(i32),
    /// The system refused to read it.
    Read(i32),
    /// Its bytes are not a valid profile.
    Format(format::FitError),
    /// It is for another program (P4).
    OtherProgram,
    /// The program has more rights than its caller (P3).
    Secure,
}

impl FitError {
    /// Returns what to write about it; `None`: nothing (P3, P4).
    pub fn reason(&self) -> Option<&'static str> {
        match self {
            FitError::Open(libc::ENOENT) => Some("there is no such file"),
            FitError::Open(libc::EACCES) => Some("it may not be read"),
            FitError::Open(_) => Some("it cannot be opened"),
            FitError::Read(libc::EISDIR) => Some("it is a directory"),
            FitError::Read(_) => Some("it cannot be read"),
            FitError::Format(error) => Some(error.reason()),
            FitError::OtherProgram | FitError::Secure => None,
        }
    }
}

/// Reads a profile into `out`, which stays as it is if that fails (P2).
///
/// # Errors
/// See [`FitError`].
pub fn load(path: &CStr, out: &mut Plan) -> Result<(), FitError> {
    // SAFETY: getauxval reads what the kernel left on the stack. It sets errno only for what is not
    // there, and AT_SECURE always is.
    if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
        return Err(FitError::Secure);
    }
    let mut file = [0; FILE_BYTES_MAX + 1];
    let len = read_file(path, &mut file)?;
    // One byte more than a profile may have was asked for, so a file that is too long is noticed.
    let bytes = file.get(..len).unwrap_or(&[]);
    let view = format::parse(bytes).map_err(FitError::Format)?;
    if !is_this_program(view.program()) {
        return Err(FitError::OtherProgram);
    }
    let mut plan = Plan::new();
    for (to, class) in plan.classes.iter_mut().zip(view.earned()) {
        *to = class;
        plan.n += 1;
    }
    for (to, span) in plan.span_pages.iter_mut().zip(view.spans()) {
        *to = span;
        plan.m += 1;
    }
    plan.spare_pages = view.spare_pages();
    *out = plan;
    Ok(())
}

/// Applies the profile at `path`, or reports why not. To be called once, while the process has one thread; earlier
/// blocks stay as they are.
pub fn begin(path: &CStr) {
    let mut plan = Plan::new();
    match load(path, &mut plan) {
        Ok(()) => {
            with_pool(tls::who(), |_| {
                class::take_profile(plan.classes(), |size| plan.pages_of(size));
            });
        }
        Err(error) => complain(path, &error),
    }
}

/// Writes on stderr, in one line, that a profile was left alone and why; nothing where that is no fault.
pub fn complain(path: &CStr, error: &FitError) {
    let Some(reason) = error.reason() else {
        return;
    };
    let path = path.to_bytes();
    let mut line = Line::new();
    line.add(b"skinflint: SKINFLINT_FIT=");
    // If a path is too long for a line, its end is more useful.
    const SHOWN: usize = 120;
    match path.len().checked_sub(SHOWN) {
        Some(cut) if cut > 0 => {
            line.add(b"...");
            line.add(path.get(cut..).unwrap_or(path));
        }
        _ => line.add(path),
    }
    line.add(b" is ignored: ");
    line.add(reason.as_bytes());
    line.add(b"; `skinflint fit` writes a new one\n");
    sys::stderr(line.bytes());
}

/// Reads a file, as far as the buffer goes. Returns the bytes read.
fn read_file(path: &CStr, buffer: &mut [u8]) -> Result<usize, FitError> {
    let fd = sys::open_to_read(path);
    if sys::is_error(fd) {
        return Err(FitError::Open(-fd as i32));
    }
    let fd = fd as i32;
    let result = read_all(fd, buffer);
    sys::close(fd);
    result
}

fn read_all(fd: i32, buffer: &mut [u8]) -> Result<usize, FitError> {
    let mut done = 0;
    for _ in 0..READS_MAX {
        let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) else {
            return Ok(done);
        };
        match sys::read(fd, rest) {
            0 => return Ok(done),
            error if error == -i64::from(libc::EINTR) => {}
            error if sys::is_error(error) => return Err(FitError::Read(-error as i32)),
            got => done += got as usize,
        }
    }
    Err(FitError::Read(libc::EAGAIN))
}

/// Reports whether the running program has this file name. A profile without a name is for all programs, and so is
/// every profile where the system does not tell the program's name.
#[inline(never)]
fn is_this_program(name: &str) -> bool {
    let mut path = [0; PATH_BYTES];
    let len = sys::read_link(c"/proc/self/exe", &mut path);
    if name.is_empty() || sys::is_error(len) {
        return true;
    }
    let path = path.get(..len as usize).unwrap_or(&[]);
    let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
    let own = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    own == name.as_bytes()
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;
    use std::path::{Path, PathBuf};

    use super::*;

    /// A file in the system's folder for such, gone with the test.
    struct File(PathBuf);

    impl File {
        fn new(name: &str, bytes: &[u8]) -> File {
            let path =
                std::env::temp_dir().join(format!("skinflint-{}-{name}", std::process::id()));
            std::fs::write(&path, bytes).expect("a file");
            File(path)
        }
    }

    impl Drop for File {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    fn c(path: &Path) -> CString {
        CString::new(path.as_os_str().as_bytes()).expect("no zero byte")
    }

    fn own_name() -> String {
        let own = std::env::current_exe().expect("a path");
        own.file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned()
    }

    fn profile(program: &str) -> Vec<u8> {
        let mut out = vec![0; FILE_BYTES_MAX];
        let profile = format::Profile {
            earned: &[304, 4368],
            spans: &[(64, 2), (4368, 13), (32_768, 16)],
            spare_pages: 77,
            program,
            ..format::Profile::default()
        };
        let len = format::encode(&profile, &mut out).expect("good");
        out.truncate(len);
        out
    }

    fn loaded(bytes: &[u8], name: &str) -> (Result<(), FitError>, Plan) {
        let file = File::new(name, bytes);
        let mut plan = Plan::new();
        plan.spare_pages = 5;
        (load(&c(&file.0), &mut plan), plan)
    }

    /// Open descriptors of this process, by number: other tests open files meanwhile, so only what
    /// leads to `path` counts.
    fn open_on(path: &Path) -> usize {
        let fds = std::fs::read_dir("/proc/self/fd")
            .expect("procfs")
            .flatten();
        fds.filter(|fd| std::fs::read_link(fd.path()).is_ok_and(|to| to == path))
            .count()
    }

    #[test]
    fn a_good_profile_of_this_program_is_taken() {
        for program in [own_name(), String::new()] {
            let (result, plan) = loaded(&profile(&program), "good.fit");
            assert_eq!(result, Ok(()));
            assert_eq!(plan.classes(), [304, 4368]);
            assert_eq!((plan.m, plan.spare_pages), (3, 77));
            assert_eq!(
                (plan.pages_of(64), plan.pages_of(4368)),
                (Some(2), Some(13))
            );
            assert_eq!((plan.pages_of(0), plan.pages_of(80)), (None, None));
        }
    }

    #[test]
    fn the_fullest_profile_fits_the_plan() {
        let classes = (272..=32_752u16).step_by(16);
        let earned: Vec<u16> = classes
            .filter(|class| !skinflint_sizes::spans::is_base_class((*class).into()))
            .take(EARNED_MAX)
            .collect();
        let profile = format::Profile {
            earned: &earned,
            ..format::Profile::default()
        };
        let mut out = vec![0; FILE_BYTES_MAX];
        let len = format::encode(&profile, &mut out).expect("good");
        let (result, plan) = loaded(&out[..len], "full.fit");
        assert_eq!((result, plan.classes()), (Ok(()), &earned[..]));
    }

    #[test]
    fn another_programs_is_left_alone_in_silence() {
        let (result, plan) = loaded(&profile("redis-server"), "other.fit");
        assert_eq!(result, Err(FitError::OtherProgram));
        assert_eq!(
            (FitError::OtherProgram.reason(), FitError::Secure.reason()),
            (None, None)
        );
        assert_eq!((plan.n, plan.spare_pages), (0, 5));
        // The end of our name is not our name.
        let (result, _) = loaded(&profile(&own_name()[1..]), "end.fit");
        assert_eq!(result, Err(FitError::OtherProgram));
    }

    #[test]
    fn damage_of_any_kind_changes_nothing_and_leaves_nothing_open() {
        let good = profile(&own_name());
        for at in 0..good.len() {
            let mut bytes = good.clone();
            bytes[at] ^= 1 << (at % 8);
            let (result, plan) = loaded(&bytes, "damaged.fit");
            assert!(
                matches!(result, Err(FitError::Format(_))),
                "byte {at}: {result:?}"
            );
            assert_eq!((plan.n, plan.m, plan.spare_pages), (0, 0, 5));
        }
        let empty = loaded(b"", "empty.fit").0;
        assert_eq!(empty, Err(FitError::Format(format::FitError::Empty)));
        let mut long = good.clone();
        long.resize(5000, 0);
        let long = loaded(&long, "long.fit").0;
        let too_long = Err(FitError::Format(format::FitError::TooLong {
            bytes: FILE_BYTES_MAX + 1,
            needed: good.len(),
        }));
        assert_eq!(long, too_long);
        let longest = loaded(&[7; FILE_BYTES_MAX], "longest.fit").0;
        assert_eq!(
            longest,
            Err(FitError::Format(format::FitError::NotAProfile))
        );
        let file = File::new("open.fit", &good);
        for _ in 0..10 {
            assert_eq!(load(&c(&file.0), &mut Plan::new()), Ok(()));
        }
        assert_eq!(open_on(&file.0), 0);
    }

    #[test]
    fn what_is_no_file_neither_hangs_nor_harms() {
        let of = |path: &Path| load(&c(path), &mut Plan::new());
        assert_eq!(
            of(Path::new("/no/such/app.fit")),
            Err(FitError::Open(libc::ENOENT))
        );
        assert_eq!(of(Path::new("/")), Err(FitError::Read(libc::EISDIR)));
        let zero = of(Path::new("/dev/zero"));
        assert_eq!(zero, Err(FitError::Format(format::FitError::NotAProfile)));
        assert_eq!(
            of(Path::new("/dev/null")),
            Err(FitError::Format(format::FitError::Empty))
        );
        // A pipe that no process writes to.
        let path = std::env::temp_dir().join(format!("skinflint-{}-pipe", std::process::id()));
        // SAFETY: the path ends with a zero byte.
        assert_eq!(unsafe { libc::mkfifo(c(&path).as_ptr(), 0o600) }, 0);
        assert_eq!(of(&path), Err(FitError::Format(format::FitError::Empty)));
        std::fs::remove_file(&path).expect("our own");
    }

    /// So many packets of a byte each, of which a read gets one, and then the end.
    fn read_from_packets(count: usize) -> Result<usize, FitError> {
        let mut ends = [0; 2];
        let kind = libc::SOCK_SEQPACKET;
        // SAFETY: the kernel writes two descriptors, which are closed below; packets of a byte.
        unsafe {
            let made = libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr());
            assert_eq!(made, 0);
            for _ in 0..count {
                assert_eq!(libc::send(ends[0], [7u8].as_ptr().cast(), 1, 0), 1);
            }
            libc::close(ends[0]);
            let result = read_all(ends[1], &mut [0; FILE_BYTES_MAX]);
            libc::close(ends[1]);
            result
        }
    }

    #[test]
    fn what_comes_by_the_byte_is_read_so_many_times_and_no_more() {
        assert_eq!(read_from_packets(0), Ok(0));
        // The last read is the one that finds the end.
        assert_eq!(read_from_packets(READS_MAX - 1), Ok(READS_MAX - 1));
        let given_up = Err(FitError::Read(libc::EAGAIN));
        assert_eq!(read_from_packets(READS_MAX), given_up);
    }

    #[test]
    fn what_is_ignored_is_told_with_the_reason_and_the_end_of_a_long_path() {
        let name = "services::fit::tests::what_is_ignored_is_told_with_the_reason_and_the_end_of_a_long_path";
        let long = CString::new(vec![b'x'; 200]).expect("no zero byte");
        let told = crate::test_engine::in_child(name, || {
            complain(c"/a/b.fit", &FitError::Open(libc::ENOENT));
            complain(&long, &FitError::Format(format::FitError::Empty));
            complain(c"/other.fit", &FitError::OtherProgram);
        });
        let Some((status, said)) = told else { return };
        assert!(status.success(), "{said}");
        let ours: Vec<&str> = said
            .lines()
            .filter(|line| line.starts_with("skinflint: "))
            .collect();
        let end = "; `skinflint fit` writes a new one";
        let first =
            format!("skinflint: SKINFLINT_FIT=/a/b.fit is ignored: there is no such file{end}");
        let second = format!(
            "skinflint: SKINFLINT_FIT=...{} is ignored: {}{end}",
            "x".repeat(120),
            format::FitError::Empty.reason()
        );
        assert_eq!(ours, [first, second]);
    }

    #[test]
    fn errno_is_left_alone() {
        // SAFETY: this thread's own errno.
        unsafe { *libc::__errno_location() = 99 };
        let _ = load(c"/no/such/app.fit", &mut Plan::new());
        let _ = load(c"/", &mut Plan::new());
        // SAFETY: as above.
        assert_eq!(unsafe { *libc::__errno_location() }, 99);
    }
}
