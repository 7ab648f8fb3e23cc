//! Options from the environment, read once at the start.
//!
//! ```text
//!   envp ──► SKINFLINT_NAME=value ──► a parser for each name ──► Settings ──► the parts that follow them
//!                                          └─ not a valid value: one line, and the default holds
//! ```
//!
//! O1  Names, values and defaults are those of the one table ([`env`]); the line about a bad value is made from it.
//! O2  Nothing here allocates, and `environ` is not used: before the C library's own constructor it is not set.
//! O3  Where the kernel says that the program has more rights than its user (AT_SECURE), nothing is read.
//! O4  One thread: the caller calls this before there are other threads.
//! O5  A name of ours that is not known is said, and a reserve is kept, by the first process of a tree: one whose parent has the
//!     same variable and this library says nothing, and keeps none (`parent`).
//!
//! Not here: what the settings mean (`harden`, `purger`, `pool`).

use core::ffi::{CStr, c_char};

use skinflint_base::env::{self, Variable};
use skinflint_base::sys;

use super::mesh::{self, When};
use super::{check, idle, modes, names, parent, purger, reserve};
use crate::heaps::fault::{Line, Policy, set_policy};
use crate::heaps::nodes;
use crate::heaps::pool;

/// The chosen settings; the defaults where nothing was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Settings {
    bad_free: Policy,
    harden: u32,
    sample_every: u32,
    quarantine_bytes: usize,
    purge: bool,
    decay_ms: u32,
    check: u32,
    huge_pages: bool,
    mesh: When,
    reserve_bytes: usize,
    reserve_children: bool,
    /// Path of a fit profile.
    profile: Option<&'static CStr>,
    heap_profile: bool,
    profile_rate: usize,
}

impl Settings {
    const fn new() -> Settings {
        Settings {
            bad_free: Policy::Abort,
            harden: 0,
            sample_every: 5000,
            quarantine_bytes: 16 << 20,
            purge: true,
            decay_ms: 500,
            check: 0,
            huge_pages: false,
            mesh: When::Auto,
            reserve_bytes: 0,
            reserve_children: false,
            profile: None,
            heap_profile: false,
            profile_rate: 512 << 10,
        }
    }
}

/// Slow paths for each check of `SKINFLINT_CHECK`: some hundred checks in a program that runs a second.
const CHECK_EVERY: u32 = 64;

/// Reads the environment and applies it. To be called once, while there is only one thread.
///
/// # Safety
/// `envp` is null, or a list of C strings closed by null, that stays valid.
pub unsafe fn begin(envp: *const *const c_char) {
    // SAFETY: as the caller promises.
    unsafe { begin_with(envp, None) };
}

/// Does what [`begin`] does. `find` returns the address of a variable of the C library's, or null; `None`: `dlsym` does,
/// which brings 100 KiB of the C library into memory.
///
/// # Safety
/// As for [`begin`].
#[unsafe(link_section = ".text.skinflint_first")]
#[inline(never)]
pub unsafe fn begin_with(envp: *const *const c_char, find: Option<idle::Find>) {
    nodes::count();
    idle::begin(find);
    // SAFETY: getauxval reads what the kernel left on the stack.
    if envp.is_null() || unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
        return;
    }
    let mut settings = Settings::new();
    let mut at = envp;
    // SAFETY: as the caller promises.
    unsafe {
        while !(*at).is_null() {
            let entry: &'static CStr = CStr::from_ptr(*at);
            if let Some(rest) = entry.to_bytes().strip_prefix(b"SKINFLINT_") {
                let name = rest.split(|&byte| byte == b'=').next().unwrap_or(rest);
                if name.len() < rest.len() {
                    // The value ends where the entry does.
                    let value = CStr::from_ptr(rest.as_ptr().add(name.len() + 1).cast());
                    take(&mut settings, name, value);
                }
            }
            at = at.add(1);
        }
    }
    follow(&settings);
}

/// Takes one variable, named without its prefix, or reports what is wrong with it.
#[cold]
#[inline(never)]
fn take(settings: &mut Settings, name: &[u8], value: &'static CStr) {
    let known = env::ALL
        .iter()
        .find(|variable| variable.name().as_bytes().strip_prefix(b"SKINFLINT_") == Some(name));
    let Some(variable) = known else {
        return names::unknown(name);
    };
    if variable.reader != env::Reader::Allocator {
        return;
    }
    // An empty value counts as none: that is how a shell takes a variable back.
    if !value.is_empty() && parse(settings, variable.name(), value).is_none() {
        sys::stderr(refusal(variable, value.to_bytes()).bytes());
    }
}

/// Returns the line about a bad value.
fn refusal(variable: &Variable, value: &[u8]) -> Line {
    let mut line = Line::new();
    line.add(b"skinflint: ");
    line.add(variable.name().as_bytes());
    line.add(b"=");
    line.add(&value[..value.len().min(32)]);
    if value.len() > 32 {
        line.add(b"...");
    }
    line.add(b": not ");
    line.add(variable.values.as_bytes());
    line.add(b"; taken as ");
    line.add(variable.default.as_bytes());
    line.add(b"\n");
    line
}

/// Parses a value into the settings. `None`: it is no value of this variable; the settings are as they were.
fn parse(settings: &mut Settings, name: &str, text: &'static CStr) -> Option<()> {
    let value = text.to_bytes();
    if name == env::BAD_FREE.name() {
        settings.bad_free = policy(value)?;
    } else if name == env::HARDEN.name() {
        settings.harden = level(value).or_else(|| checks(value))?;
    } else if name == env::SAMPLE_EVERY.name() {
        settings.sample_every = number(value, 1_000_000_000).filter(|&n| n > 0)? as u32;
    } else if name == env::QUARANTINE_BYTES.name() {
        settings.quarantine_bytes = bytes(value)?;
    } else if name == env::PURGE.name() {
        settings.purge = switch(value)?;
    } else if name == env::DECAY_MS.name() {
        settings.decay_ms = number(value, 3_600_000)? as u32;
    } else if name == env::CHECK.name() {
        settings.check = number(value, 3)? as u32;
    } else if name == env::THP.name() {
        settings.huge_pages = switch(value)?;
    } else if name == env::MESH.name() {
        settings.mesh = match value {
            b"auto" => When::Auto,
            _ if switch(value)? => When::On,
            _ => When::Off,
        };
    } else if name == env::RESERVE.name() {
        settings.reserve_bytes = bytes(value)?;
    } else if name == env::RESERVE_CHILDREN.name() {
        settings.reserve_children = switch(value)?;
    } else if name == env::FIT.name() {
        settings.profile = Some(text);
    } else if name == env::PROFILE.name() {
        settings.heap_profile = switch(value)?;
    } else if name == env::PROFILE_RATE.name() {
        settings.profile_rate = bytes(value).filter(|n| (1 << 10..=1 << 30).contains(n))?;
    } else if name == env::MEMORY.name() {
        // The drop-in applies it; here it is only checked.
        (value.first() == Some(&b'/') || switch(value).is_some()).then_some(())?;
    }
    Some(())
}

fn policy(value: &[u8]) -> Option<Policy> {
    match value {
        b"abort" => Some(Policy::Abort),
        b"warn" => Some(Policy::Warn),
        b"ignore" => Some(Policy::Ignore),
        _ => None,
    }
}

fn switch(value: &[u8]) -> Option<bool> {
    match value {
        b"on" => Some(true),
        b"off" => Some(false),
        _ => None,
    }
}

/// Returns the checks of a level, which include those of the levels below it.
fn level(value: &[u8]) -> Option<u32> {
    match value {
        b"0" => Some(0),
        b"1" => Some(modes::SAMPLE),
        b"2" => Some(modes::SAMPLE | modes::GUARD),
        b"3" => Some(modes::SAMPLE | modes::GUARD | modes::CANARY | modes::ZERO),
        b"4" => Some(modes::ALL),
        _ => None,
    }
}

/// Parses a list of checks.
fn checks(value: &[u8]) -> Option<u32> {
    let mut all = 0;
    for word in value.split(|&byte| byte == b',') {
        all |= match word {
            b"sample" => modes::SAMPLE,
            b"guard" => modes::GUARD,
            b"canary" => modes::CANARY,
            b"zero" => modes::ZERO,
            b"poison" => modes::POISON,
            b"quarantine" => modes::QUARANTINE,
            _ => return None,
        };
    }
    Some(all)
}

/// Parses a decimal number up to `most`.
fn number(value: &[u8], most: usize) -> Option<usize> {
    let mut number = 0usize;
    for &byte in value {
        let digit = byte.checked_sub(b'0').filter(|&digit| digit < 10)?;
        number = number.checked_mul(10)?.checked_add(usize::from(digit))?;
    }
    (!value.is_empty() && number <= most).then_some(number)
}

/// Parses a number of bytes, with a unit.
fn bytes(value: &[u8]) -> Option<usize> {
    let (digits, shift) = match value.split_last()? {
        (b'K' | b'k', digits) => (digits, 10),
        (b'M' | b'm', digits) => (digits, 20),
        (b'G' | b'g', digits) => (digits, 30),
        _ => (value, 0),
    };
    Some(number(digits, isize::MAX as usize >> shift)? << shift)
}

fn follow(settings: &Settings) {
    set_policy(settings.bad_free);
    purger::allow(settings.purge);
    purger::set_decay_ms(settings.decay_ms);
    check::watch(settings.check, CHECK_EVERY);
    if settings.huge_pages {
        pool::allow_huge_pages();
    } else {
        mesh::want(settings.mesh);
    }
    if let Some(path) = settings.profile {
        #[cfg(feature = "fit")]
        super::fit::begin(path);
        #[cfg(not(feature = "fit"))]
        missing(&env::FIT, path.to_bytes());
    }
    if settings.reserve_children {
        reserve::keep_in_children();
    }
    if settings.reserve_bytes > 0
        && (settings.reserve_children || !parent::has(env::RESERVE.name().as_bytes()))
    {
        reserve::grow_to(settings.reserve_bytes);
    }
    #[cfg(feature = "harden")]
    super::harden::begin(
        settings.harden,
        settings.sample_every,
        settings.quarantine_bytes,
    );
    #[cfg(not(feature = "harden"))]
    if settings.harden != 0 {
        missing(&env::HARDEN, b"");
    }
    if settings.heap_profile {
        begin_profile(settings.profile_rate);
    }
}

/// Begins a heap profile, or says why there is none.
#[cfg(feature = "profile")]
#[cold]
#[inline(never)]
fn begin_profile(rate: usize) {
    use super::profile::{Refused, set_rate, start};
    let why: &[u8] = match set_rate(rate).and_then(|()| start()) {
        Ok(()) => return,
        Err(Refused::Hardened) => b"SKINFLINT_HARDEN is set, too, and checks each call",
        Err(Refused::Rate) => b"the rate is out of bounds",
        Err(Refused::Memory) => b"there is no memory for it",
    };
    let mut line = Line::new();
    line.add(b"skinflint: ");
    line.add(env::PROFILE.name().as_bytes());
    line.add(b" is ignored: ");
    line.add(why);
    line.add(b"\n");
    sys::stderr(line.bytes());
}

#[cfg(not(feature = "profile"))]
fn begin_profile(_rate: usize) {
    missing(&env::PROFILE, b"");
}

/// Says that this build has not what a variable asks for.
#[cfg(not(all(feature = "harden", feature = "fit", feature = "profile")))]
fn missing(variable: &Variable, value: &[u8]) {
    let mut line = Line::new();
    line.add(b"skinflint: ");
    line.add(variable.name().as_bytes());
    if !value.is_empty() {
        line.add(b"=");
        line.add(&value[..value.len().min(120)]);
    }
    line.add(b" is ignored: this program was built without it\n");
    sys::stderr(line.bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(name: &str, value: &str) -> Option<Settings> {
        let mut settings = Settings::new();
        let text = std::ffi::CString::new(value).unwrap().into_boxed_c_str();
        parse(&mut settings, name, Box::leak(text)).map(|()| settings)
    }

    #[test]
    fn the_defaults_of_the_table_are_those_of_the_code() {
        for variable in env::ALL {
            if variable.reader == env::Reader::Allocator && variable.default != "none" {
                let settings = taken(variable.name(), variable.default);
                assert_eq!(settings, Some(Settings::new()), "{}", variable.name());
            }
        }
    }

    #[test]
    fn levels_grow() {
        let mut before = 0;
        for value in ["0", "1", "2", "3", "4"] {
            let checks = taken("SKINFLINT_HARDEN", value).unwrap().harden;
            assert_eq!(checks & before, before);
            assert!(value == "0" || checks != before);
            before = checks;
        }
        assert_eq!(before, modes::ALL);
    }

    #[test]
    fn lists_numbers_and_units_are_understood() {
        let list = taken("SKINFLINT_HARDEN", "guard,quarantine").unwrap();
        assert_eq!(list.harden, modes::GUARD | modes::QUARANTINE);
        let bytes = |value| taken("SKINFLINT_QUARANTINE_BYTES", value).map(|s| s.quarantine_bytes);
        assert_eq!(bytes("3K"), Some(3072));
        assert_eq!(bytes("2G"), Some(2 << 30));
        assert_eq!(bytes("7"), Some(7));
        let rate = |value| taken("SKINFLINT_PROFILE_RATE", value).unwrap().profile_rate;
        assert_eq!(
            [rate("1K"), rate("524288"), rate("1G")],
            [1 << 10, 512 << 10, 1 << 30]
        );
        assert!(taken("SKINFLINT_PROFILE", "on").unwrap().heap_profile);
        assert!(!taken("SKINFLINT_PROFILE", "off").unwrap().heap_profile);
        let every = taken("SKINFLINT_SAMPLE_EVERY", "1").unwrap();
        assert_eq!(every.sample_every, 1);
        let decay = taken("SKINFLINT_DECAY_MS", "0").unwrap();
        assert_eq!(decay.decay_ms, 0);
    }

    #[test]
    fn bad_values_are_refused() {
        for (name, value) in [
            ("SKINFLINT_BAD_FREE", "Abort"),
            ("SKINFLINT_HARDEN", "5"),
            ("SKINFLINT_HARDEN", "guard,"),
            ("SKINFLINT_HARDEN", "guard zero"),
            ("SKINFLINT_PROFILE", "1"),
            ("SKINFLINT_PROFILE_RATE", "1023"),
            ("SKINFLINT_PROFILE_RATE", "1025M"),
            ("SKINFLINT_PROFILE_RATE", "often"),
            ("SKINFLINT_SAMPLE_EVERY", "0"),
            ("SKINFLINT_SAMPLE_EVERY", "1000000001"),
            ("SKINFLINT_SAMPLE_EVERY", "-1"),
            ("SKINFLINT_QUARANTINE_BYTES", "M"),
            ("SKINFLINT_QUARANTINE_BYTES", "1T"),
            ("SKINFLINT_QUARANTINE_BYTES", "99999999999G"),
            ("SKINFLINT_RESERVE", "18446744073709551616"),
            ("SKINFLINT_PURGE", "1"),
            ("SKINFLINT_DECAY_MS", "3600001"),
            ("SKINFLINT_DECAY_MS", "1s"),
            ("SKINFLINT_THP", "yes"),
        ] {
            assert_eq!(taken(name, value), None, "{name}={value}");
        }
    }

    #[test]
    fn the_line_about_a_bad_value_names_the_good_ones() {
        for variable in env::ALL {
            let line = refusal(variable, &[b'x'; 100]);
            let text = core::str::from_utf8(line.bytes()).unwrap();
            assert!(text.contains(variable.values), "{text}");
            assert!(text.ends_with("\n"), "{text}");
        }
    }
}
