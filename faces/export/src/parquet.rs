//! Parquet: a table with one row for each stack, for DuckDB, pandas, Polars and others.
//!
//! ```text
//!   stack (outermost first, `;` between) · function · module · file · line · figures of the report's site
//! ```
//!
//! Q1  Sums over a column are the report's totals. Two rows may have the same text: stacks that differ only by
//!     address.
//! Q2  Columns are REQUIRED, except for file and line, and the resident bytes, which are null if they are not known.
//!     Unsigned figures are stored as INT64 and cut at its largest value.
//! Q3  The key-value metadata under `skinflint.*` describe what the table is of.
//!
//! The table is not compressed: it is small beside its trace, and every reader can read this. Not here: events.

use std::io::{self, Write};
use std::sync::Arc;

use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use skinflint_analysis::model::Site;
use skinflint_view::stack::telling;

use crate::folded;
use crate::source::{NO_STACK, Source, name};

/// A column of figures.
type Figure = (&'static str, fn(&Site) -> u64);

/// The figures; their names are those of the report.
const FIGURES: [Figure; 16] = [
    ("allocations", |site| site.allocations),
    ("requested_bytes", |site| site.requested_bytes),
    ("usable_bytes", |site| site.usable_bytes),
    ("temporaries", |site| site.temporaries),
    ("live_blocks", |site| site.live_blocks),
    ("live_requested_bytes", |site| site.live_requested_bytes),
    ("live_usable_bytes", |site| site.live_usable_bytes),
    ("heap_peak_blocks", |site| site.heap_peak_blocks),
    ("heap_peak_requested_bytes", |site| {
        site.heap_peak_requested_bytes
    }),
    ("heap_peak_usable_bytes", |site| site.heap_peak_usable_bytes),
    ("end_blocks", |site| site.end_blocks),
    ("end_requested_bytes", |site| site.end_requested_bytes),
    ("end_usable_bytes", |site| site.end_usable_bytes),
    ("first_ns", |site| site.first_ns),
    ("last_ns", |site| site.last_ns),
    ("node", |site| u64::from(site.node)),
];

/// The number of rows in one group: what a reader has to hold at once.
const GROUP_ROWS: usize = 1 << 16;

fn schema() -> String {
    let mut text = String::from(
        "message stacks { required binary stack (UTF8); required binary function (UTF8); \
         required binary module (UTF8); optional binary file (UTF8); optional int64 line; \
         optional int64 live_resident_bytes; ",
    );
    for (name, _) in FIGURES {
        text += &format!("required int64 {name}; ");
    }
    text + "}"
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn refused(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(cause) => match cause.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(cause) => io::Error::other(cause),
        },
        error => io::Error::other(error),
    }
}

/// Writes the table. Memory: that of the columns of one group, up to 65,536 stacks.
///
/// # Errors
/// Those of `out`.
pub fn write(source: Source<'_>, out: &mut (dyn Write + Send)) -> io::Result<()> {
    let pair = |key: &str, value: String| KeyValue::new(format!("skinflint.{key}"), value);
    let program = &source.report.program;
    let properties = WriterProperties::builder()
        .set_created_by(source.report.analysed_by.clone())
        .set_key_value_metadata(Some(vec![
            pair("headline", source.headline()),
            pair("program", program.name.clone()),
            pair("allocator", program.allocator.clone()),
            pair("notes", source.report.completeness.notes.join("\n")),
        ]))
        .build();
    let schema = parse_message_type(&schema()).map_err(refused)?;
    let mut file = SerializedFileWriter::new(&mut *out, Arc::new(schema), Arc::new(properties))
        .map_err(refused)?;
    for sites in source.report.sites.chunks(GROUP_ROWS) {
        let mut group = file.next_row_group().map_err(refused)?;
        columns(source, sites, &mut group).map_err(refused)?;
        group.close().map_err(refused)?;
    }
    file.close().map_err(refused)?;
    out.flush()
}

/// Writes the columns, in the order of the schema.
fn columns<W: Write + Send>(
    source: Source<'_>,
    sites: &[Site],
    group: &mut SerializedRowGroupWriter<'_, W>,
) -> Result<(), ParquetError> {
    let top = |site: &Site| telling(source.report, site.node).first().copied();
    texts(
        group,
        sites
            .iter()
            .map(|site| Some(folded::line(source, site.node))),
        false,
    )?;
    let function = |site| Some(top(site).map_or(NO_STACK, |frame| name(frame)).to_owned());
    texts(group, sites.iter().map(function), false)?;
    let module = |site| Some(top(site).map_or(String::new(), |frame| frame.module.clone()));
    texts(group, sites.iter().map(module), false)?;
    texts(
        group,
        sites
            .iter()
            .map(|site| top(site).and_then(|frame| frame.file.clone())),
        true,
    )?;
    let line = |site| top(site).and_then(|frame| frame.line.map(i64::from));
    numbers(group, sites.iter().map(line), true)?;
    numbers(
        group,
        sites
            .iter()
            .map(|site| site.live_resident_bytes.map(signed)),
        true,
    )?;
    for (_, figure) in FIGURES {
        numbers(
            group,
            sites.iter().map(|site| Some(signed(figure(site)))),
            false,
        )?;
    }
    Ok(())
}

fn texts<W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    values: impl Iterator<Item = Option<String>>,
    optional: bool,
) -> Result<(), ParquetError> {
    let values: Vec<Option<ByteArray>> = values
        .map(|text| text.map(|text| text.as_str().into()))
        .collect();
    let levels: Vec<i16> = values
        .iter()
        .map(|value| i16::from(value.is_some()))
        .collect();
    let there: Vec<ByteArray> = values.into_iter().flatten().collect();
    if let Some(mut column) = group.next_column()? {
        let levels = optional.then_some(levels.as_slice());
        column
            .typed::<ByteArrayType>()
            .write_batch(&there, levels, None)?;
        column.close()?;
    }
    Ok(())
}

fn numbers<W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    values: impl Iterator<Item = Option<i64>>,
    optional: bool,
) -> Result<(), ParquetError> {
    let values: Vec<Option<i64>> = values.collect();
    let levels: Vec<i16> = values
        .iter()
        .map(|value| i16::from(value.is_some()))
        .collect();
    let there: Vec<i64> = values.into_iter().flatten().collect();
    if let Some(mut column) = group.next_column()? {
        let levels = optional.then_some(levels.as_slice());
        column
            .typed::<Int64Type>()
            .write_batch(&there, levels, None)?;
        column.close()?;
    }
    Ok(())
}
