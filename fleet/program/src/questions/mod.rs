//! The questions: each is its SQL, and what is made of the rows.
//!
//! ```text
//!   top ─ which stacks (services, functions …) hold most     regressions ─ what a build changed
//!   pinned ─ which stacks keep free memory resident          filtered ─ what is true of some rows, as a flame graph
//!   whatif ─ what the findings would give back, if followed everywhere     books ─ what resident memory is
//!   lists ─ which days, services and builds there are
//! ```
//!
//! Q1  A figure of bytes is a mean over the minutes of the period: byte-minutes by minutes. So it is the same before and
//!     after rows are merged, and figures of parts add up to that of the whole.
//! Q2  Rows are in one order whatever the engine: by their figure, then by their names.
//! Q3  What is asked of whole days is asked of `profile_days`, whose sums are those of `profiles`: a row of a stack and
//!     process a day, not of each change of it. Only a condition on a column that these do not have reads `profiles`.
//!
//! Not here: words and tables of text (args.rs, show.rs).

pub mod books;
pub mod filtered;
pub mod lists;
pub mod pinned;
pub mod regressions;
pub mod top;
pub mod whatif;

use anyhow::{Result, bail};
use skinflint_fleet_tables::clock;

use crate::engine::Engine;

/// Which rows a question is about.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    /// First and last day; all of them if there are none.
    pub days: Option<(String, String)>,
    /// The service; all of them if there is none.
    pub service: Option<String>,
}

impl Scope {
    /// Reads a day, `FIRST..LAST`, or `all`; without any, takes the last day that there is.
    ///
    /// # Errors
    /// If a day is none, or there are no rows.
    pub fn new(engine: &dyn Engine, day: Option<&str>, service: Option<&str>) -> Result<Scope> {
        let days = match day {
            Some("all") => None,
            Some(days) => {
                let (first, last) = days.split_once("..").unwrap_or((days, days));
                clock::start_of(first)?;
                clock::start_of(last)?;
                Some((first.to_owned(), last.to_owned()))
            }
            None => {
                let last = engine
                    .answer("SELECT max(day) AS day FROM processes")?
                    .one()?
                    .text("day")?;
                if last.is_empty() {
                    bail!("the tables are empty: `fleet ingest` and `fleet generate` fill them");
                }
                Some((last.clone(), last))
            }
        };
        Ok(Scope {
            days,
            service: service.map(str::to_owned),
        })
    }

    /// Returns the condition in SQL.
    pub fn sql(&self) -> String {
        let days = self.days.as_ref().map(|(first, last)| match first == last {
            true => format!("day = {}", quoted(first)),
            false => format!("day >= {} AND day <= {}", quoted(first), quoted(last)),
        });
        let service = self
            .service
            .as_ref()
            .map(|service| format!("service = {}", quoted(service)));
        let all: Vec<String> = days.into_iter().chain(service).collect();
        match all.is_empty() {
            true => "1 = 1".to_owned(),
            false => all.join(" AND "),
        }
    }

    /// Returns the days in words.
    pub fn words(&self) -> String {
        match &self.days {
            None => "all days".to_owned(),
            Some((first, last)) if first == last => first.clone(),
            Some((first, last)) => format!("{first} to {last}"),
        }
    }
}

/// Writes a text as SQL has it.
pub fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// What a scope has as a whole: what shares and means are of.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Period {
    /// Minutes from the first to the last.
    pub minutes: i64,
    /// Resident bytes of all processes, summed over the minutes.
    pub resident_byte_min: i64,
    /// Bytes in use of all stacks, summed over the minutes.
    pub live_byte_min: i64,
    /// Processes.
    pub processes: i64,
    /// Machines.
    pub hosts: i64,
}

impl Period {
    /// Asks for the period of a scope.
    ///
    /// # Errors
    /// If there are no rows, and those of the engine.
    pub fn of(engine: &dyn Engine, scope: &Scope) -> Result<Period> {
        let answer = engine.answer(&Period::sql(scope))?;
        let row = answer.one()?;
        let live = engine.answer(&Period::live_sql(scope))?;
        let period = Period {
            minutes: (row.int("until")? - row.int("begin")?) / 60,
            resident_byte_min: row.int("resident")?,
            live_byte_min: live.one()?.int("live")?,
            processes: row.int("processes")?,
            hosts: row.int("hosts")?,
        };
        if period.minutes == 0 {
            let of = scope
                .service
                .as_ref()
                .map_or(String::new(), |service| format!(" of `{service}`"));
            bail!("no rows{of} on {}", scope.words());
        }
        Ok(period)
    }

    /// Returns the SQL of a period.
    pub fn sql(scope: &Scope) -> String {
        format!(
            "SELECT min(t) AS begin, max(t + minutes * 60) AS until, sum(resident_byte_min) AS resident, \
             count(DISTINCT process) AS processes, count(DISTINCT host) AS hosts FROM processes WHERE {}",
            scope.sql()
        )
    }

    /// Returns the SQL of what is in use in a period.
    pub fn live_sql(scope: &Scope) -> String {
        format!(
            "SELECT sum(live_byte_min) AS live FROM profile_days WHERE {}",
            scope.sql()
        )
    }

    /// Returns the mean over the minutes of the period (Q1).
    pub fn mean(&self, byte_min: i64) -> f64 {
        byte_min as f64 / self.minutes as f64
    }

    /// Returns half of an interval of 95 % of a mean, from a variance summed over minutes (KiB²): samples live long, so
    /// minutes are taken as one draw, which is the widest that it can be.
    pub fn half(&self, var_min: i64) -> f64 {
        crate::certainty::NORMAL * 1024.0 * (var_min as f64 / self.minutes as f64).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_is_a_condition_and_quotes_stay_inside() {
        let scope = |days: Option<(&str, &str)>, service: Option<&str>| Scope {
            days: days.map(|(first, last)| (first.to_owned(), last.to_owned())),
            service: service.map(str::to_owned),
        };
        assert_eq!(scope(None, None).sql(), "1 = 1");
        assert_eq!(
            scope(Some(("a", "a")), Some("x' OR '1")).sql(),
            "day = 'a' AND service = 'x'' OR ''1'"
        );
        assert_eq!(
            scope(Some(("a", "b")), None).sql(),
            "day >= 'a' AND day <= 'b'"
        );
    }
}
