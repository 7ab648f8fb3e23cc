//! A file that is written whole, or not left behind.
//!
//! ```text
//!   a format's bytes ─► FILE, or gzip ─► FILE.gz          an error ─► no file, unless there was one before
//! ```
//!
//! F1  A file that cannot be written whole is not left behind, unless it was there before.
//!
//! Not here: the bytes (a file for each format), stdout (`cli`).

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;

/// Writes a whole file, compressed if it may be and its name ends in `.gz`.
///
/// # Errors
/// Those of the file, and of `write`.
pub fn write_whole(
    path: &Path,
    may_pack: bool,
    write: &mut dyn FnMut(&mut (dyn Write + Send)) -> io::Result<()>,
) -> io::Result<()> {
    let existed = path.exists();
    let file = BufWriter::new(File::create(path)?);
    let packed = may_pack && path.extension().is_some_and(|extension| extension == "gz");
    let done = match packed {
        true => {
            let mut file = GzEncoder::new(file, Compression::default());
            write(&mut file).and_then(|()| file.finish()?.flush())
        }
        false => {
            let mut file = file;
            write(&mut file).and_then(|()| file.flush())
        }
    };
    if done.is_err() && !existed {
        let _ = std::fs::remove_file(path);
    }
    done
}
