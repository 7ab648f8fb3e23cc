//! The loop: look, draw, listen to keys; and one frame of text for users without a terminal.
//!
//! ```text
//!   look at the trace ─► draw ─► keys until it is time to look again     (top.L2: five times what a look cost)
//! ```
//!
//! N1  Afterwards the terminal is as it was, whatever ends the loop; a panic restores it, too.
//! N2  A paused screen goes on reading, so that nothing piles up.
//! N3  It ends with `q`; the end of the recording is shown, and waits for `q`.
//!
//! Not here: what is drawn (picture.rs).

use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::widgets::Paragraph;
use ratatui::{DefaultTerminal, Terminal};
use skinflint_recording::Recording;
use skinflint_symbols::SymbolOptions;
use skinflint_trace::OpenError;

use crate::feed::Feed;
use crate::group;
use crate::picture::{self, Names, View};
use crate::state::State;

/// The least time between two looks.
const INTERVAL: Duration = Duration::from_millis(500);
/// The pause is this many times the cost of a look, so a look takes a sixth of the time.
const PAUSE_FACTOR: u32 = 5;
/// The time after which a picture looks no more names up; the next one goes on.
const NAMES: Duration = Duration::from_millis(200);
/// The number of looks for which a single frame waits for something to show.
const FIRST_LOOKS: u32 = 8;

/// Options of the screen.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Where to look for names.
    pub symbols: SymbolOptions,
    /// Whether to use colours.
    pub color: bool,
    /// The width and height of a frame of text.
    pub size: (u16, u16),
    /// Whether the trace is being recorded, as far as the caller knows: one without an end was cut otherwise.
    pub growing: bool,
}

/// The followed trace, with all that is known of it.
struct Watched {
    feed: Feed,
    state: State,
    names: Names,
    /// Found once the process is known: the first look reads which it is.
    group: Option<group::Watch>,
    growing: bool,
    last_ticket: u64,
    ended: bool,
}

impl Watched {
    fn open(path: &Path, options: &Options) -> Result<Watched, OpenError> {
        // A copy (`fork`) began with what its parents had.
        let begun_with = Recording::open(path)?.ledger(2);
        Ok(Watched {
            feed: Feed::open(path)?,
            group: None,
            growing: options.growing,
            state: State::begun_with(begun_with),
            names: Names::new(options.symbols.clone()),
            last_ticket: 0,
            ended: false,
        })
    }

    fn look(&mut self) -> io::Result<()> {
        if self.ended {
            return Ok(());
        }
        let (state, last) = (&mut self.state, &mut self.last_ticket);
        let news = self.feed.look(|event| {
            *last = (*last).max(event.ticket);
            state.event(event);
        })?;
        self.ended = news.ended;
        self.state.advance(news.until_ns);
        self.state.samples(&news.rss, news.snapshots);
        let process = &self.feed.trace().process;
        self.state.settle(process, self.last_ticket, news.ended);
        let (pid, growing) = (process.pid, self.growing);
        let group = self
            .group
            .get_or_insert_with(|| group::Watch::of(pid, growing));
        self.state.group = group.lines();
        Ok(())
    }

    fn draw(&mut self, canvas: &mut ratatui::Frame<'_>, view: &View) {
        picture::draw(
            canvas,
            &self.state,
            self.feed.trace(),
            &mut self.names,
            view,
        );
    }
}

/// Follows a trace on the terminal until a key ends it.
///
/// # Errors
/// If the trace cannot be read, or stdout is no terminal.
pub fn watch(
    path: &Path,
    options: &Options,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let mut terminal = ratatui::try_init()?;
    let result = opened(path, &mut terminal, options);
    ratatui::try_restore()?;
    result
}

/// Opens a trace and follows it. What was recorded so far is read first, which may take a while: the screen says so.
fn opened(
    path: &Path,
    terminal: &mut DefaultTerminal,
    options: &Options,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let text = format!("reading {} …", path.display());
    terminal.draw(|canvas| canvas.render_widget(Paragraph::new(text), canvas.area()))?;
    let mut watched = Watched::open(path, options)?;
    // The first picture waits for no name.
    watched.names.patience = Some(Duration::ZERO);
    Ok(follow(&mut watched, terminal, options)?)
}

fn follow(
    watched: &mut Watched,
    terminal: &mut DefaultTerminal,
    options: &Options,
) -> io::Result<()> {
    let mut view = View {
        color: options.color,
        keys: true,
        growing: options.growing,
        ..View::default()
    };
    loop {
        let begun = Instant::now();
        watched.look()?;
        let until = Instant::now() + INTERVAL.max(begun.elapsed() * PAUSE_FACTOR);
        // A paused screen keeps what it shows; only what the keys change is drawn.
        if !view.paused {
            terminal.draw(|canvas| watched.draw(canvas, &view))?;
            watched.names.patience = Some(NAMES);
        }
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if !event::poll(left)? {
                break;
            }
            match pressed(&event::read()?, &mut view) {
                Answer::Quit => return Ok(()),
                Answer::Draw => {
                    terminal.draw(|canvas| watched.draw(canvas, &view))?;
                }
                Answer::Nothing => {}
            }
        }
    }
}

enum Answer {
    Quit,
    Draw,
    Nothing,
}

fn pressed(event: &Event, view: &mut View) -> Answer {
    let Event::Key(key) = event else {
        return match event {
            Event::Resize(..) => Answer::Draw,
            _ => Answer::Nothing,
        };
    };
    if key.kind == KeyEventKind::Release {
        return Answer::Nothing;
    }
    match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Answer::Quit,
        KeyCode::Esc if view.help => view.help = false,
        KeyCode::Char('q') | KeyCode::Esc => return Answer::Quit,
        KeyCode::Char('s') => view.sort = view.sort.next(),
        KeyCode::Char('p' | ' ') => view.paused = !view.paused,
        KeyCode::Char('h' | '?') => view.help = !view.help,
        _ => return Answer::Nothing,
    }
    Answer::Draw
}

/// Writes one frame as text: for a trace that has ended as of its end, for one under way as of now.
///
/// # Errors
/// If the trace cannot be read, or the output cannot be written.
pub fn once(
    path: &Path,
    options: &Options,
    out: &mut impl Write,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let mut watched = Watched::open(path, options)?;
    for look in 0..FIRST_LOOKS {
        watched.look()?;
        let something = watched.state.books.is_some() && watched.state.ledger().counts().events > 0;
        if watched.ended || something && look > 0 {
            break;
        }
        std::thread::sleep(INTERVAL);
    }
    let (wide, high) = options.size;
    let mut terminal = Terminal::new(TestBackend::new(wide, high))?;
    let view = View {
        growing: options.growing,
        ..View::default()
    };
    terminal.draw(|canvas| watched.draw(canvas, &view))?;
    let buffer = terminal.backend().buffer();
    for line in buffer.content().chunks(usize::from(wide)) {
        let text: String = line.iter().map(ratatui::buffer::Cell::symbol).collect();
        writeln!(out, "{}", text.trim_end())?;
    }
    // What a trace lacks is known when it grows no more.
    if watched.ended || !options.growing {
        for sentence in Recording::open(path)?.incomplete(true) {
            writeln!(out, "{sentence}")?;
        }
    }
    Ok(())
}
