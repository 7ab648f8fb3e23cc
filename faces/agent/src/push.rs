//! Sending profiles on: to Pyroscope, Parca, or whatever takes OTLP profiles.
//!
//! ```text
//!   closing ─► body in the receiver's form ─► spool ─► one thread for each receiver ─► POST ─┬─ 2xx: sent
//!                                               ▲                                            ├─ 400, 413, 415, 422: refused
//!                                               └──── 1, 2, 4 … 60 s later ◄─────────────────┴─ anything else, or no answer
//! ```
//!
//! U1  A receiver holds up neither the closings nor another receiver: one request is on its way to each, within [`PATIENCE`];
//!     the rest waits in its spool, whose bounds are the bound of all tries (spool.Q1).
//! U2  What is asked for of all time is sent as what came since the last closing, except to Parca, which scrapes such sums. Of a
//!     process that is met for the first time nothing has come yet: a new agent would send its whole past once more.
//! U3  A profile may arrive twice: if an answer is lost, it is sent again, with the same id.
//! U4  No TLS: a receiver on another machine is reached by a collector on this one.
//!
//! The interfaces: push.v1.PusherService/Push of Grafana's Pyroscope, profilestore.v1alpha1 of Parca, OTLP 1.11.
//! Not here: what waits (`spool`).

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::json;

use crate::base64;
use crate::books;
use crate::labels::Labels;
use crate::metrics::Family;
use crate::otlp;
use crate::pprof;
use crate::proto::Message;
use crate::spool::{Bounds, Spool};
use crate::values::{self, Values};
use crate::watch::{Taken, Watched, locked};

/// The longest that a request may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest wait after a failure, in seconds.
const LONGEST_WAIT_S: u64 = 60;

/// The form that a receiver wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    Pyroscope,
    Parca,
    Otlp,
}

/// A receiver, as the user named it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Receiver {
    form: Form,
    /// The whole address.
    url: String,
}

impl Receiver {
    /// Reads `FORM=URL`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Receiver, String> {
        let (form, url) = text.split_once('=').unwrap_or((text, ""));
        let (form, path) = match form {
            "pyroscope" => (Form::Pyroscope, "/push.v1.PusherService/Push"),
            "parca" => (Form::Parca, "/profiles/writeraw"),
            "otlp" => (Form::Otlp, "/v1development/profiles"),
            _ => return Err("pyroscope=URL, parca=URL or otlp=URL".into()),
        };
        if url.starts_with("https://") {
            return Err("https: this program speaks no TLS; name a collector on this machine by http://, which passes it on".into());
        }
        match url.strip_prefix("http://") {
            Some(host) if !host.is_empty() && !host.starts_with('/') => Ok(Receiver {
                form,
                url: url.trim_end_matches('/').to_owned() + path,
            }),
            _ => Err(format!("{url}: no address; as in http://localhost:4040")),
        }
    }

    /// Returns a name for a folder and for metrics.
    fn name(&self, at: usize) -> String {
        let form = match self.form {
            Form::Pyroscope => "pyroscope",
            Form::Parca => "parca",
            Form::Otlp => "otlp",
        };
        format!("{form}-{at}")
    }
}

/// A receiver with what waits for it.
struct Line {
    receiver: Receiver,
    name: String,
    spool: Mutex<Spool>,
    /// Tries that failed and were, or will be, made again.
    retries: Mutex<u64>,
    more: Condvar,
}

/// Bytes and blocks of all time, by stack.
type Sums = HashMap<u64, [u64; 2]>;

/// Sends to all receivers.
#[derive(Default)]
pub struct Pusher {
    lines: Vec<Arc<Line>>,
    /// The last closing of each process: its moment, and what was asked for until then (U2).
    before: Mutex<HashMap<(u32, u64), (u64, Sums)>>,
}

fn hash_of(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

impl Pusher {
    /// Opens the spools and starts a thread for each receiver.
    ///
    /// # Errors
    /// If a folder cannot be used, or there are no threads.
    pub fn start(receivers: &[Receiver], bounds: &Bounds) -> Result<Pusher> {
        let mut lines = Vec::new();
        for (at, receiver) in receivers.iter().enumerate() {
            if receivers[..at].contains(receiver) {
                bail!("--push: {} is there twice", receiver.url);
            }
            let name = receiver.name(at + 1);
            let mut bounds = bounds.clone();
            bounds.folder = bounds.folder.map(|folder| folder.join(&name));
            let spool = Spool::open(bounds).context("--spool")?;
            let line = Arc::new(Line {
                receiver: receiver.clone(),
                name,
                spool: Mutex::new(spool),
                retries: Mutex::default(),
                more: Condvar::new(),
            });
            let sends = Arc::clone(&line);
            let thread = std::thread::Builder::new().name("push".into());
            thread
                .spawn(move || sends.send_all())
                .context("there is no thread to push with")?;
            lines.push(line);
        }
        Ok(Pusher {
            lines,
            before: Mutex::default(),
        })
    }

    /// Adds a profile that was just taken, for all receivers.
    pub fn add(&self, watched: &Watched, taken: &Taken) {
        if self.lines.is_empty() {
            return;
        }
        let whole = Values::of_go(&taken.heap, None);
        let flow = self.since_last(watched, taken, &whole);
        let mut stacks = taken.stacks.clone();
        let books = taken.books.as_ref().map(|books| {
            let mut values = books.values(&taken.heap, &mut stacks);
            // What was asked for of all time is in the other profile.
            values.types = &books::TYPES[1..];
            for row in &mut values.rows {
                row.remove(0);
            }
            values
        });
        let now_s = whole.time_ns / 1_000_000_000;
        let name = (watched.key(), whole.time_ns);
        let mut id = [0; 16];
        id[..8].copy_from_slice(&hash_of(name).to_le_bytes());
        id[8..].copy_from_slice(&hash_of((name, 1)).to_le_bytes());
        for line in &self.lines {
            let body = match line.receiver.form {
                Form::Otlp => {
                    let mut all = vec![flow.clone()];
                    all.extend(books.clone());
                    pprof::zipped(&otlp::write(&watched.labels, &stacks, &all, id))
                }
                form => {
                    let heap = if form == Form::Parca { &whole } else { &flow };
                    let mut series = vec![("memory", pprof::write(&stacks, heap))];
                    series.extend(
                        books
                            .as_ref()
                            .map(|books| ("skinflint_books", pprof::write(&stacks, books))),
                    );
                    match form {
                        Form::Parca => parca(&watched.labels, &series),
                        _ => pyroscope(&watched.labels, &series, id),
                    }
                }
            };
            locked(&line.spool).add(body, now_s);
            line.more.notify_one();
        }
    }

    /// Returns what was asked for since the last closing of a process (U2), and what is in use.
    fn since_last(&self, watched: &Watched, taken: &Taken, whole: &Values) -> Values {
        let sums: Sums = taken
            .heap
            .rows
            .iter()
            .map(|row| (hash_of(&row.frames), [row.figures[2], row.figures[3]]))
            .collect();
        let mut all = locked(&self.before);
        let before = all.insert(watched.key(), (whole.time_ns, sums));
        let mut flow = whole.clone();
        for (row, of) in flow.rows.iter_mut().zip(&taken.heap.rows) {
            let then = match &before {
                Some((_, sums)) => sums.get(&hash_of(&of.frames)).copied().unwrap_or_default(),
                None => [of.figures[2], of.figures[3]],
            };
            for (value, then) in row.iter_mut().zip(then) {
                *value -= then as i64;
            }
        }
        flow.duration_ns = before.map_or(0, |(then_ns, _)| whole.time_ns.saturating_sub(then_ns));
        flow
    }

    /// Forgets processes that are gone.
    pub fn forget(&self, is_there: impl Fn(u32) -> bool) {
        locked(&self.before).retain(|(pid, _), _| is_there(*pid));
    }

    /// Returns the figures of all receivers.
    pub fn figures(&self) -> Vec<Family> {
        let mut families: Vec<Family> = [
            ("push_sent", true, "Profiles that a receiver took."),
            (
                "push_retries",
                true,
                "Tries that failed; the profile waits for another.",
            ),
            ("push_waiting", false, "Profiles that wait."),
            ("push_waiting_bytes", false, "Bytes that wait."),
            (
                "push_dropped_for_room",
                true,
                "Profiles that were dropped for newer ones.",
            ),
            (
                "push_dropped_for_age",
                true,
                "Profiles that were dropped for their age.",
            ),
            (
                "push_refused",
                true,
                "Profiles that a receiver refused for good.",
            ),
            (
                "push_unwritten",
                true,
                "Profiles that could not be kept on disk.",
            ),
        ]
        .map(|(name, grows, help)| Family {
            name,
            grows,
            help,
            of: Vec::new(),
        })
        .into();
        for line in &self.lines {
            let spool = locked(&line.spool);
            let (counts, (waiting, bytes)) = (spool.counts, spool.waits());
            let retries = *locked(&line.retries);
            let values = [
                counts.sent,
                retries,
                waiting as u64,
                bytes,
                counts.dropped_for_room,
                counts.dropped_for_age,
                counts.refused,
                counts.unwritten,
            ];
            for (family, value) in families.iter_mut().zip(values) {
                family
                    .of
                    .push((format!("{{receiver=\"{}\"}}", line.name), value as f64));
            }
        }
        families.retain(|family| !family.of.is_empty());
        families
    }
}

/// Returns the labels of a series: its name, its service, and the process's.
fn series_labels<'a>(labels: &'a Labels, name: &'a str) -> Vec<(&'a str, &'a str)> {
    let service = labels.get("service").map_or("", |service| service);
    let mut all = vec![("__name__", name), ("service_name", service)];
    all.extend(
        labels
            .iter()
            .filter(|(name, _)| *name != "service")
            .map(|(name, value)| (name.as_str(), value.as_str())),
    );
    all
}

/// Returns a `push.v1.PushRequest`.
fn pyroscope(labels: &Labels, all: &[(&str, Vec<u8>)], id: [u8; 16]) -> Vec<u8> {
    let mut request = Message::new();
    for (at, (name, profile)) in all.iter().enumerate() {
        let mut series = Message::new();
        let mut pairs = series_labels(labels, name);
        // These are differences already.
        pairs.push(("__delta__", "false"));
        for (name, value) in pairs {
            let mut pair = Message::new();
            pair.text(1, name).text(2, value);
            series.message(1, &pair);
        }
        let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
        let last = &hex[20..31];
        let uuid = format!(
            "{}-{}-{}-{}-{last}{at:x}",
            &hex[..8],
            &hex[8..12],
            &hex[12..16],
            &hex[16..20]
        );
        let mut sample = Message::new();
        sample.data(1, profile).text(2, &uuid);
        series.message(2, &sample);
        request.message(1, &series);
    }
    request.bytes().to_vec()
}

/// Returns a `parca.profilestore.v1alpha1.WriteRawRequest` as JSON.
fn parca(labels: &Labels, all: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let series = all.iter().map(|(name, profile)| {
        let pairs = series_labels(labels, name).into_iter();
        let pairs: Vec<_> = pairs
            .map(|(name, value)| json!({"name": name, "value": value}))
            .collect();
        json!({"labels": {"labels": pairs}, "samples": [{"rawProfile": base64::encoded(profile)}]})
    });
    json!({"series": series.collect::<Vec<_>>()})
        .to_string()
        .into_bytes()
}

/// What came of a try.
enum Outcome {
    Sent,
    /// For good, and why.
    Refused(String),
    /// To be tried again, and why.
    Later(String),
}

impl Line {
    /// Sends for as long as the process lives.
    fn send_all(&self) {
        let config = ureq::Agent::config_builder()
            .proxy(None)
            .max_redirects(0)
            .http_status_as_error(false)
            .timeout_global(Some(PATIENCE))
            .build();
        let agent = ureq::Agent::new_with_config(config);
        let (mut wait_s, mut said, mut dropped) = (0, String::new(), 0);
        loop {
            let (number, body) = self.next();
            let outcome = self.send(&agent, &body);
            drop(body);
            let words = match outcome {
                Outcome::Sent => {
                    locked(&self.spool).done(number, true);
                    wait_s = 0;
                    String::new()
                }
                Outcome::Refused(why) => {
                    locked(&self.spool).done(number, false);
                    wait_s = 0;
                    why
                }
                Outcome::Later(why) => {
                    *locked(&self.retries) += 1;
                    wait_s = (wait_s * 2).clamp(1, LONGEST_WAIT_S);
                    why
                }
            };
            let gone = locked(&self.spool).counts.dropped();
            self.say(&words, &mut said, gone - dropped);
            dropped = gone;
            // CLOCK: the time before the next try.
            std::thread::sleep(Duration::from_secs(wait_s));
        }
    }

    /// Says what has changed: once for each reason, and what was dropped each time.
    fn say(&self, words: &str, said: &mut String, dropped: u64) {
        let url = &self.receiver.url;
        if words != said {
            match words {
                "" => eprintln!("skinflint: {url}: it takes profiles again"),
                words => eprintln!("skinflint: {url}: {words}"),
            }
            words.clone_into(said);
        }
        if dropped > 0 {
            eprintln!(
                "skinflint: {url}: {dropped} profiles were dropped, for room, age or a refusal; /metrics has the counts"
            );
        }
    }

    /// Waits for a profile to send.
    fn next(&self) -> (u64, Vec<u8>) {
        let mut spool = locked(&self.spool);
        loop {
            if let Some(first) = spool.first(values::now_ns() / 1_000_000_000) {
                return first;
            }
            let waited = self.more.wait(spool);
            spool = waited.unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }

    fn send(&self, agent: &ureq::Agent, body: &[u8]) -> Outcome {
        let mut request = agent.post(&self.receiver.url);
        request = match self.receiver.form {
            Form::Pyroscope => request.header("Content-Type", "application/proto"),
            Form::Parca => request.header("Content-Type", "application/json"),
            Form::Otlp => request
                .header("Content-Type", "application/x-protobuf")
                .header("Content-Encoding", "gzip"),
        };
        let mut answer = match request.send(body) {
            Ok(answer) => answer,
            Err(error) => return Outcome::Later(format!("{error}; it is tried again")),
        };
        let status = answer.status().as_u16();
        let read = answer
            .body_mut()
            .with_config()
            .limit(64 << 10)
            .read_to_vec();
        let text = read.unwrap_or_default();
        let words = || {
            let said = String::from_utf8_lossy(&text);
            let plain = said.chars().filter(|c| !c.is_control()).take(200);
            format!("status {status}: {}", plain.collect::<String>())
        };
        match status {
            200..300 if self.receiver.form == Form::Otlp && rejects(&text) => {
                Outcome::Refused(format!("taken in part only, {}", words()))
            }
            200..300 => Outcome::Sent,
            400 | 413 | 415 | 422 => Outcome::Refused(words()),
            _ => Outcome::Later(words()),
        }
    }
}

/// Reports whether an OTLP answer says that profiles were rejected: `partial_success { rejected_profiles }`.
fn rejects(answer: &[u8]) -> bool {
    matches!(answer, [0x0a, _, 0x08, count, ..] if *count != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::Heap;
    use crate::heap::tests::TEXT;
    use crate::modules::Stacks;

    #[test]
    fn receivers_are_named_by_form_and_address() {
        let url = |text: &str| Receiver::parse(text).map(|receiver| receiver.url);
        assert_eq!(
            url("pyroscope=http://h:4040/"),
            Ok("http://h:4040/push.v1.PusherService/Push".into())
        );
        assert_eq!(
            url("otlp=http://h"),
            Ok("http://h/v1development/profiles".into())
        );
        for wrong in [
            "",
            "jaeger=http://h",
            "parca=",
            "parca=h:1",
            "parca=http:///x",
            "otlp=https://h",
        ] {
            assert!(url(wrong).is_err(), "{wrong}");
        }
    }

    /// A new agent sends none of a process's past; from then on what came since.
    #[test]
    fn what_is_asked_for_is_sent_as_what_came() {
        let pusher = Pusher::default();
        let heap = Heap::read(TEXT).expect("a profile");
        let mut taken = Taken {
            heap,
            stacks: Stacks::default(),
            books: None,
        };
        let watched = Watched::default();
        let of = |taken: &Taken| {
            let whole = Values::of_go(&taken.heap, None);
            pusher.since_last(&watched, taken, &whole)
        };
        let first = of(&taken);
        assert_eq!(
            (first.rows[0].clone(), first.duration_ns),
            (vec![0, 0, 3, 600], 0)
        );
        taken.heap.rows[0].figures[3] += 7;
        let mut new = taken.heap.rows[0].clone();
        (new.frames, new.figures) = (vec![5], [1, 2, 3, 4]);
        taken.heap.rows.push(new);
        let second = of(&taken);
        assert_eq!(
            second.rows,
            [vec![0, 7, 3, 600], vec![0, 0, 2, 100], vec![3, 4, 1, 2]]
        );
        pusher.forget(|_| false);
        assert!(locked(&pusher.before).is_empty());
    }

    #[test]
    fn an_answer_in_part_is_no_success() {
        assert!(rejects(&[0x0a, 2, 0x08, 1]));
        assert!(!rejects(&[]) && !rejects(&[0x0a, 0]) && !rejects(&[0x0a, 2, 0x12, 0]));
    }
}
