//! `skinflint-document-host`: an example of a host whose memory is all named, and all given back when it must be.
//!
//! ```text
//!   stdin: a command a line ─► main thread: Host ─► stdout: an answer a line        the bus: pressure, with --no-bus none
//! ```
//!
//! M1  Each command has one answer, which begins with its name; a failure is `error: …`, and the program goes on.
//! M2  An ask of the bus is answered between commands, or between two documents of one.
//! M3  With `--memory`, `skinflint memory` and `skinflint run --dark-matter` can ask it: the main thread publishes
//!     what the heaps hold after each command, since only it may look at them; and it does what `--minimize`, `--gc`
//!     or `--cc` asks, as it answers an ask of the bus, each by itself. The socket is the user's alone.
//!
//! It runs on `libskinflint.so` (`skinflint exec -- skinflint-document-host …`, or LD_PRELOAD), like any program.
//!
//! Not here: a window; it is there to be measured.

mod dom;
mod host;
mod planted;
mod reporters;
mod shelf;

use std::ffi::OsString;
use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use skinflint_cache::bus::{Bus, Options, resident};
use skinflint_cache::{Level, Mailbox, Rebuild};
use skinflint_reporters::endpoint::Endpoint;
use skinflint_reporters::published::Published;
use skinflint_reporters::{Action, Measurement, Registry};

use host::{Failure, Host};

const USAGE: &str = "usage: skinflint-document-host [--no-bus] [--memory] [--plant] [--tenants N] [--documents N] --shelves DIR [--images DIR]";
const COMMANDS: &str = "view T D, view-all, press LEVEL, resident, report, tree, events, quit";

struct Arguments {
    bus: bool,
    memory: bool,
    /// Whether to plant structures that no reporter covers, and others that two report.
    plant: bool,
    tenants: u32,
    documents: u32,
    shelves: PathBuf,
    images: Option<PathBuf>,
}

fn arguments() -> Result<Arguments, String> {
    let mut parsed = Arguments {
        bus: true,
        memory: false,
        plant: false,
        tenants: 4,
        documents: 10,
        shelves: PathBuf::new(),
        images: None,
    };
    let mut given = std::env::args_os().skip(1);
    while let Some(name) = given.next() {
        let name = name.to_string_lossy().into_owned();
        match name.as_str() {
            "--no-bus" => parsed.bus = false,
            "--memory" => parsed.memory = true,
            "--plant" => parsed.plant = true,
            _ => parsed.take(&name, &mut given)?,
        }
    }
    match parsed.shelves.as_os_str().is_empty() {
        true => Err(format!("--shelves DIR is missing\n{USAGE}")),
        false => Ok(parsed),
    }
}

impl Arguments {
    /// Takes the value of an option.
    fn take(
        &mut self,
        name: &str,
        given: &mut impl Iterator<Item = OsString>,
    ) -> Result<(), String> {
        let value = given
            .next()
            .ok_or_else(|| format!("{name} wants a value\n{USAGE}"))?;
        let number = || {
            let text = value.to_string_lossy();
            text.parse::<u32>()
                .map_err(|_| format!("{name} {text}: not a number\n{USAGE}"))
        };
        match name {
            "--tenants" => self.tenants = number()?,
            "--documents" => self.documents = number()?,
            "--shelves" => self.shelves = value.into(),
            "--images" => self.images = Some(value.into()),
            _ => return Err(format!("{name}: no such option\n{USAGE}")),
        }
        Ok(())
    }
}

fn main() -> ExitCode {
    match arguments().map_err(Failure::from).and_then(run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("skinflint-document-host: {error}");
            ExitCode::from(2)
        }
    }
}

/// A message to the main thread.
enum Message {
    Command(String),
    Asked,
    Act(Action, mpsc::SyncSender<String>),
    End,
}

struct Running {
    host: Host,
    bus: Option<Bus>,
    mailbox: Arc<Mailbox>,
    registry: &'static Registry,
    /// What the heaps hold, for other threads (M3).
    heaps: Arc<Published>,
}

fn run(arguments: Arguments) -> Result<(), Failure> {
    std::fs::create_dir_all(&arguments.shelves)
        .map_err(|error| format!("--shelves {}: {error}", arguments.shelves.display()))?;
    let sqlite = shelf::counted()?;
    let mut host = Host::open(&arguments.shelves, arguments.tenants)?;
    host.seed(arguments.documents, &files(&arguments)?)?;
    let (send, received) = mpsc::channel();
    let asked = send.clone();
    let mailbox = Arc::new(Mailbox::new(
        "tenants' heaps, sqlite",
        Rebuild::Compute,
        Duration::from_millis(600),
        move || {
            // If this fails, the main thread has ended.
            let _ = asked.send(Message::Asked);
        },
    ));
    let bus = match arguments.bus {
        true => Some(Bus::start(Options::default())?),
        false => None,
    };
    if let Some(bus) = &bus {
        bus.join(&host.images);
        bus.join(&host.metrics);
        bus.join(&host.documents);
        bus.join(&mailbox);
        bus.hook_preloaded();
    }
    let registry = skinflint_reporters::global();
    reporters::register(registry, &host, sqlite);
    let heaps = Arc::new(Published::new("heaps"));
    registry.add_shared("heaps", Arc::clone(&heaps) as _).keep();
    let _planted = arguments.plant.then(|| planted::plant(registry));
    offer(registry, &send);
    let _endpoint = match arguments.memory {
        true => Some(Endpoint::open(registry)?),
        false => None,
    };
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            let _ = send.send(Message::Command(line));
        }
        let _ = send.send(Message::End);
    });
    let mut running = Running {
        host,
        bus,
        mailbox,
        registry,
        heaps,
    };
    running.publish();
    println!("ready");
    while let Ok(message) = received.recv() {
        match message {
            Message::End => break,
            Message::Asked => running.serve(),
            Message::Act(action, done) => {
                // The process that asked may have gone.
                let said = running.host.act(action);
                running.publish();
                let _ = done.send(said);
            }
            Message::Command(line) if line.trim() == "quit" => break,
            Message::Command(line) => {
                let answer = running
                    .command(&line)
                    .unwrap_or_else(|error| format!("error: {error}"));
                running.publish();
                println!("{answer}");
                std::io::stdout().flush()?;
            }
        }
    }
    Ok(())
}

/// The longest wait for the main thread, which may be viewing something.
const ACT_PATIENCE: Duration = Duration::from_secs(20);

/// Offers what the host can be asked for (M3).
fn offer(registry: &'static Registry, send: &mpsc::Sender<Message>) {
    for action in Action::ALL {
        // A sender is for one thread at a time.
        let send = std::sync::Mutex::new(send.clone());
        let work = move || {
            let (done, is_done) = mpsc::sync_channel(1);
            let told = send
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner)
                .send(Message::Act(action, done));
            match told.map(|()| is_done.recv_timeout(ACT_PATIENCE)) {
                Ok(Ok(said)) => said,
                Ok(Err(_)) => "it is busy; it will be done after that".into(),
                Err(_) => "it is ending".into(),
            }
        };
        registry.on(action, "document host", work).keep();
    }
}

fn files(arguments: &Arguments) -> Result<Vec<Vec<u8>>, Failure> {
    let Some(folder) = &arguments.images else {
        return Ok(Vec::new());
    };
    let said = |error| format!("--images {}: {error}", folder.display());
    let mut names: Vec<PathBuf> = std::fs::read_dir(folder)
        .map_err(said)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    names.sort();
    names
        .iter()
        .map(|name| Ok(std::fs::read(name).map_err(said)?))
        .collect()
}

impl Running {
    fn serve(&mut self) {
        let host = &mut self.host;
        self.mailbox.serve(|ask| host.release(ask));
    }

    /// Publishes what the heaps hold now (M3).
    fn publish(&self) {
        self.heaps.publish(|out| reporters::heaps(&self.host, out));
    }

    fn measured(&self) -> Measurement {
        self.publish();
        self.registry.measure()
    }

    /// Views all documents, and answers the bus in between (M2).
    fn view_all(&mut self) -> Result<u64, Failure> {
        let mut sum = 0u64;
        for (tenant, count) in (0..).zip(self.host.counts()?) {
            for id in 0..count {
                sum = sum.rotate_left(7) ^ self.host.view(tenant, id)?;
                self.serve();
            }
        }
        Ok(sum)
    }

    fn command(&mut self, line: &str) -> Result<String, Failure> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["view", tenant, id] => {
                let sum = self.host.view(tenant.parse()?, id.parse()?)?;
                Ok(format!("view {sum:016x}"))
            }
            ["view-all"] => Ok(format!("view-all {:016x}", self.view_all()?)),
            ["press", level] => self.press(level),
            ["resident"] => Ok(format!("resident {}", resident().unwrap_or(0))),
            ["report"] => Ok(self.report()),
            ["tree"] => Ok(self.tree()),
            ["events"] => {
                let bus = self.bus.as_ref().ok_or("there is no bus")?;
                for event in bus.events().0 {
                    eprintln!("{event}");
                }
                Ok(format!("events {}", bus.events().0.len()))
            }
            _ => Err(format!("{line}: no such command; there are: {COMMANDS}").into()),
        }
    }

    /// Presses the button. The bus asks this very thread, so another thread presses.
    fn press(&mut self, level: &str) -> Result<String, Failure> {
        let level = Level::ALL
            .into_iter()
            .find(|one| one.to_string() == level)
            .ok_or_else(|| format!("{level}: no level; near, high or critical"))?;
        let begin = Instant::now();
        let (bus, mailbox, host) = (
            self.bus.as_ref().ok_or("there is no bus")?,
            &self.mailbox,
            &mut self.host,
        );
        let event = std::thread::scope(|scope| {
            let pressed = scope.spawn(|| bus.press(level, Duration::from_secs(5)));
            while !pressed.is_finished() {
                mailbox.serve(|ask| host.release(ask));
                std::thread::sleep(Duration::from_millis(1));
            }
            pressed.join()
        });
        let event = event
            .ok()
            .flatten()
            .ok_or("the round did not end in time")?;
        eprintln!("{event}");
        let took = begin.elapsed().as_millis();
        Ok(format!(
            "press {} -> {} in {took} ms",
            event.before_bytes, event.after_bytes
        ))
    }

    /// Returns the sums that the bars are about.
    fn report(&self) -> String {
        let measured = self.measured();
        let heap: i64 = measured
            .lines()
            .filter(|line| {
                line.kind == skinflint_reporters::Kind::Heap && line.path.starts_with("explicit/")
            })
            .map(|line| line.amount)
            .sum();
        let allocated = measured.sum("heap-allocated");
        let explicit = measured.sum("explicit") + allocated - heap;
        format!(
            "report explicit {explicit} heap-unclassified {} resident {} by-kind {} faults {} took-us {}",
            allocated - heap,
            measured.sum("resident"),
            measured.sum("resident-by-kind"),
            measured.faults().len(),
            measured.took().as_micros(),
        )
    }

    fn tree(&self) -> String {
        let measured = self.measured();
        let lines: Vec<String> = measured
            .lines()
            .map(|line| format!("{:>14} {}", line.amount, line.path))
            .collect();
        format!("tree {}\n{}", lines.len(), lines.join("\n"))
    }
}
