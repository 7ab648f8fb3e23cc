//! The interpreter that a program was started with, of the languages that are known.
//!
//! Not here: what their frames look like (chain.rs, ruby.rs, php.rs).

use crate::java::Java;
use crate::php::{self, Php};
use crate::program::Program;
use crate::ruby::{self, Ruby};
use crate::runtime::{Refusal, Runtime};

/// A language.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Language {
    /// CPython.
    Python,
    /// Ruby, as its own sources build it.
    Ruby,
    /// PHP.
    Php,
    /// Java, in HotSpot.
    Java,
}

/// A reader of an interpreter's frames.
// There is one in a process, and no memory to put a large one in another place.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Copy)]
pub enum Reader {
    /// Of Python.
    Python(Runtime),
    /// Of Ruby.
    Ruby(Ruby),
    /// Of PHP.
    Php(Php),
    /// Of Java; it is never found among the objects of the start, as its machine is loaded by a program.
    Java(Java),
}

/// The result of a search for an interpreter.
pub struct Found {
    /// Its language.
    pub language: Language,
    /// Its version: of Python as `Py_Version` has it (0: before 3.9), of others three numbers, a byte each.
    pub version: u32,
    /// How its frames are read, or why they are not.
    pub reader: Result<Reader, Refusal>,
}

impl Reader {
    /// Finds the interpreter among the objects that the program was started with.
    ///
    /// # Safety
    /// `program` tells the truth (runtime.T1), and these objects are relocated.
    pub unsafe fn find(program: &impl Program) -> Option<Found> {
        let found = |language, version, reader| Found {
            language,
            version,
            reader,
        };
        // SAFETY: as the caller promises.
        unsafe {
            if let Some((reader, version)) =
                Runtime::find(|name| program.look(name), |name| program.extent(name))
            {
                return Some(found(Language::Python, version, reader.map(Reader::Python)));
            }
            if let Some((reader, version)) = ruby::find(program) {
                return Some(found(Language::Ruby, version, reader.map(Reader::Ruby)));
            }
            let (reader, version) = php::find(program)?;
            Some(found(Language::Php, version, reader.map(Reader::Php)))
        }
    }
}
