//! The source of a tenant's documents: a SQLite database of its own.
//!
//! ```text
//!   document(id, text)      image(document, at, file)          PRAGMA shrink_memory under pressure
//! ```
//!
//! S1  A connection is used by the thread that opened it.
//! S2  SQLite counts what it requested, not what it was given: its own figure is reported beside the measured one.
//!
//! Not here: what is kept in memory (`host`).

use std::path::Path;

use rusqlite::{Connection, Result, ffi, params};
use skinflint_reporters::sqlite::Sqlite;

/// A tenant's database.
pub struct Shelf(Connection);

impl Shelf {
    /// Opens the database, or creates it.
    pub fn open(file: &Path) -> Result<Shelf> {
        let connection = Connection::open(file)?;
        connection.execute_batch(
            "PRAGMA journal_mode = MEMORY; PRAGMA synchronous = OFF; PRAGMA cache_size = -4096;
             CREATE TABLE IF NOT EXISTS document (id INTEGER PRIMARY KEY, text TEXT NOT NULL);
             CREATE TABLE IF NOT EXISTS image (document INTEGER, at INTEGER, file BLOB NOT NULL,
                 PRIMARY KEY (document, at));",
        )?;
        Ok(Shelf(connection))
    }

    /// Returns the number of documents.
    pub fn count(&self) -> Result<u32> {
        self.0
            .query_row("SELECT count(*) FROM document", [], |row| row.get(0))
    }

    /// Adds documents, all or none.
    pub fn put(
        &mut self,
        documents: impl Iterator<Item = (u32, String, Vec<Vec<u8>>)>,
    ) -> Result<()> {
        let all = self.0.transaction()?;
        for (id, text, images) in documents {
            all.execute("INSERT INTO document VALUES (?1, ?2)", params![id, text])?;
            for (at, file) in images.iter().enumerate() {
                all.execute(
                    "INSERT INTO image VALUES (?1, ?2, ?3)",
                    params![id, at as u32, file],
                )?;
            }
        }
        all.commit()
    }

    /// Returns a document's text.
    pub fn text(&self, id: u32) -> Result<Box<str>> {
        self.0
            .prepare_cached("SELECT text FROM document WHERE id = ?1")?
            .query_row([id], |row| Ok(row.get_ref(0)?.as_str()?.into()))
    }

    /// Passes each of a document's images, as files, to `with`, and returns the results.
    pub fn images<T>(&self, id: u32, mut with: impl FnMut(&[u8]) -> T) -> Result<Vec<T>> {
        let mut statement = self
            .0
            .prepare_cached("SELECT file FROM image WHERE document = ?1 ORDER BY at")?;
        let mut rows = statement.query([id])?;
        let mut all = Vec::new();
        while let Some(row) = rows.next()? {
            all.push(with(row.get_ref(0)?.as_blob()?));
        }
        Ok(all)
    }

    /// Gives back the database's pages and statements.
    pub fn shrink(&self) -> Result<()> {
        self.0.flush_prepared_statement_cache();
        self.0.execute_batch("PRAGMA shrink_memory")
    }
}

/// Makes SQLite's blocks counted and named. Call it before the first shelf is opened.
pub fn counted() -> std::result::Result<Sqlite, String> {
    // SAFETY: the functions of the library that is linked, which has not been used yet.
    unsafe { Sqlite::named(ffi::sqlite3_status64, ffi::sqlite3_config) }
        .map_err(|code| format!("SQLite's memory cannot be counted: sqlite3_config gave {code}"))
}

/// Returns all bytes that SQLite says it has.
pub fn used_bytes() -> u64 {
    let (mut now, mut most) = (0i64, 0i64);
    // SAFETY: both places are ours.
    unsafe { ffi::sqlite3_status64(ffi::SQLITE_STATUS_MEMORY_USED, &mut now, &mut most, 0) };
    now.max(0) as u64
}
