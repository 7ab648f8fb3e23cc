//! A line of a logalloc log.
//!
//! ```text
//!   PID ' ' [TID ' '] NAME '(' [ARG [',' ARG]] ')' ['=' PLACE]
//! ```
//!
//! N1  A line is parsed from the left; an error has the column where it begins.
//! N2  A number that does not fit, and a size or address that no program of this machine has, is wrong.
//!
//! Not here: what a line does to memory (`logalloc.rs`).

use skinflint_trace::AllocFn;

/// No program has addresses or sizes from this limit on.
pub(crate) const ADDRESS_LIMIT: u64 = 1 << 47;

/// A block in the log: an address, a slot, or none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BlockRef {
    Null,
    Address(u64),
    Slot(u64),
}

/// The call in a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Call {
    Alloc {
        func: AllocFn,
        size: u64,
        align: u64,
        result: BlockRef,
    },
    Realloc {
        old: BlockRef,
        size: u64,
        result: BlockRef,
    },
    Free(BlockRef),
    Stats,
}

/// A line that is parsed from the left.
struct Cursor<'a> {
    line: &'a [u8],
    at: usize,
}

/// The column, from 0, and the error there.
pub(crate) type Wrong = (usize, String);

impl Cursor<'_> {
    fn wrong<T>(&self, wanted: &str) -> Result<T, Wrong> {
        let there = &self.line[self.at.min(self.line.len())..];
        let there = String::from_utf8_lossy(&there[..there.len().min(24)]).into_owned();
        let there = match there.is_empty() {
            true => "the line ends".to_owned(),
            false => format!("there is {there:?}"),
        };
        Err((self.at, format!("expected {wanted}, {there}")))
    }

    fn expect(&mut self, byte: u8) -> Result<(), Wrong> {
        if self.line.get(self.at) != Some(&byte) {
            return self.wrong(&format!("`{}`", char::from(byte)));
        }
        self.at += 1;
        Ok(())
    }

    fn digits(&mut self, radix: u32, wanted: &str) -> Result<u64, Wrong> {
        let begin = self.at;
        let mut value: u64 = 0;
        while let Some(digit) = self
            .line
            .get(self.at)
            .and_then(|&byte| char::from(byte).to_digit(radix))
        {
            let next = value
                .checked_mul(u64::from(radix))
                .and_then(|value| value.checked_add(digit.into()));
            let Some(next) = next else {
                self.at = begin;
                return self.wrong(&format!("{wanted} below 2^64"));
            };
            value = next;
            self.at += 1;
        }
        if self.at == begin {
            return self.wrong(wanted);
        }
        Ok(value)
    }

    fn number(&mut self, wanted: &str) -> Result<u64, Wrong> {
        self.digits(10, wanted)
    }

    /// Parses `0x7f…`, `#12`, `(nil)`, `(null)`, `0x0`, `#0`, or bare hexadecimal as Windows prints it.
    fn place(&mut self) -> Result<BlockRef, Wrong> {
        const WANTED: &str = "an address (0x…), a slot (#…) or (nil)";
        for null in ["(nil)", "(null)"] {
            if self.line[self.at..].starts_with(null.as_bytes()) {
                self.at += null.len();
                return Ok(BlockRef::Null);
            }
        }
        if self.line.get(self.at) == Some(&b'#') {
            self.at += 1;
            let slot = self.number("the number of a slot")?;
            return Ok(if slot == 0 {
                BlockRef::Null
            } else {
                BlockRef::Slot(slot)
            });
        }
        if self.line[self.at..].starts_with(b"0x") {
            self.at += 2;
        }
        let begin = self.at;
        let address = self.digits(16, WANTED)?;
        if address >= ADDRESS_LIMIT {
            self.at = begin;
            return self.wrong("an address below 2^47");
        }
        Ok(if address == 0 {
            BlockRef::Null
        } else {
            BlockRef::Address(address)
        })
    }

    fn name(&mut self) -> String {
        let begin = self.at;
        let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        while self.line.get(self.at).is_some_and(is_name) {
            self.at += 1;
        }
        String::from_utf8_lossy(&self.line[begin..self.at]).into_owned()
    }

    fn result(&mut self) -> Result<BlockRef, Wrong> {
        self.expect(b')')?;
        self.expect(b'=')?;
        self.place()
    }

    fn call(&mut self) -> Result<Call, Wrong> {
        const KNOWN: &str = "malloc, calloc, realloc, free, memalign, posix_memalign, aligned_alloc, valloc or \
                             jemalloc_stats";
        let begin = self.at;
        let name = self.name();
        let aligned = |func| Call::Alloc {
            func,
            size: 0,
            align: 16,
            result: BlockRef::Null,
        };
        let kind = match name.as_str() {
            "malloc" => aligned(AllocFn::Malloc),
            "calloc" => aligned(AllocFn::Calloc),
            "memalign" | "posix_memalign" | "aligned_alloc" => aligned(AllocFn::Memalign),
            "valloc" => aligned(AllocFn::Valloc),
            "realloc" | "free" | "jemalloc_stats" => Call::Stats,
            _ => {
                self.at = begin;
                return self.wrong(KNOWN);
            }
        };
        self.expect(b'(')?;
        let call = match (kind, name.as_str()) {
            (Call::Alloc { func, .. }, _) => self.acquisition(func)?,
            (_, "realloc") => {
                let old = self.place()?;
                self.expect(b',')?;
                let size = self.number("a size")?;
                Call::Realloc {
                    old,
                    size,
                    result: self.result()?,
                }
            }
            (_, "free") => {
                let old = self.place()?;
                self.expect(b')')?;
                Call::Free(old)
            }
            _ => {
                self.expect(b')')?;
                Call::Stats
            }
        };
        match self.at == self.line.len() {
            true => Ok(call),
            false => self.wrong("the end of the line"),
        }
    }

    fn acquisition(&mut self, func: AllocFn) -> Result<Call, Wrong> {
        let begin = self.at;
        let first = self.number("a number")?;
        let (mut size, mut align) = (first, if func == AllocFn::Valloc { 4096 } else { 16 });
        if matches!(func, AllocFn::Calloc | AllocFn::Memalign) {
            self.expect(b',')?;
            let second = self.number("a size")?;
            if func == AllocFn::Memalign {
                (size, align) = (second, first.clamp(16, 1 << 30).next_power_of_two());
            } else {
                let Some(product) = first.checked_mul(second) else {
                    self.at = begin;
                    return self.wrong("a product below 2^64");
                };
                size = product;
            }
        }
        let result = self.result()?;
        if result != BlockRef::Null && size >= ADDRESS_LIMIT {
            self.at = begin;
            return self.wrong("a size below 2^47, since the call succeeded");
        }
        Ok(Call::Alloc {
            func,
            size,
            align,
            result,
        })
    }
}

/// Parses a line: process, thread, and call.
pub(crate) fn parse(line: &[u8]) -> Result<(u64, u64, Call), Wrong> {
    let mut cursor = Cursor { line, at: 0 };
    let pid = cursor.number("a process id")?;
    cursor.expect(b' ')?;
    let mut tid = pid;
    // Logs before 2017 have no thread id.
    if cursor.line.get(cursor.at).is_some_and(u8::is_ascii_digit) {
        tid = cursor.number("a thread id")?;
        cursor.expect(b' ')?;
    }
    Ok((pid, tid, cursor.call()?))
}
