//! The fleet's page: books, the stacks that hold most, releases compared, what pins, what the advice would save.
//!
//! ```text
//!   Wanted { day, service, from, to } ─► questions/ ─► sections: tables and bars, as one HTML text
//! ```
//!
//! P1  The page makes no request and runs nothing; all text is escaped (html.rs).
//! P2  Its figures are those of the commands: the same questions, the same scope.
//! P3  A section whose question has no answer says why; the others stand.
//!
//! Not here: who may see it (serve.rs).

use std::fmt::Write as _;

use anyhow::Result;

use crate::engine::Engine;
use crate::html::{Column, bars, decode, encode, escape, table};
use crate::questions::regressions::{self, FEWEST, Regression};
use crate::questions::top::By;
use crate::questions::{Period, Scope, books, lists, pinned, top, whatif};
use crate::show::{bytes, share};

/// What a browser may do with the page: nothing but show it.
pub const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; \
                          form-action 'none'";
/// The style of all our pages, and what this one has besides.
const STYLE: &str = concat!(
    include_str!("../../../evidence/view/src/page/page.css"),
    "nav p { max-width: 1240px; margin: 0 auto; padding: 4px 20px; } nav p a { display: inline; padding: 0 6px; } \
     nav p b { padding: 0 6px; }\n\
     .bars { width: 100%; height: 70px; display: block; margin: 8px 0; } .bars rect { fill: var(--c0); } \
     .bars rect:hover { opacity: .6; }\n"
);
/// Rows of a table.
const ROWS: usize = 15;
/// Days, services and builds to choose from.
const CHOICES: usize = 30;
/// The most bars.
const BARS: usize = 96;

/// What a browser asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The token that it gives.
    pub token: String,
    /// A day, FIRST..LAST, or `all`; else the last day.
    pub day: Option<String>,
    /// A service; else all.
    pub service: Option<String>,
    /// The older build; else the one before the newest.
    pub from: Option<String>,
    /// The newer build; else the newest.
    pub to: Option<String>,
}

impl Wanted {
    /// Reads the query of an address.
    pub fn read(query: &str) -> Wanted {
        let mut wanted = Wanted::default();
        for (name, value) in query.split('&').filter_map(|part| part.split_once('=')) {
            let value = decode(value);
            let some = Some(value.clone()).filter(|value| !value.is_empty());
            match name {
                "token" => wanted.token = value,
                "day" => wanted.day = some,
                "service" => wanted.service = some,
                "from" => wanted.from = some,
                "to" => wanted.to = some,
                _ => {}
            }
        }
        wanted
    }

    fn address(&self) -> String {
        let mut address = format!("/?token={}", encode(&self.token));
        let values = [
            ("day", &self.day),
            ("service", &self.service),
            ("from", &self.from),
            ("to", &self.to),
        ];
        for (name, value) in values {
            if let Some(value) = value {
                let _ = write!(address, "&{name}={}", encode(value));
            }
        }
        address
    }

    /// Writes a choice: a link to the page with it, or the word alone if it is the one that is shown.
    fn choice(&self, out: &mut String, word: &str, is_shown: bool, change: impl Fn(&mut Wanted)) {
        if is_shown {
            let _ = write!(out, "<b>{}</b>", escape(word));
            return;
        }
        let mut other = self.clone();
        change(&mut other);
        let _ = write!(
            out,
            "<a href=\"{}\">{}</a>",
            escape(&other.address()),
            escape(word)
        );
    }
}

/// Renders the page.
///
/// # Errors
/// If there is nothing to be shown, and those of the engine.
pub fn render(engine: &dyn Engine, wanted: &Wanted) -> Result<String> {
    let scope = Scope::new(engine, wanted.day.as_deref(), wanted.service.as_deref())?;
    let period = Period::of(engine, &scope)?;
    let mut out = String::new();
    begin(&mut out, &scope, &period);
    choices(&mut out, engine, wanted, &scope)?;
    out.push_str("<main>\n");
    type Write = fn(&mut String, &Shown<'_>) -> Result<()>;
    let sections: [(&str, Write); 6] = [
        ("What resident memory is", write_books),
        ("Services", write_services),
        ("Stacks that hold most", write_top),
        ("Releases compared", write_releases),
        ("Stacks that keep free memory resident", write_pinned),
        ("What the advice would give back", write_whatif),
    ];
    let shown = Shown {
        engine,
        wanted,
        scope: &scope,
        period: &period,
    };
    for (title, write) in sections {
        let _ = writeln!(out, "<section><div class=\"head\"><h2>{title}</h2></div>");
        let mut inner = String::new();
        match write(&mut inner, &shown) {
            Ok(()) => out.push_str(&inner),
            Err(error) => {
                let error = escape(&format!("{error:#}"));
                let _ = writeln!(out, "<p class=\"empty\">{error}</p>");
            }
        }
        out.push_str("</section>\n");
    }
    out.push_str("</main>\n</body>\n</html>\n");
    Ok(out)
}

/// What the sections are of.
struct Shown<'a> {
    engine: &'a dyn Engine,
    wanted: &'a Wanted,
    scope: &'a Scope,
    period: &'a Period,
}

fn begin(out: &mut String, scope: &Scope, period: &Period) {
    let title = match &scope.service {
        Some(service) => format!("{service}, {}", scope.words()),
        None => format!("Fleet, {}", scope.words()),
    };
    let _ = writeln!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta \
         http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; \
         form-action 'none'\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta \
         name=\"color-scheme\" content=\"light dark\">\n<title>{0} · skinflint</title>\n<style>\n{STYLE}</style>\n\
         </head>\n<body>\n<header>\n<h1>{0}</h1>\n<dl class=\"facts\">",
        escape(&title)
    );
    for (name, value) in [
        ("processes", period.processes.to_string()),
        ("machines", period.hosts.to_string()),
        ("minutes", period.minutes.to_string()),
        (
            "resident, on average",
            bytes(period.mean(period.resident_byte_min)),
        ),
        (
            "in use, on average",
            bytes(period.mean(period.live_byte_min)),
        ),
    ] {
        let _ = write!(out, "<div><dt>{name}</dt><dd>{value}</dd></div>");
    }
    out.push_str("</dl>\n</header>\n");
}

fn choices(out: &mut String, engine: &dyn Engine, wanted: &Wanted, scope: &Scope) -> Result<()> {
    out.push_str("<nav aria-label=\"Day and service\">\n<p>Day");
    let days = scope.words();
    for day in lists::days(engine, CHOICES)? {
        let is_shown = day == days;
        wanted.choice(out, &day, is_shown, |other| other.day = Some(day.clone()));
    }
    let is_all = scope.days.is_none();
    wanted.choice(out, "all days", is_all, |other| {
        other.day = Some("all".to_owned())
    });
    out.push_str("</p>\n<p>Service");
    wanted.choice(out, "all", scope.service.is_none(), |other| {
        other.service = None
    });
    for service in lists::services(engine, scope, CHOICES)? {
        let is_shown = scope.service.as_ref() == Some(&service);
        let change = |other: &mut Wanted| other.service = Some(service.clone());
        wanted.choice(out, &service, is_shown, change);
    }
    out.push_str("</p>\n</nav>\n");
    Ok(())
}

fn write_books(out: &mut String, shown: &Shown<'_>) -> Result<()> {
    let Shown { scope, period, .. } = shown;
    let (minutes, over_time) = books::over_time(shown.engine, scope, BARS)?;
    let bar = |bar: &books::Bar| {
        let held = bar.byte_min as f64 / minutes as f64;
        (
            held,
            format!("{}: {}", clock_words(bar.t, minutes), bytes(held)),
        )
    };
    let of_bars: Vec<(f64, String)> = over_time.iter().map(bar).collect();
    let each = if minutes == 60 { "hour" } else { "day" };
    bars(
        out,
        &format!("resident memory, a bar each {each}"),
        &of_bars,
    );
    let parts = books::ask(shown.engine, scope)?;
    let all: i64 = parts.iter().map(|part| part.byte_min).sum();
    out.push_str("<div class=\"stack-bar\" aria-hidden=\"true\">");
    for (at, part) in parts.iter().enumerate() {
        let width = part.byte_min as f64 * 100.0 / all.max(1) as f64;
        let _ = write!(
            out,
            "<span style=\"width:{width:.2}%;background:var(--c{})\"></span>",
            at % 13
        );
    }
    out.push_str("</div>\n");
    let row = |name: &str, byte_min: i64| {
        let held = bytes(period.mean(byte_min));
        vec![held, share(byte_min as f64, all as f64), name.to_owned()]
    };
    let mut rows: Vec<Vec<String>> = parts
        .iter()
        .map(|part| row(&part.name, part.byte_min))
        .collect();
    rows.push(row("all of it", all));
    let columns: [Column; 3] = [("on average", true), ("share", true), ("part", false)];
    table(out, &columns, &rows);
    Ok(())
}

fn clock_words(t: i64, minutes: i64) -> String {
    let day = skinflint_fleet_tables::clock::day(t);
    match minutes {
        60 => format!("{day} {:02}:00", t.rem_euclid(86_400) / 3_600),
        _ => day,
    }
}

/// Columns that rows of [`top`] have.
const TOP: [Column; 8] = [
    ("in use", true),
    ("±", true),
    ("share", true),
    ("slop", true),
    ("pinned", true),
    ("processes", true),
    ("service", false),
    ("", false),
];

fn write_top_by(out: &mut String, shown: &Shown<'_>, by: By, name: &'static str) -> Result<()> {
    let Shown { scope, period, .. } = shown;
    let rows = top::ask(shown.engine, &top::sql(scope, by, ROWS, None), by)?;
    let cells = |row: &top::Top| {
        vec![
            bytes(period.mean(row.live_byte_min)),
            bytes(period.half(row.live_var_min)),
            share(row.live_byte_min as f64, period.live_byte_min as f64),
            bytes(period.mean(row.slop_byte_min)),
            bytes(period.mean(row.pinned_byte_min)),
            row.processes.to_string(),
            row.service.clone(),
            row.name.clone(),
        ]
    };
    let rows: Vec<Vec<String>> = rows.iter().map(cells).collect();
    let mut columns = TOP;
    columns[7].0 = name;
    // Of a service and of a machine, the name says all.
    let width = if by == By::Service { 7 } else { 8 };
    table(out, &columns[..width], &rows);
    Ok(())
}

fn write_services(out: &mut String, shown: &Shown<'_>) -> Result<()> {
    write_top_by(out, shown, By::Service, "service")
}

fn write_top(out: &mut String, shown: &Shown<'_>) -> Result<()> {
    write_top_by(out, shown, By::Stack, "stack")
}

fn write_releases(out: &mut String, shown: &Shown<'_>) -> Result<()> {
    let wanted = shown.wanted;
    let builds = lists::builds(shown.engine, shown.scope.service.as_deref(), CHOICES)?;
    let to = wanted.to.clone().or_else(|| builds.first().cloned());
    let older = builds
        .iter()
        .skip_while(|build| Some(*build) != to.as_ref())
        .nth(1);
    let from = wanted.from.clone().or_else(|| older.cloned());
    let (Some(from), Some(to)) = (from, to) else {
        out.push_str("<p class=\"empty\">There is one build: nothing to compare.</p>\n");
        return Ok(());
    };
    for (word, own) in [("Of", &from), ("to", &to)] {
        let _ = write!(out, "<p class=\"small\">{word}");
        for build in &builds {
            out.push(' ');
            let change = |other: &mut Wanted| match word {
                "Of" => other.from = Some(build.clone()),
                _ => other.to = Some(build.clone()),
            };
            wanted.choice(out, build, build == own, change);
        }
        out.push_str("</p>\n");
    }
    let found = regressions::ask(shown.engine, shown.scope, &from, &to, ROWS)?;
    let _ = writeln!(
        out,
        "<p class=\"soft\">A process under {} against one under {}: what grew for certain, of {} comparisons.</p>",
        escape(&to),
        escape(&from),
        found.comparisons
    );
    if !found.left_out.is_empty() {
        let _ = writeln!(
            out,
            "<p class=\"warn\">Not compared, with fewer than {FEWEST} processes of a build: {}.</p>",
            escape(&found.left_out.join(", "))
        );
    }
    if found.rows.is_empty() {
        out.push_str("<p class=\"empty\">Nothing grew.</p>\n");
        return Ok(());
    }
    let rows: Vec<Vec<String>> = found.rows.iter().map(Regression::cells).collect();
    table(out, &regressions::COLUMNS, &rows);
    Ok(())
}

fn write_pinned(out: &mut String, shown: &Shown<'_>) -> Result<()> {
    let period = shown.period;
    let rows = pinned::ask(shown.engine, &pinned::sql(shown.scope, ROWS))?;
    if rows.is_empty() {
        out.push_str("<p class=\"empty\">None.</p>\n");
        return Ok(());
    }
    let cells = |row: &pinned::Pinned| {
        vec![
            bytes(period.mean(row.pinned_byte_min)),
            bytes(period.mean(row.live_byte_min)),
            row.processes.to_string(),
            row.hosts.to_string(),
            row.service.clone(),
            row.name.clone(),
        ]
    };
    let rows: Vec<Vec<String>> = rows.iter().map(cells).collect();
    let columns: [Column; 6] = [
        ("pinned", true),
        ("in use", true),
        ("processes", true),
        ("machines", true),
        ("service", false),
        ("stack", false),
    ];
    table(out, &columns, &rows);
    Ok(())
}

fn write_whatif(out: &mut String, shown: &Shown<'_>) -> Result<()> {
    let period = shown.period;
    let rows = whatif::ask(shown.engine, &whatif::sql(shown.scope, ROWS))?;
    if rows.is_empty() {
        out.push_str("<p class=\"empty\">No finding promises anything.</p>\n");
        return Ok(());
    }
    let cells = |row: &whatif::Change| {
        vec![
            bytes(period.mean(row.saved_byte_min)),
            share(row.saved_byte_min as f64, period.resident_byte_min as f64),
            row.processes.to_string(),
            row.kind.clone(),
            row.service.clone(),
            row.name.clone(),
            row.change.clone(),
        ]
    };
    let rows: Vec<Vec<String>> = rows.iter().map(cells).collect();
    let columns: [Column; 7] = [
        ("saves", true),
        ("of resident", true),
        ("processes", true),
        ("kind", false),
        ("service", false),
        ("stack", false),
        ("change", false),
    ];
    table(out, &columns, &rows);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_it_was_written() {
        let wanted = Wanted {
            token: "12ab".into(),
            day: Some("2026-01-01..2026-01-02".into()),
            service: Some("a&b <c>".into()),
            from: None,
            to: Some("42".into()),
        };
        let address = wanted.address();
        let (path, query) = address.split_once('?').unwrap();
        assert_eq!((path, Wanted::read(query)), ("/", wanted));
        assert_eq!(Wanted::read("day=&service=&x=1&token"), Wanted::default());
    }
}
