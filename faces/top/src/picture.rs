//! The picture of the state: a header, the books, live bytes over time, and the first stacks.
//!
//! ```text
//!   redis-server 4711 · 12.3 s · recording            events, rates, window; its control group
//!   books: live ███ free ██ files █                    live over time ▁▂▃▅▇
//!   live      growth     churn      blocks    stack (innermost first)
//! ```
//!
//! C1  Every size is useful: what does not fit is left out from below, never cut in half.
//! C2  Names are data: control characters are replaced before they reach the terminal.
//! C3  Stacks shown and `others` add up to all live bytes.
//!
//! Not here: keys and timing (screen.rs).

use std::time::{Duration, Instant};

use ratatui::Frame as Canvas;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Clear, Paragraph, Sparkline, Wrap};
use rustc_hash::FxHashMap;
use skinflint_analysis::plumbing::is_plumbing;
use skinflint_symbols::{SymbolOptions, Symbols};
use skinflint_trace::{Exit, NodeId, Trace};
use skinflint_view::clean;
use skinflint_view::units::{bytes, compact, count, duration, percent};

use crate::state::{Moving, Sort, State};

/// The number of functions of a stack in its row.
const IN_ROW: usize = 6;
/// The number of frames of a stack that are looked at.
const DEPTH: usize = 200;

/// The user's choices: what the screen shows.
#[derive(Clone, Copy, Debug, Default)]
pub struct View {
    /// The figure that stacks are sorted by.
    pub sort: Sort,
    /// Whether the screen stands still; recording and reading go on.
    pub paused: bool,
    /// Whether keys are explained.
    pub help: bool,
    /// Whether to use colours.
    pub color: bool,
    /// Whether it is on a terminal, where keys are of use.
    pub keys: bool,
    /// Whether a trace without an end is being recorded; otherwise it was cut.
    pub growing: bool,
}

/// Names of stacks, looked up once.
pub struct Names {
    symbols: Symbols,
    modules: usize,
    options: SymbolOptions,
    /// The time for names in one picture, if it is bounded: a module's debug information may take many seconds.
    pub patience: Option<Duration>,
    begun: Instant,
    rows: FxHashMap<NodeId, String>,
}

impl Names {
    /// Creates a table without any name yet.
    pub fn new(options: SymbolOptions) -> Names {
        Names {
            symbols: Symbols::new(&[], options.clone()),
            modules: 0,
            options,
            patience: None,
            begun: Instant::now(),
            rows: FxHashMap::default(),
        }
    }

    /// Returns the functions of a stack, innermost first.
    fn row(&mut self, trace: &Trace, node: NodeId) -> &str {
        if trace.modules.len() + trace.codes.len() != self.modules {
            // A name is final only when the module is known.
            self.modules = trace.modules.len() + trace.codes.len();
            let symbols = Symbols::new(&trace.modules, self.options.clone());
            self.symbols = symbols.with_codes(&trace.codes);
            self.rows.clear();
        }
        let is_over = self
            .patience
            .is_some_and(|patience| self.begun.elapsed() >= patience);
        if is_over && !self.rows.contains_key(&node) {
            return "(its names are looked up next)";
        }
        let symbols = &mut self.symbols;
        self.rows.entry(node).or_insert_with(|| {
            let mut names: Vec<String> = Vec::new();
            let mut at = node;
            for _ in 0..DEPTH {
                let Some((parent, pc)) = trace.node(at).filter(|_| at.0 != 0) else {
                    break;
                };
                for frame in symbols.frames_shared(pc, at.0, true).iter() {
                    // A frame that only passes an allocation on is left out, unless there is nothing else.
                    let says =
                        !is_plumbing(&frame.function) && names.last() != Some(&frame.function);
                    if names.len() < IN_ROW && says {
                        names.push(frame.function.clone());
                    }
                }
                if names.len() >= IN_ROW {
                    break;
                }
                at = parent;
            }
            match names.is_empty() {
                true => "(no stack)".into(),
                false => clean(&names.join(" ← ")),
            }
        })
    }
}

/// Returns the first of these texts, the fullest first, that fits into so many columns; nothing if none does (C1).
fn fitting<'a>(texts: impl IntoIterator<Item = &'a String>, columns: u16) -> &'a str {
    let fits = |text: &&String| text.chars().count() <= usize::from(columns);
    texts.into_iter().find(fits).map_or("", String::as_str)
}

/// Draws everything.
pub fn draw(canvas: &mut Canvas<'_>, state: &State, trace: &Trace, names: &mut Names, view: &View) {
    names.begun = Instant::now();
    let [head, middle, table, foot] = Layout::vertical([
        Constraint::Length(2 + u16::from(!state.group.is_empty())),
        Constraint::Length(9),
        Constraint::Min(3),
        Constraint::Length(u16::from(view.keys)),
    ])
    .areas(canvas.area());
    header(canvas, head, state, trace, view);
    let [left, right] =
        Layout::horizontal([Constraint::Percentage(58), Constraint::Percentage(42)]).areas(middle);
    books(canvas, left, state, view);
    curve(canvas, right, state, view);
    stacks(canvas, table, state, trace, names, view);
    let keys = " q quit   s sort   p pause   h help";
    canvas.render_widget(Paragraph::new(keys).style(faint(view)), foot);
    if view.help {
        help(canvas, view);
    }
}

fn faint(view: &View) -> Style {
    match view.color {
        true => Style::default().fg(Color::DarkGray),
        false => Style::default(),
    }
}

fn strong(view: &View) -> Style {
    match view.keys {
        true => Style::default().add_modifier(Modifier::BOLD),
        false => Style::default(),
    }
}

fn header(canvas: &mut Canvas<'_>, area: Rect, state: &State, trace: &Trace, view: &View) {
    let doing = match (&trace.ending, view.paused) {
        (Some(ending), _) => match ending.exit {
            Exit::Exited(status) => format!("ended: exit {status}"),
            Exit::Signal(signal) => format!("ended: signal {signal}"),
            Exit::Exec => "became another program".into(),
            Exit::Detached => "detached: the program goes on".into(),
            Exit::Unknown => "recording ended".into(),
        },
        (None, _) if !view.growing => "cut: it has no end".into(),
        (None, true) => "recording, PAUSED on the screen".into(),
        (None, false) => "recording".into(),
    };
    let process = &trace.process;
    let counts = state.ledger().counts();
    let first = Line::from(vec![
        Span::styled(
            format!("{} {}", clean(&process.name), process.pid),
            strong(view),
        ),
        Span::raw(format!(
            " · {} · {doing} · {}",
            duration(state.now_ns()),
            clean(&process.allocator)
        )),
    ]);
    let rates = (
        compact(state.events_s() as u64),
        bytes(state.churn_bytes_s() as u64),
        duration(state.window_ns()),
    );
    let seconds = [
        format!(
            "{} events, {}/s · {} blocks acquired, {}/s · over the last {}",
            count(counts.events),
            rates.0,
            count(counts.allocations),
            rates.1,
            rates.2,
        ),
        format!(
            "{} events/s · {}/s acquired · last {}",
            rates.0, rates.1, rates.2
        ),
        format!("{} events/s", rates.0),
    ];
    let lines = vec![
        first,
        Line::raw(fitting(&seconds, area.width)),
        Line::raw(fitting(&state.group, area.width)),
    ];
    canvas.render_widget(Paragraph::new(lines), area);
}

fn books(canvas: &mut Canvas<'_>, area: Rect, state: &State, view: &View) {
    let title = match &state.books {
        Some((at, books)) => format!(
            " {} resident at {} ",
            bytes(books.resident_bytes),
            duration(*at)
        ),
        None => " resident memory: not read yet ".into(),
    };
    let block = Block::default().borders(Borders::TOP).title(title);
    let inner = block.inner(area);
    canvas.render_widget(block, area);
    let Some((_, books)) = &state.books else {
        return;
    };
    let mut rows: Vec<(&str, u64)> = books
        .rows
        .iter()
        .map(|row| (row.label.as_str(), row.bytes))
        .collect();
    rows.retain(|(_, bytes)| *bytes > 0);
    rows.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    let room = usize::from(inner.height);
    if rows.len() > room && room > 0 {
        let rest = rows.split_off(room - 1);
        rows.push(("others", rest.iter().map(|(_, bytes)| bytes).sum()));
    }
    let wide = usize::from(inner.width).saturating_sub(28 + 10 + 8).min(30);
    let lines = rows.iter().map(|(label, part)| {
        let filled = (*part as u128 * wide as u128 / books.resident_bytes.max(1) as u128) as usize;
        let bar = Span::styled("█".repeat(filled.min(wide)), bar_style(view));
        let text = format!(
            "{label:<28}{:>10} {:>6} ",
            bytes(*part),
            percent(*part, books.resident_bytes)
        );
        Line::from(vec![Span::raw(text), bar])
    });
    canvas.render_widget(Paragraph::new(lines.collect::<Vec<_>>()), inner);
}

fn bar_style(view: &View) -> Style {
    match view.color {
        true => Style::default().fg(Color::Cyan),
        false => Style::default(),
    }
}

fn curve(canvas: &mut Canvas<'_>, area: Rect, state: &State, view: &View) {
    let live = state.ledger().live();
    let most = state.ledger().heap_peak().live.usable_bytes;
    let now = bytes(live.usable_bytes);
    let titles = [
        format!(
            " live {now} in {} blocks, most {} ",
            compact(live.blocks),
            bytes(most)
        ),
        format!(" live {now}, most {} ", bytes(most)),
        format!(" live {now} "),
    ];
    let block = Block::default()
        .borders(Borders::TOP)
        .title(fitting(&titles, area.width));
    let data: Vec<u64> = state.curve.iter().map(|point| point.live_bytes).collect();
    let room = usize::from(area.width);
    let shown = across(&data[data.len().saturating_sub(room)..], room);
    let line = Sparkline::default()
        .block(block)
        .data(&shown)
        .style(bar_style(view));
    canvas.render_widget(line, area);
}

/// Spreads points over all columns.
fn across(points: &[u64], room: usize) -> Vec<u64> {
    let column = |column: usize| points[column * points.len() / room];
    match points.is_empty() {
        true => Vec::new(),
        false => (0..room).map(column).collect(),
    }
}

/// Formats a difference: `+1.50 MiB`, `-3 B`, `0 B`.
fn signed(value: i64) -> String {
    let sign = match value {
        0 => "",
        1.. => "+",
        _ => "-",
    };
    format!("{sign}{}", bytes(value.unsigned_abs()))
}

fn row(moving: &Moving, name: &str) -> String {
    format!(
        "{:>10} {:>11} {:>11} {:>9}  {name}",
        bytes(moving.now.live_bytes),
        signed(moving.growth_bytes),
        format!("{}/s", bytes(moving.churn_bytes_s as u64)),
        compact(moving.now.live_blocks),
    )
}

fn stacks(
    canvas: &mut Canvas<'_>,
    area: Rect,
    state: &State,
    trace: &Trace,
    names: &mut Names,
    view: &View,
) {
    let sorted = |sort: Sort, text: &str| match view.sort == sort {
        true => format!("{text}▼"),
        false => text.to_owned(),
    };
    let head = format!(
        "{:>10} {:>11} {:>11} {:>9}  stack, innermost first",
        sorted(Sort::Live, "live"),
        sorted(Sort::Growth, "growth"),
        sorted(Sort::Churn, "churn"),
        "blocks",
    );
    let mut lines = vec![Line::styled(head, strong(view))];
    let room = usize::from(area.height).saturating_sub(2);
    let top = state.top(view.sort, room);
    for moving in &top {
        lines.push(Line::raw(row(moving, names.row(trace, moving.node))));
    }
    // C3: the sum of what is not shown.
    let shown: u64 = top.iter().map(|moving| moving.now.live_bytes).sum();
    let shown_blocks: u64 = top.iter().map(|moving| moving.now.live_blocks).sum();
    let live = state.ledger().live();
    let rest = format!(
        "{:>10} {:>11} {:>11} {:>9}  {} other stacks",
        bytes(live.usable_bytes.saturating_sub(shown)),
        "",
        "",
        compact(live.blocks.saturating_sub(shown_blocks)),
        count((state.stack_count() - top.len()) as u64),
    );
    lines.push(Line::styled(rest, faint(view)));
    canvas.render_widget(Paragraph::new(lines), area);
}

fn help(canvas: &mut Canvas<'_>, view: &View) {
    let text = "\
q, Esc    quit; the recording goes on\n\
s         sort stacks by live bytes, growth, churn\n\
p, space  hold the screen still; reading goes on\n\
h, ?      this\n\
\n\
live: usable bytes of blocks not yet released. growth: live now less live at the start of the window. churn: \
bytes acquired per second of the window. The window is said at the top. Figures are two to three seconds old: \
the trace is written once a second.";
    let area = canvas.area();
    let (wide, high) = (area.width.min(64), area.height.min(14));
    let popup = Rect::new(
        (area.width - wide) / 2,
        (area.height - high) / 2,
        wide,
        high,
    );
    canvas.render_widget(Clear, popup);
    let block = Block::default()
        .borders(Borders::ALL)
        .title(" keys ")
        .style(strong(view));
    canvas.render_widget(
        Paragraph::new(text).wrap(Wrap { trim: false }).block(block),
        popup,
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_left_out_and_never_cut() {
        let texts = ["a longer · text", "shorter", "·"].map(str::to_owned);
        for (columns, shown) in [
            (15, "a longer · text"),
            (14, "shorter"),
            (7, "shorter"),
            (6, "·"),
            (0, ""),
        ] {
            assert_eq!(fitting(&texts, columns), shown, "{columns}");
        }
    }
}
