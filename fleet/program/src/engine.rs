//! Who answers SQL over the tables: DataFusion in this process, or whatever else takes the same statements.
//!
//! ```text
//!   Root ─► CREATE EXTERNAL TABLE … for each table ─► Engine ─► answer(sql) ─► Answer
//! ```
//!
//! E1  Questions know an engine by [`Engine`] alone: SQL in, rows out. An engine on other machines is another
//!     implementation, and gets the tables by the same statements ([`statements`]).
//! E2  SQL that is asked may only read: no statement makes, fills or drops anything.
//! E3  Memory is bounded: what does not fit is spilled to disk, or the question fails with a line that says so.
//!
//! Not here: what is asked (questions/).

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Float64Type, Int64Type, UInt64Type};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{SQLOptions, SessionConfig, SessionContext};
use skinflint_fleet_tables::files::Root;
use skinflint_fleet_tables::rows::tables;
use tokio::runtime::Runtime;

use crate::rows::{Answer, Value};

/// What answers SQL over the tables (E1).
pub trait Engine {
    /// Answers one statement.
    ///
    /// # Errors
    /// If it is no SQL, names what is not there, or does more than read (E2).
    fn answer(&self, sql: &str) -> Result<Answer>;
}

/// DataFusion, in this process.
pub struct Embedded {
    runtime: Runtime,
    context: SessionContext,
}

/// Opens the engine that a user names: none for the embedded one.
///
/// # Errors
/// If there is no such engine, or a table cannot be made known to it.
pub fn open(root: &Root, named: Option<&str>, memory: usize) -> Result<Box<dyn Engine>> {
    match named {
        None | Some("embedded") => Ok(Box::new(Embedded::open(root, memory)?)),
        Some(other) => bail!("`{other}`: no such engine in this build; it has `embedded`"),
    }
}

/// Returns the statements that make the tables known to an engine of DataFusion's dialect.
pub fn statements(root: &Root) -> Result<Vec<String>> {
    let of_table = |table: skinflint_fleet_tables::schema::Table| {
        let folder = root.table(table.name);
        std::fs::create_dir_all(&folder)?;
        let folder = folder
            .canonicalize()
            .with_context(|| folder.display().to_string())?;
        let own = table
            .columns
            .iter()
            .map(|column| format!("{} {} NOT NULL", column.name, column.sql));
        let of_folders = table
            .folders()
            .iter()
            .map(|name| format!("{name} VARCHAR NOT NULL"));
        let columns: Vec<String> = own.chain(of_folders).collect();
        let split = match table.folders() {
            [] => String::new(),
            names => format!(" PARTITIONED BY ({})", names.join(", ")),
        };
        Ok(format!(
            "CREATE EXTERNAL TABLE {} ({}) STORED AS PARQUET{split} LOCATION '{}/'",
            table.name,
            columns.join(", "),
            folder.display().to_string().replace('\'', "''")
        ))
    };
    tables().into_iter().map(of_table).collect()
}

impl Embedded {
    /// Opens the tables. `memory`: bytes that a question may hold (E3).
    ///
    /// # Errors
    /// If a table cannot be made known.
    pub fn open(root: &Root, memory: usize) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().build()?;
        let environment = RuntimeEnvBuilder::new()
            .with_memory_limit(memory, 1.0)
            .build_arc()?;
        let config = SessionConfig::new().with_information_schema(true);
        let context = SessionContext::new_with_config_rt(config, environment);
        for statement in statements(root)? {
            let made = async { context.sql(&statement).await?.collect().await };
            runtime.block_on(made).with_context(|| statement.clone())?;
        }
        Ok(Embedded { runtime, context })
    }
}

impl Engine for Embedded {
    fn answer(&self, sql: &str) -> Result<Answer> {
        let reads = SQLOptions::new()
            .with_allow_ddl(false)
            .with_allow_dml(false)
            .with_allow_statements(false);
        let (columns, batches) = self.runtime.block_on(async {
            let frame = self.context.sql_with_options(sql, reads).await?;
            let columns = frame
                .schema()
                .fields()
                .iter()
                .map(|field| field.name().clone());
            let columns: Vec<String> = columns.collect();
            anyhow::Ok((columns, frame.collect().await?))
        })?;
        answer(columns, &batches)
    }
}

/// Takes rows out of Arrow's columns.
///
/// # Errors
/// If a column has a type that cannot be shown.
pub fn answer(columns: Vec<String>, batches: &[RecordBatch]) -> Result<Answer> {
    let mut rows = Vec::new();
    for batch in batches {
        let values: Vec<Vec<Value>> = batch.columns().iter().map(values).collect::<Result<_>>()?;
        rows.extend(
            (0..batch.num_rows())
                .map(|row| values.iter().map(|column| column[row].clone()).collect()),
        );
    }
    Ok(Answer { columns, rows })
}

fn values(column: &ArrayRef) -> Result<Vec<Value>> {
    let kind = column.data_type();
    if kind.is_integer() && *kind != DataType::UInt64 {
        let column = cast(column, &DataType::Int64)?;
        let column = column.as_primitive::<Int64Type>();
        return Ok(column
            .iter()
            .map(|value| value.map_or(Value::Null, Value::Int))
            .collect());
    }
    if *kind == DataType::UInt64 {
        let number =
            |value: u64| i64::try_from(value).map_or(Value::Real(value as f64), Value::Int);
        let column = column.as_primitive::<UInt64Type>();
        return Ok(column
            .iter()
            .map(|value| value.map_or(Value::Null, number))
            .collect());
    }
    if kind.is_floating() {
        let column = cast(column, &DataType::Float64)?;
        let column = column.as_primitive::<Float64Type>();
        return Ok(column
            .iter()
            .map(|value| value.map_or(Value::Null, Value::Real))
            .collect());
    }
    let options = FormatOptions::default();
    let shown = ArrayFormatter::try_new(Arc::as_ref(column), &options)?;
    let text = |row: usize| match column.is_null(row) {
        true => Value::Null,
        false => Value::Text(shown.value(row).to_string()),
    };
    Ok((0..column.len()).map(text).collect())
}
