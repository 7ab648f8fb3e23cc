//! Rows that an engine answers with, whatever the engine.
//!
//! ```text
//!   Answer { columns: ["stack", "bytes"], rows: [[Int(-5), Int(900)], …] }
//! ```
//!
//! A1  A whole number is an `Int` whatever its width; one beyond i64 is a `Real`.
//!
//! Not here: Arrow (session.rs).

use std::fmt;

use anyhow::{Context, Result};
use serde_json::Value as Json;

/// One value.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    /// None.
    Null,
    /// A whole number.
    Int(i64),
    /// Another number.
    Real(f64),
    /// A text, or a value of another type as text.
    Text(String),
}

/// Rows with the names of their columns.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Answer {
    /// The names.
    pub columns: Vec<String>,
    /// The rows; each has a value for each column.
    pub rows: Vec<Vec<Value>>,
}

/// A row with its names.
#[derive(Clone, Copy)]
pub struct Row<'a> {
    columns: &'a [String],
    values: &'a [Value],
}

impl Answer {
    /// Returns the rows.
    pub fn each(&self) -> impl Iterator<Item = Row<'_>> {
        let columns = &self.columns;
        self.rows.iter().map(move |values| Row { columns, values })
    }

    /// Returns the only row.
    ///
    /// # Errors
    /// If there is none.
    pub fn one(&self) -> Result<Row<'_>> {
        self.each()
            .next()
            .context("the engine answered with no row")
    }
}

impl<'a> Row<'a> {
    fn value(self, name: &str) -> Result<&'a Value> {
        let at = self.columns.iter().position(|column| column == name);
        at.and_then(|at| self.values.get(at))
            .with_context(|| format!("the engine's answer has no column `{name}`"))
    }

    /// Returns a whole number; 0 where there is none (a sum over no rows).
    ///
    /// # Errors
    /// If there is no such column, or it has another type.
    pub fn int(self, name: &str) -> Result<i64> {
        match self.value(name)? {
            Value::Int(value) => Ok(*value),
            Value::Null => Ok(0),
            other => anyhow::bail!("column `{name}` is {other}, not a whole number"),
        }
    }

    /// Returns a number; 0 where there is none.
    ///
    /// # Errors
    /// As [`Row::int`].
    pub fn real(self, name: &str) -> Result<f64> {
        match self.value(name)? {
            Value::Real(value) => Ok(*value),
            _ => Ok(self.int(name)? as f64),
        }
    }

    /// Returns a text.
    ///
    /// # Errors
    /// As [`Row::int`].
    pub fn text(self, name: &str) -> Result<String> {
        Ok(self.value(name)?.to_string())
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Null => Ok(()),
            Value::Int(value) => value.fmt(f),
            Value::Real(value) => value.fmt(f),
            Value::Text(value) => f.write_str(value),
        }
    }
}

impl From<&Value> for Json {
    fn from(value: &Value) -> Json {
        match value {
            Value::Null => Json::Null,
            Value::Int(value) => (*value).into(),
            Value::Real(value) => (*value).into(),
            Value::Text(value) => value.as_str().into(),
        }
    }
}
