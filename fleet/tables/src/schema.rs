//! What a table is: its columns with their types and meanings, told once.
//!
//! ```text
//!   table! { a struct of a row } ─► TABLE (names, types, meanings) ─► the Arrow schema, the chapter for readers
//!                                └► batch: rows ─► columns         read: columns ─► rows
//! ```
//!
//! S1  Three types only, which every engine has: BIGINT (signed, 64 bits), VARCHAR, and a list of BIGINT. No column
//!     may be null.
//! S2  What is read must have the columns of the table, by name and type; others are ignored.
//!
//! Not here: which tables there are (rows.rs), where they lie (files.rs).

use std::sync::Arc;

use anyhow::{Context, Result};
use arrow::array::{
    Array, ArrayRef, Int64Array, Int64Builder, ListArray, ListBuilder, StringArray,
};
use arrow::datatypes::{DataType, Field, Schema};
use arrow::record_batch::RecordBatch;

/// How the files of a table are split into folders.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Split {
    /// `TABLE/day=2026-11-27/service=web/`.
    DayAndService,
    /// `TABLE/service=web/`: what lives longer than a day.
    Service,
    /// `TABLE/`.
    No,
}

/// A column.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Its name.
    pub name: &'static str,
    /// Its type, as SQL has it.
    pub sql: &'static str,
    /// What it says.
    pub meaning: &'static str,
}

/// A table.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// Its name, and that of its folder.
    pub name: &'static str,
    /// Its folders.
    pub split: Split,
    /// What a row is.
    pub meaning: &'static str,
    /// The columns of its files; those of its folders come after them.
    pub columns: &'static [Column],
}

impl Table {
    /// Returns the schema of the table's files.
    pub fn schema(&self) -> Arc<Schema> {
        let item = || Arc::new(Field::new("item", DataType::Int64, false));
        let fields = self.columns.iter().map(|column| {
            let kind = match column.sql {
                "BIGINT" => DataType::Int64,
                "VARCHAR" => DataType::Utf8,
                _ => DataType::List(item()),
            };
            Field::new(column.name, kind, false)
        });
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
    }

    /// Returns the names of the columns that the folders give.
    pub fn folders(&self) -> &'static [&'static str] {
        match self.split {
            Split::DayAndService => &["day", "service"],
            Split::Service => &["service"],
            Split::No => &[],
        }
    }
}

/// A row of a table, as `table!` makes it.
pub trait Row: Sized + Clone {
    /// The table.
    const TABLE: Table;

    /// Puts rows into columns.
    fn batch(rows: &[Self]) -> RecordBatch;

    /// Takes rows from columns (S2).
    ///
    /// # Errors
    /// If a column is missing or has another type.
    fn read(batch: &RecordBatch) -> Result<Vec<Self>>;
}

/// A type that a column may have (S1).
pub trait Cell: Sized {
    /// Its name in SQL.
    const SQL: &'static str;

    /// Puts values into a column.
    fn column<'a>(values: impl Iterator<Item = &'a Self>) -> ArrayRef
    where
        Self: 'a;

    /// Takes all values of a column, if it has this type and no null.
    fn values(column: &ArrayRef) -> Option<Vec<Self>>;
}

impl Cell for i64 {
    const SQL: &'static str = "BIGINT";

    fn column<'a>(values: impl Iterator<Item = &'a Self>) -> ArrayRef {
        Arc::new(Int64Array::from_iter_values(values.copied()))
    }

    fn values(column: &ArrayRef) -> Option<Vec<Self>> {
        let column = column.as_any().downcast_ref::<Int64Array>()?;
        (column.null_count() == 0).then(|| column.values().to_vec())
    }
}

impl Cell for String {
    const SQL: &'static str = "VARCHAR";

    fn column<'a>(values: impl Iterator<Item = &'a Self>) -> ArrayRef {
        Arc::new(StringArray::from_iter_values(values))
    }

    fn values(column: &ArrayRef) -> Option<Vec<Self>> {
        let column = column.as_any().downcast_ref::<StringArray>()?;
        column.iter().map(|text| text.map(str::to_owned)).collect()
    }
}

impl Cell for Vec<i64> {
    const SQL: &'static str = "BIGINT[]";

    fn column<'a>(values: impl Iterator<Item = &'a Self>) -> ArrayRef {
        let item = Field::new("item", DataType::Int64, false);
        let mut lists = ListBuilder::new(Int64Builder::new()).with_field(item);
        for list in values {
            lists.values().append_slice(list);
            lists.append(true);
        }
        Arc::new(lists.finish())
    }

    fn values(column: &ArrayRef) -> Option<Vec<Self>> {
        let column = column.as_any().downcast_ref::<ListArray>()?;
        column.iter().map(|list| i64::values(&list?)).collect()
    }
}

/// Takes one column of a batch.
///
/// # Errors
/// If it is missing or has another type.
pub fn take<T: Cell>(batch: &RecordBatch, table: &str, name: &str) -> Result<Vec<T>> {
    let column = batch.column_by_name(name);
    column
        .and_then(T::values)
        .with_context(|| format!("table {table}: no column `{name}` of type {}", T::SQL))
}

/// Defines a row, and from it all that is to be known of its table.
macro_rules! table {
    ($(#[doc = $said:literal])* $name:literal, $split:ident, $row:ident {
        $($(#[doc = $meaning:literal])* $field:ident: $kind:ty,)*
    }) => {
        $(#[doc = $said])*
        #[derive(Clone, PartialEq, Eq, Debug, Default)]
        pub struct $row {
            $($(#[doc = $meaning])* pub $field: $kind,)*
        }

        impl $crate::schema::Row for $row {
            const TABLE: $crate::schema::Table = $crate::schema::Table {
                name: $name,
                split: $crate::schema::Split::$split,
                meaning: concat!($($said),*),
                columns: &[$($crate::schema::Column {
                    name: stringify!($field),
                    sql: <$kind as $crate::schema::Cell>::SQL,
                    meaning: concat!($($meaning),*),
                }),*],
            };

            fn batch(rows: &[Self]) -> arrow::record_batch::RecordBatch {
                let columns = vec![$(<$kind as $crate::schema::Cell>::column(rows.iter().map(|row| &row.$field))),*];
                arrow::record_batch::RecordBatch::try_new(<$row as $crate::schema::Row>::TABLE.schema(), columns)
                    .expect("columns are made from the rows that the schema is made from")
            }

            fn read(batch: &arrow::record_batch::RecordBatch) -> anyhow::Result<Vec<Self>> {
                $(let mut $field = $crate::schema::take::<$kind>(batch, $name, stringify!($field))?.into_iter();)*
                let next = || Some($row { $($field: $field.next()?),* });
                Ok(std::iter::from_fn(next).collect())
            }
        }
    };
}
pub(crate) use table;

#[cfg(test)]
mod tests {
    use super::*;

    table! {
        /// Things.
        "things", Service, Thing {
            /// When.
            t: i64,
            /// What.
            name: String,
            /// Which.
            parts: Vec<i64>,
        }
    }

    #[test]
    fn rows_come_back_as_they_were() {
        let thing = |t, name: &str, parts: &[i64]| Thing {
            t,
            name: name.into(),
            parts: parts.into(),
        };
        let rows = [
            thing(1, "a", &[]),
            thing(-5, "", &[3, i64::MIN]),
            thing(0, "ß", &[9]),
        ];
        let batch = Thing::batch(&rows);
        assert_eq!(Thing::read(&batch).unwrap(), rows);
        assert_eq!(Thing::read(&Thing::batch(&[])).unwrap(), []);
        assert_eq!(Thing::TABLE.folders(), ["service"]);
        assert_eq!(Thing::TABLE.columns[1].meaning.trim(), "What.");
    }

    #[test]
    fn a_column_that_is_missing_or_of_another_type_is_named() {
        let batch = Thing::batch(&[Thing::default()]);
        let error = take::<String>(&batch, "things", "t")
            .unwrap_err()
            .to_string();
        assert_eq!(error, "table things: no column `t` of type VARCHAR");
        let error = Thing::read(&batch.project(&[0, 1]).unwrap())
            .unwrap_err()
            .to_string();
        assert!(error.contains("`parts`"), "{error}");
    }
}
