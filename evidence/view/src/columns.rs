//! The long tables of a report for the page: columns of numbers, deflated, as text.
//!
//! ```text
//!   sites, sizes, nodes, windows ──► columns ──► deflate (raw) ──► base64 ──► <script id="report-columns">
//!
//!   column:  name length · name · kind · count · bytes · numbers        up to the end of the stream
//!            kind 0: as they are    kind 1: differences from the one before, zigzag    kind 2: zigzag
//!            of `sites`, `mappers`, `sizes` and `cells`: 0 is null, else the value + 1
//!   number:  7 bits a byte, lowest first, top bit = more follows
//! ```
//!
//! C1  A table's columns are named `table.field` after the JSON of its rows: a field that is added to
//!     the model reaches the page without a change here.
//! C2  Each column takes the shorter of kinds 0 and 1; reading is the same for both.
//! C3  Fields of these tables are integers or null. A field of another kind is an error, which the
//!     tests of the view find.
//!
//! Why: as JSON, sites and nodes were nearly all of the 37 MB page of a compiler run with 68,000 stacks;
//! as columns that page, windows included, has 3 MB (`skinflint report --html`, 2026-11-21).
//! Not here: reading the columns (page/columns.js).

use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::DeflateEncoder;
use serde::Serialize;
use serde::ser::Error as _;
use serde_json::{Error, Value};
use skinflint_analysis::model::{Report, Windows};

/// The way in which a column's numbers are written.
#[derive(Clone, Copy)]
enum Kind {
    Plain = 0,
    Deltas = 1,
    Signed = 2,
}

/// Packs the long tables of a report as columns.
///
/// # Errors
/// If one of their rows has a field that is neither an integer nor null (C3).
pub fn pack(report: &Report) -> Result<String, Error> {
    let mut out = Vec::new();
    table(&mut out, "sites", &report.sites)?;
    table(&mut out, "mappers", &report.mappers)?;
    table(&mut out, "sizes", &report.sizes)?;
    let nodes = &report.nodes;
    shorter(
        &mut out,
        "nodes.parent",
        nodes.iter().map(|one| u64::from(one.parent)).collect(),
    );
    shorter(
        &mut out,
        "nodes.frame",
        nodes.iter().map(|one| u64::from(one.frame)).collect(),
    );
    if let Some(windows) = &report.windows {
        pack_windows(&mut out, windows)?;
    }
    let mut deflate = DeflateEncoder::new(Vec::new(), Compression::default());
    let bytes = deflate
        .write_all(&out)
        .and_then(|()| deflate.finish())
        .map_err(Error::custom)?;
    Ok(STANDARD.encode(bytes))
}

fn pack_windows(out: &mut Vec<u8>, windows: &Windows) -> Result<(), Error> {
    // Instants of edges are pairs, since an edge may be several or none.
    let edges = &windows.edges;
    shorter(
        out,
        "edges.time_ns",
        edges.iter().map(|edge| edge.time_ns).collect(),
    );
    shorter(
        out,
        "edges.events",
        edges.iter().map(|edge| edge.events).collect(),
    );
    let pairs = || {
        let of = |(index, edge): (u64, &'_ skinflint_analysis::model::WindowEdge)| {
            edge.instants
                .iter()
                .map(|instant| (index, u64::from(*instant)))
                .collect::<Vec<_>>()
        };
        (0..).zip(edges).flat_map(of)
    };
    shorter(
        out,
        "edge_instants.edge",
        pairs().map(|pair| pair.0).collect(),
    );
    shorter(
        out,
        "edge_instants.instant",
        pairs().map(|pair| pair.1).collect(),
    );
    table(out, "cells", &windows.cells)?;
    shorter(out, "changes.end", windows.bucket_ends.clone());
    let cells = windows.changed_cell.iter().map(|cell| u64::from(*cell));
    shorter(out, "changes.cell", cells.collect());
    shorter(out, "changes.acquired", windows.acquired.clone());
    // Most blocks are released in the bucket that they were acquired in: the difference is small.
    let net = windows
        .acquired
        .iter()
        .zip(&windows.released)
        .map(|(acquired, released)| zigzag(acquired.wrapping_sub(*released) as i64))
        .collect::<Vec<u64>>();
    column(out, "changes.net", Kind::Signed, &net);
    shorter(out, "folded.cells", vec![windows.folded_cells]);
    Ok(())
}

/// Writes rows as columns (C1).
fn table<T: Serialize>(out: &mut Vec<u8>, name: &str, rows: &[T]) -> Result<(), Error> {
    let mut fields: Vec<(String, Vec<u64>)> = Vec::new();
    for row in rows {
        let Value::Object(row) = serde_json::to_value(row)? else {
            return Err(Error::custom(format!("{name}: a row is not an object")));
        };
        if fields.is_empty() {
            fields = row
                .keys()
                .map(|key| (key.clone(), Vec::with_capacity(rows.len())))
                .collect();
        }
        for ((key, values), (field, value)) in fields.iter_mut().zip(&row) {
            let number = match value {
                Value::Null => Some(0),
                // There is room for null: no figure of bytes or blocks comes near the last number.
                value => value.as_u64().map(|number| number.saturating_add(1)),
            };
            let number = number.filter(|_| key == field);
            values.push(number.ok_or_else(|| {
                Error::custom(format!("{name}.{field}: neither an integer nor null"))
            })?);
        }
    }
    for (field, values) in fields {
        shorter(out, &format!("{name}.{field}"), values);
    }
    Ok(())
}

/// Writes a column in the shorter of two kinds (C2).
fn shorter(out: &mut Vec<u8>, name: &str, values: Vec<u64>) {
    let mut last = 0;
    let deltas: Vec<u64> = values
        .iter()
        .map(|&value| zigzag(value.wrapping_sub(std::mem::replace(&mut last, value)) as i64))
        .collect();
    let size = |values: &[u64]| values.iter().map(|value| length(*value)).sum::<usize>();
    match size(&deltas) < size(&values) {
        true => column(out, name, Kind::Deltas, &deltas),
        false => column(out, name, Kind::Plain, &values),
    }
}

fn column(out: &mut Vec<u8>, name: &str, kind: Kind, numbers: &[u64]) {
    put(out, name.len() as u64);
    out.extend_from_slice(name.as_bytes());
    put(out, kind as u64);
    put(out, numbers.len() as u64);
    put(
        out,
        numbers.iter().map(|number| length(*number) as u64).sum(),
    );
    for number in numbers {
        put(out, *number);
    }
}

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

fn length(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
