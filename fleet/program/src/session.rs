//! A session of DataFusion: the tables by their statements, plans, rows out of Arrow's columns.
//!
//! ```text
//!   Root ─► CREATE EXTERNAL TABLE … for each table ─► session ─► plan ─► rows
//! ```
//!
//! N1  Every engine gets the tables by the same statements ([`statements`]), and takes SQL that only reads.
//!
//! Not here: where a plan is carried out (embedded.rs, ballista.rs).

use std::sync::Arc;

use anyhow::{Context, Result};
use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Float64Type, Int64Type, UInt64Type};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::prelude::{DataFrame, SQLOptions, SessionContext};
use skinflint_fleet_tables::files::Root;
use skinflint_fleet_tables::rows::tables;
use tokio::runtime::Runtime;

use crate::rows::{Answer, Value};

/// A session, and the threads that it runs on.
pub struct Session {
    runtime: Runtime,
    context: SessionContext,
}

impl Session {
    /// Makes the tables known (N1).
    ///
    /// # Errors
    /// If one cannot be made known.
    pub fn open(runtime: Runtime, context: SessionContext, root: &Root) -> Result<Session> {
        for statement in statements(root)? {
            let made = async { context.sql(&statement).await?.collect().await };
            runtime.block_on(made).with_context(|| statement.clone())?;
        }
        Ok(Session { runtime, context })
    }

    /// Plans a statement that only reads.
    ///
    /// # Errors
    /// If it is no SQL, names what is not there, or does more than read.
    pub fn plan(&self, sql: &str) -> Result<DataFrame> {
        let reads = SQLOptions::new()
            .with_allow_ddl(false)
            .with_allow_dml(false)
            .with_allow_statements(false);
        let planned = self.context.sql_with_options(sql, reads);
        Ok(self.runtime.block_on(planned)?)
    }

    /// Carries a plan out.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn collect(&self, frame: DataFrame) -> Result<Answer> {
        let fields = frame.schema().fields().iter();
        let columns: Vec<String> = fields.map(|field| field.name().clone()).collect();
        let batches = self.runtime.block_on(frame.collect())?;
        answer(columns, &batches)
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
