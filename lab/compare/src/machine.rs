//! The machine and its present state.
//!
//! ```text
//!   /proc/cpuinfo, meminfo, loadavg, uname ─► Machine, load     a fixed piece of arithmetic ─► calibration
//! ```
//!
//! Not here: the conclusions (doubt.rs).

use std::ffi::CStr;
use std::fs;
use std::hint::black_box;
use std::time::Instant;

use crate::model::Machine;

/// Returns this machine. What cannot be read is empty or 0.
pub fn machine() -> Machine {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let huge = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    let value = |text: &str, key: &str| -> String {
        let line = text.lines().find(|line| line.starts_with(key));
        let value = line.and_then(|line| line.split_once(':'));
        value.map_or(String::new(), |(_, value)| value.trim().to_owned())
    };
    let kib = value(&meminfo, "MemTotal");
    let kib: u64 = kib.trim_end_matches(" kB").parse().unwrap_or(0);
    Machine {
        cpu: value(&cpuinfo, "model name"),
        cpus: std::thread::available_parallelism().map_or(0, |n| n.get() as u64),
        memory_bytes: kib * 1024,
        kernel: kernel(),
        huge_pages: chosen(&huge.unwrap_or_default()),
    }
}

fn kernel() -> String {
    // SAFETY: the structure is ours; the kernel closes its strings with zero bytes.
    unsafe {
        let mut name: libc::utsname = std::mem::zeroed();
        libc::uname(&mut name);
        let release = CStr::from_ptr(name.release.as_ptr());
        release.to_string_lossy().into_owned()
    }
}

/// Returns the word in brackets: `always [madvise] never`.
fn chosen(text: &str) -> String {
    let word = text
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'));
    word.map_or(String::new(), |(word, _)| word.to_owned())
}

/// Returns the load average of the last minute.
pub fn load() -> Option<f64> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    text.split_ascii_whitespace().next()?.parse().ok()
}

/// Measures the nanoseconds of a fixed piece of arithmetic: the best of five, about 3 ms in all. It needs neither
/// memory nor the kernel, so only the clock of the processor, and other programs that use it, can change it.
pub fn calibration_ns() -> u64 {
    let once = || {
        let begun = Instant::now();
        let mut value = black_box(1_u64);
        for _ in 0..200_000 {
            value = value
                .wrapping_mul(6_364_136_223_846_793_005)
                .rotate_left(17);
        }
        black_box(value);
        begun.elapsed().as_nanos() as u64
    };
    (0..5).map(|_| once()).min().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_kernel_and_processors() {
        let machine = machine();
        assert!(machine.cpus > 0 && machine.memory_bytes > 1 << 20 && !machine.kernel.is_empty());
        assert_eq!(chosen("always [madvise] never\n"), "madvise");
        assert_eq!(chosen("?"), "");
        assert!(load().is_some_and(|load| load >= 0.0));
        assert!(calibration_ns() > 10_000);
    }
}
