//! The control group of the program, as one line: what is charged, of which limit, and what it is.
//!
//! ```text
//!   group /jobs/a: 108 MiB of 256 MiB · working set 58.3 MiB (22.8%) · anonymous 56.7 MiB, file cache … · 2 killed …
//! ```
//!
//! G1  The kernel's figures of now, and not of the trace: only a program that is being recorded has such a line.
//! G2  The line is made in several lengths: what fits is for the screen to say, and no figure is cut in half.
//!
//! Not here: whose the memory is (`skinflint memory PID --cgroup`).

use skinflint_procfs::groups::{Figures, Group};
use skinflint_view::clean;
use skinflint_view::units::{bytes, count, percent};

/// A group that is looked at again and again.
pub struct Watch(Option<Group>);

impl Watch {
    /// Finds the group of a process (G1).
    pub fn of(pid: u32, growing: bool) -> Watch {
        Watch(growing.then(|| Group::of_process(pid)).flatten())
    }

    /// Returns the line of now, the fullest first (G2); none if no group counts the program's memory, or only that of
    /// the whole machine.
    pub fn lines(&self) -> Vec<String> {
        let figures = self.0.as_ref().and_then(|group| {
            let figures = group.figures().filter(|figures| !figures.is_top)?;
            Some(lines(&group.name(), &figures))
        });
        figures.unwrap_or_default()
    }
}

fn lines(name: &str, figures: &Figures) -> Vec<String> {
    let name = clean(name);
    let working_set = figures.working_set_bytes();
    let (of, part) = match figures.limit_bytes {
        Some(limit) => (
            format!(" of {}", bytes(limit)),
            format!(" ({})", percent(working_set, limit)),
        ),
        None => (", no limit".into(), String::new()),
    };
    let usage = format!("{}{of}", bytes(figures.usage_bytes));
    let working_set = format!("working set {}{part}", bytes(working_set));
    let kinds = [
        ("anonymous", figures.anonymous_bytes),
        ("file cache", figures.file_bytes),
        ("shared", figures.shared_bytes),
        ("kernel", figures.kernel_bytes.unwrap_or(0)),
        ("swapped", figures.swap_bytes.unwrap_or(0)),
    ];
    let kinds = kinds.iter().filter(|(_, amount)| *amount > 0);
    let kinds: Vec<String> = kinds
        .map(|(name, amount)| format!("{name} {}", bytes(*amount)))
        .collect();
    let kinds = match kinds.is_empty() {
        true => String::new(),
        false => format!(" · {}", kinds.join(", ")),
    };
    let kills = match figures.kills {
        Some(kills) if kills > 0 => format!(" · {} killed for want of memory", count(kills)),
        _ => String::new(),
    };
    vec![
        format!("group {name}: {usage} · {working_set}{kinds}{kills}"),
        format!("group {name}: {usage} · {working_set}{kills}"),
        format!("group: {usage} · {working_set}{kills}"),
        format!("group: {usage}{kills}"),
        format!("group: {usage}"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_by_hand() {
        let figures = Figures {
            usage_bytes: 100 << 20,
            inactive_file_bytes: 36 << 20,
            anonymous_bytes: 50 << 20,
            file_bytes: 40 << 20,
            kernel_bytes: Some(2 << 20),
            limit_bytes: Some(256 << 20),
            kills: Some(2),
            ..Figures::default()
        };
        assert_eq!(
            lines("/a\u{1b}b", &figures),
            [
                "group /a\u{fffd}b: 100 MiB of 256 MiB · working set 64.0 MiB (25.0%) · anonymous 50.0 MiB, file cache \
                 40.0 MiB, kernel 2.00 MiB · 2 killed for want of memory",
                "group /a\u{fffd}b: 100 MiB of 256 MiB · working set 64.0 MiB (25.0%) · 2 killed for want of memory",
                "group: 100 MiB of 256 MiB · working set 64.0 MiB (25.0%) · 2 killed for want of memory",
                "group: 100 MiB of 256 MiB · 2 killed for want of memory",
                "group: 100 MiB of 256 MiB",
            ]
        );
        let free = Figures {
            usage_bytes: 1 << 20,
            ..Figures::default()
        };
        assert_eq!(
            lines("/a", &free)[0],
            "group /a: 1.00 MiB, no limit · working set 1.00 MiB"
        );
        assert!(
            Watch::of(std::process::id(), false).lines().is_empty(),
            "only of what is recorded"
        );
    }
}
