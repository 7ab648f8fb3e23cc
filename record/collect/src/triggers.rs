//! Conditions on which what is kept of a recording is put aside.
//!
//! ```text
//!   --when 'rss>80%limit' ─► Trigger ─ looked at every 50 ms: Seen ─► comes true ─► mark, snapshot ─► app.kept-1.sft
//! ```
//!
//! G1  A condition that holds does not come true again before it was false, by a tenth of its measure. Marks, and what the kernel
//!     says, are moments: each is once.
//! G2  A process may be moved to another control group at any time, as those are that start a service: its group is asked for at
//!     each look. A process that has ended is at the top, and keeps the one it had.
//!
//! Not here: what is done then (drain/turning.rs).

use std::collections::VecDeque;
use std::fs;
use std::str::FromStr;
use std::time::{Duration, Instant};

use skinflint_procfs::groups::{Figures, Group};

use crate::alarm::Alarm;

/// What the name of the mark begins with that is made when a condition has come true.
pub const PUT_ASIDE: &str = "when ";

/// The readings of resident memory that growth is measured over.
const READINGS: u32 = 32;

/// A condition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trigger {
    /// As it was given.
    pub text: String,
    what: What,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum What {
    /// Resident memory, in bytes.
    Rss(u64),
    /// Resident memory or the working set of its control group, in per cent of the group's limit.
    Limit(u64),
    /// Growth of resident memory over a time.
    Growth(u64, Duration),
    /// Some task stood still for want of memory, in per cent of the last ten seconds.
    Pressure(u64),
    /// The kernel has no memory for the control group: it kills one of its processes, or is about to.
    Oom,
    /// A mark: of this name, or any.
    Mark(Option<String>),
}

/// Parses a time with ms, s, m, h or d.
pub fn time(text: &str) -> Option<Duration> {
    let units = [
        ("ms", 1),
        ("s", 1000),
        ("m", 60_000),
        ("h", 3_600_000),
        ("d", 86_400_000),
    ];
    let ms = units.iter().find_map(|(unit, ms)| {
        let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
        number.checked_mul(*ms)
    })?;
    Some(Duration::from_millis(ms))
}

/// Parses a number of bytes with K, M or G.
pub fn bytes(text: &str) -> Option<u64> {
    let shift = match text.as_bytes().last()?.to_ascii_uppercase() {
        b'K' => 10,
        b'M' => 20,
        b'G' => 30,
        _ => 0,
    };
    let digits = if shift > 0 {
        &text[..text.len() - 1]
    } else {
        text
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

fn what(text: &str) -> Option<What> {
    let per_cent = |text: &str| text.parse().ok().filter(|n| (1..=100).contains(n));
    if let Some(name) = text.strip_prefix("mark=") {
        return Some(What::Mark(Some(name.to_owned()))).filter(|_| !name.is_empty());
    }
    match text {
        "mark" => return Some(What::Mark(None)),
        "oom" => return Some(What::Oom),
        _ => {}
    }
    let (measure, bound) = text.split_once('>')?;
    match measure {
        "rss" => match bound.strip_suffix("%limit") {
            Some(number) => per_cent(number).map(What::Limit),
            None => bytes(bound).filter(|n| *n > 0).map(What::Rss),
        },
        "growth" => {
            let (much, over) = bound.split_once('/')?;
            let over = time(over).filter(|over| *over >= Duration::from_secs(1))?;
            let much = bytes(much).filter(|n| *n > 0)?;
            Some(What::Growth(much, over))
        }
        "psi" => per_cent(bound.strip_suffix('%').unwrap_or(bound)).map(What::Pressure),
        _ => None,
    }
}

impl FromStr for Trigger {
    type Err = String;

    fn from_str(text: &str) -> Result<Trigger, String> {
        let what = what(text).ok_or(
            "one of 'rss>2G', 'rss>80%limit', 'growth>100M/10m', 'psi>20%', 'oom', 'mark', 'mark=NAME'",
        )?;
        Ok(Trigger {
            text: text.to_owned(),
            what,
        })
    }
}

/// What a look finds.
pub struct Seen<'a> {
    /// Resident memory of the process.
    pub rss_bytes: u64,
    /// The name of the newest mark, if it is new.
    pub mark: Option<&'a str>,
}

/// The control group that a process is in (G2).
struct Followed {
    pid: u32,
    /// `/proc/PID/cgroup`, as it was when the group was looked up.
    said: String,
    group: Option<Group>,
    /// What the kernel says of the group, if that is asked for.
    alarm: Option<Alarm>,
    /// Kills in the group when it was looked up.
    kills: u64,
}

impl Followed {
    fn new(pid: u32) -> Followed {
        Followed {
            pid,
            said: String::new(),
            group: None,
            alarm: None,
            kills: 0,
        }
    }

    /// Looks the group up if the process was moved.
    fn look(&mut self, listens: bool) {
        let said = fs::read_to_string(format!("/proc/{}/cgroup", self.pid)).unwrap_or_default();
        if said == self.said {
            return;
        }
        self.said = said;
        let found = Group::of_process(self.pid);
        let is_top = |group: &Group| group.folder == group.top;
        if self.group.is_some() && found.as_ref().is_none_or(is_top) {
            return;
        }
        let figures = found.as_ref().and_then(Group::figures);
        self.kills = figures.and_then(|figures| figures.kills).unwrap_or(0);
        self.alarm = found.clone().filter(|_| listens).map(Alarm::of);
        self.group = found;
    }
}

/// A condition of a process, and what it needs to know of the time before.
pub struct Watch {
    trigger: Trigger,
    holds: bool,
    followed: Option<Followed>,
    readings: VecDeque<(Instant, u64)>,
}

impl Watch {
    /// Begins to watch a process.
    pub fn new(trigger: Trigger, pid: u32) -> Watch {
        let asks = matches!(trigger.what, What::Limit(_) | What::Pressure(_) | What::Oom);
        Watch {
            trigger,
            holds: false,
            followed: asks.then(|| Followed::new(pid)),
            readings: VecDeque::new(),
        }
    }

    /// Returns the condition's text if it has come true (G1).
    pub fn look(&mut self, seen: &Seen<'_>, now: Instant) -> Option<&str> {
        let listens = self.trigger.what == What::Oom;
        if let Some(followed) = &mut self.followed {
            followed.look(listens);
        }
        let is_now = match &self.trigger.what {
            What::Mark(name) => {
                let mark = seen.mark.filter(|mark| !mark.starts_with(PUT_ASIDE));
                mark.is_some_and(|mark| name.as_ref().is_none_or(|name| mark == name))
            }
            What::Oom => {
                let alarm = self.followed.as_mut().and_then(|one| one.alarm.as_mut());
                alarm.is_some_and(Alarm::rang)
            }
            _ => {
                let group = self.followed.as_ref().and_then(|one| one.group.as_ref());
                let figures = group.and_then(Group::figures);
                let (is, bound) = self.measure(seen, figures.as_ref(), now)?;
                let held = self.holds;
                self.holds = match held {
                    true => is > bound - bound / 10,
                    false => is > bound,
                };
                self.holds && !held
            }
        };
        is_now.then_some(&*self.trigger.text)
    }

    /// Returns the limit of the group, if the kernel has killed one of its processes since the watch began.
    pub fn limit_of_a_kill(&self) -> Option<u64> {
        let followed = self.followed.as_ref()?;
        let figures = followed.group.as_ref()?.figures()?;
        figures
            .limit_bytes
            .filter(|_| figures.kills.unwrap_or(0) > followed.kills)
    }

    /// Returns the measure and its bound; `None` if it is not known.
    fn measure(
        &mut self,
        seen: &Seen<'_>,
        group: Option<&Figures>,
        now: Instant,
    ) -> Option<(u64, u64)> {
        let rss = seen.rss_bytes;
        match &self.trigger.what {
            What::Rss(bound) => Some((rss, *bound)),
            What::Limit(per_cent) => {
                let group = group?;
                let bound = group.limit_bytes? / 100 * per_cent;
                Some((rss.max(group.working_set_bytes()), bound))
            }
            What::Growth(bound, over) => {
                let (bound, over) = (*bound, *over);
                Some((self.growth(rss, over, now), bound))
            }
            What::Pressure(per_cent) => {
                let some = group?.stalls?[0].percent_hundredths[0];
                Some((some, per_cent * 100))
            }
            What::Mark(_) | What::Oom => None,
        }
    }

    /// Returns how much more is resident than was at the least within the time.
    fn growth(&mut self, rss: u64, over: Duration, now: Instant) -> u64 {
        let is_due = |(last, _): &(Instant, u64)| now - *last >= over / READINGS;
        if self.readings.back().is_none_or(is_due) {
            self.readings.push_back((now, rss));
        }
        while self
            .readings
            .front()
            .is_some_and(|(at, _)| now - *at > over)
        {
            self.readings.pop_front();
        }
        let least = self.readings.iter().map(|(_, rss)| *rss).min();
        rss.saturating_sub(least.unwrap_or(rss))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch(text: &str) -> Watch {
        Watch::new(text.parse().expect(text), std::process::id())
    }

    fn rss(rss_bytes: u64) -> Seen<'static> {
        Seen {
            rss_bytes,
            mark: None,
        }
    }

    #[test]
    fn what_is_no_condition_is_refused() {
        for text in [
            "",
            "rss",
            "rss>",
            "rss>0",
            "rss>x",
            "rss>101%limit",
            "rss>0%limit",
            "growth>1M",
            "growth>1M/10",
            "growth>1M/1ms",
            "psi>101",
            "psi>0%",
            "mark=",
            "free<1M",
            "oom>1",
        ] {
            assert!(text.parse::<Trigger>().is_err(), "{text}");
        }
        for text in [
            "rss>80%limit",
            "rss>2g",
            "growth>100M/10m",
            "psi>20%",
            "psi>20",
            "oom",
            "mark=a>b",
        ] {
            assert_eq!(text.parse::<Trigger>().expect(text).text, text);
        }
    }

    #[test]
    fn a_condition_comes_true_once_until_it_was_false_by_a_tenth() {
        let (mut watch, now) = (watch("rss>1000"), Instant::now());
        let mut came = |bytes| watch.look(&rss(bytes), now).is_some();
        let seen = [1000, 1001, 2000, 950, 1001, 901, 900, 1001];
        let expected = [false, true, false, false, false, false, false, true];
        assert_eq!(seen.map(&mut came), expected);
    }

    #[test]
    fn growth_is_within_its_time() {
        let (mut watch, begun) = (watch("growth>1000/10s"), Instant::now());
        let mut came = |second, bytes| {
            let now = begun + Duration::from_secs(second);
            watch.look(&rss(bytes), now).is_some()
        };
        // Slow growth is none: 90 a second.
        for second in 0..60 {
            assert!(!came(second, 5000 + second * 90), "{second}");
        }
        assert!(came(60, 5000 + 60 * 90 + 500));
        assert!(!came(61, 20_000), "it holds already");
    }

    #[test]
    fn a_mark_comes_true_each_time() {
        let marks = [
            None,
            Some("dump"),
            Some("dump"),
            Some("other"),
            Some("when mark"),
        ];
        for (text, expected) in [
            ("mark=dump", [false, true, true, false, false]),
            ("mark", [false, true, true, true, false]),
        ] {
            let (mut watch, now) = (watch(text), Instant::now());
            let mut came = |mark| {
                let seen = Seen { rss_bytes: 0, mark };
                watch.look(&seen, now).is_some()
            };
            assert_eq!(marks.map(&mut came), expected, "{text}");
        }
    }
}
