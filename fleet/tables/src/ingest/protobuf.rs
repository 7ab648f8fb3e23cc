//! Fields of a protobuf message, as much of the encoding as pprof needs.
//!
//! ```text
//!   key = number << 3 | type     0: varint     2: length, bytes (texts, messages, packed numbers)     1, 5: skipped
//! ```
//!
//! B1  Any bytes are read without a panic: what is cut off or of an unknown type is an error.
//!
//! Not here: what a field means (pprof.rs).

use anyhow::{Context, Result, bail};

/// A field.
pub(super) enum Field<'a> {
    /// A number.
    Number(u64),
    /// Bytes.
    Bytes(&'a [u8]),
}

impl<'a> Field<'a> {
    pub(super) fn number(&self) -> u64 {
        match self {
            Field::Number(number) => *number,
            Field::Bytes(_) => 0,
        }
    }

    pub(super) fn bytes(&self) -> &'a [u8] {
        match self {
            Field::Number(_) => &[],
            Field::Bytes(bytes) => bytes,
        }
    }

    /// Adds the numbers of a field that may be packed or not.
    pub(super) fn numbers(&self, to: &mut Vec<u64>) -> Result<()> {
        match self {
            Field::Number(number) => to.push(*number),
            Field::Bytes(bytes) => {
                let mut rest = *bytes;
                while !rest.is_empty() {
                    to.push(varint(&mut rest)?);
                }
            }
        }
        Ok(())
    }
}

/// Calls `with` for each field of a message.
///
/// # Errors
/// If the message is cut off or has a type that is not known, and those of `with`.
pub(super) fn each<'a>(
    mut message: &'a [u8],
    mut with: impl FnMut(u64, Field<'a>) -> Result<()>,
) -> Result<()> {
    while !message.is_empty() {
        let key = varint(&mut message)?;
        let field = match key & 7 {
            0 => Field::Number(varint(&mut message)?),
            1 => Field::Bytes(take(&mut message, 8)?),
            2 => {
                let length = varint(&mut message)?;
                Field::Bytes(take(&mut message, usize::try_from(length)?)?)
            }
            5 => Field::Bytes(take(&mut message, 4)?),
            other => bail!("a field of type {other}"),
        };
        with(key >> 3, field)?;
    }
    Ok(())
}

fn take<'a>(from: &mut &'a [u8], length: usize) -> Result<&'a [u8]> {
    let (taken, rest) = from
        .split_at_checked(length)
        .context("cut off in a field")?;
    *from = rest;
    Ok(taken)
}

fn varint(from: &mut &[u8]) -> Result<u64> {
    let mut value = 0;
    for at in 0..10 {
        let byte = take(from, 1)?[0];
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte < 0x80 {
            return Ok(value);
        }
    }
    bail!("a number of more than ten bytes")
}
