//! Tables of objects that C knows by number, so that each misuse is told and none is undefined.
//!
//! ```text
//!   number   │ sort 4 │ tag 12 │ row 24 │ use 24 │      as a pointer of C, which leads nowhere
//!                         │        └─► rows[row]: (use, object)      the same use: it is this object; another: it ended
//!                         └─ the thread whose table it is; for tables of the process: which of them
//! ```
//!
//! T1  A number is given once: the use of a row counts up, and a row whose uses are over is never used again. So a table
//!     has room for 2^24 objects at a time, and for 2^48 in all.
//! T2  Objects leave the table before they are dropped, and the table is not borrowed or locked meanwhile: what a drop
//!     calls may use the table.
//! T3  Removing needs no memory: the list of free rows has room for all of them. Rows stay for the objects to come.
//! T4  Threads share the 4,095 tags, and the uses of threads with the same tag begin elsewhere: that a number of one is
//!     taken for another's is improbable, and then it is an object of the right sort all the same.
//!
//! Cost: a look is a comparison or two beyond the lock or the borrow.
//!
//! Not here: what the objects are.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

use crate::fault::{Code, Failure};

/// What a number stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Sort {
    Budget = 1,
    Cache,
    Hold,
    Discards,
    Discardable,
    Pin,
    Buffer,
    Arena,
    Counted,
    Weak,
}

impl Sort {
    const ALL: [Sort; 10] = [
        Sort::Budget,
        Sort::Cache,
        Sort::Hold,
        Sort::Discards,
        Sort::Discardable,
        Sort::Pin,
        Sort::Buffer,
        Sort::Arena,
        Sort::Counted,
        Sort::Weak,
    ];

    fn name(self) -> &'static str {
        match self {
            Sort::Budget => "skinflint_budget",
            Sort::Cache => "skinflint_cache",
            Sort::Hold => "skinflint_hold",
            Sort::Discards => "skinflint_discards",
            Sort::Discardable => "skinflint_discardable",
            Sort::Pin => "skinflint_pin",
            Sort::Buffer => "skinflint_buffer",
            Sort::Arena => "skinflint_arena",
            Sort::Counted => "skinflint_counted",
            Sort::Weak => "skinflint_weak",
        }
    }
}

const ROW_BITS: u32 = 24;
const USE_BITS: u32 = 24;
const TAG_BITS: u32 = 12;
const LAST: u32 = (1 << USE_BITS) - 1;

/// The tags of threads go from 1 to this; 0 to 15 are of the process's tables too, whose sorts differ.
pub const TAGS: u32 = (1 << TAG_BITS) - 1;

/// What C holds.
pub type Number = *mut c_void;

struct Row<T> {
    uses: u32,
    object: Option<T>,
}

/// The objects of one sort, of a thread or of the process.
pub struct Table<T> {
    sort: Sort,
    tag: u32,
    first_use: u32,
    rows: Vec<Row<T>>,
    free: Vec<u32>,
}

impl<T> Table<T> {
    /// Creates a table of the process's.
    pub const fn of_process(sort: Sort, tag: u32) -> Table<T> {
        Table {
            sort,
            tag,
            first_use: 1,
            rows: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Creates the table of the thread with this number, from 0 (T4).
    pub fn of_thread(sort: Sort, thread: u32) -> Table<T> {
        Table {
            tag: thread % TAGS + 1,
            first_use: 1 + thread / TAGS % 1024 * 4096,
            ..Table::of_process(sort, 0)
        }
    }

    fn number(&self, row: u32, uses: u32) -> Number {
        let number = (self.sort as u64) << 60
            | u64::from(self.tag) << (ROW_BITS + USE_BITS)
            | u64::from(row) << USE_BITS
            | u64::from(uses);
        std::ptr::without_provenance_mut(number as usize)
    }

    /// Puts an object in.
    ///
    /// # Errors
    /// No memory for another row, or no row (T1); with the object, whose drop is the caller's (T2).
    pub fn add(&mut self, object: T) -> Result<Number, (Failure, T)> {
        let at = match self.free.pop().map_or_else(|| self.new_row(), Ok) {
            Ok(at) => at,
            Err(failure) => return Err((failure, object)),
        };
        let row = &mut self.rows[at as usize];
        row.object = Some(object);
        let uses = row.uses;
        Ok(self.number(at, uses))
    }

    #[cold]
    fn new_row(&mut self) -> Result<u32, Failure> {
        let at = self.rows.len();
        if at >= 1 << ROW_BITS {
            let what = format!("16,777,216 of {} at a time, no more", self.sort.name());
            return Err(Failure::new(Code::Memory, what));
        }
        self.rows.try_reserve(1).map_err(|_| Failure::memory())?;
        // T3: room for all rows.
        let room = self.rows.capacity().saturating_sub(self.free.len());
        self.free
            .try_reserve_exact(room)
            .map_err(|_| Failure::memory())?;
        self.rows.push(Row {
            uses: self.first_use,
            object: None,
        });
        Ok(at as u32)
    }

    /// Returns the row of a number.
    fn row(&self, number: Number) -> Result<usize, Failure> {
        let bits = number.addr() as u64;
        let row = (bits >> USE_BITS) as usize & ((1 << ROW_BITS) - 1);
        let uses = bits as u32 & LAST;
        let is_ours = bits >> 60 == self.sort as u64 && self.tag_of(bits) == self.tag;
        match self.rows.get(row) {
            Some(found) if is_ours && found.uses == uses && found.object.is_some() => Ok(row),
            _ => Err(self.wrong(bits)),
        }
    }

    fn tag_of(&self, bits: u64) -> u32 {
        (bits >> (ROW_BITS + USE_BITS)) as u32 & TAGS
    }

    /// Says what is wrong with a number.
    #[cold]
    fn wrong(&self, bits: u64) -> Failure {
        let name = self.sort.name();
        if bits == 0 {
            return Failure::argument(format!("no {name}: the pointer is null"));
        }
        let sort = Sort::ALL.into_iter().find(|&s| s as u64 == bits >> 60);
        let Some(sort) = sort else {
            let what = format!("no {name}: the pointer did not come from this library");
            return Failure::new(Code::Handle, what);
        };
        if sort != self.sort {
            let what = format!("a {} where a {name} is wanted", sort.name());
            return Failure::new(Code::Handle, what);
        }
        if self.tag_of(bits) != self.tag {
            let what = format!("this {name} is another thread's");
            return Failure::new(Code::Thread, what);
        }
        let what = format!("this {name} was ended or released before");
        Failure::new(Code::Handle, what)
    }

    /// Returns an object.
    pub fn get(&self, number: Number) -> Result<&T, Failure> {
        let row = self.row(number)?;
        self.rows[row]
            .object
            .as_ref()
            .ok_or_else(|| self.wrong(number.addr() as u64))
    }

    /// Returns an object to be changed.
    pub fn get_mut(&mut self, number: Number) -> Result<&mut T, Failure> {
        let row = self.row(number)?;
        match &mut self.rows[row].object {
            Some(object) => Ok(object),
            None => unreachable!("`row` has looked"),
        }
    }

    /// Takes an object out (T2).
    pub fn take(&mut self, number: Number) -> Result<T, Failure> {
        let at = self.row(number)?;
        let row = &mut self.rows[at];
        let Some(object) = row.object.take() else {
            unreachable!("`row` has looked");
        };
        if row.uses < LAST {
            row.uses += 1;
            self.free.push(at as u32);
        }
        Ok(object)
    }

    /// Returns all objects.
    #[cfg(test)]
    pub fn all(&self) -> impl Iterator<Item = &T> {
        self.rows.iter().filter_map(|row| row.object.as_ref())
    }
}

/// A table of the process's, for objects that are made and ended rarely and looked at often.
pub struct Shared<T>(RwLock<Table<T>>);

impl<T: Clone> Shared<T> {
    pub const fn new(sort: Sort) -> Shared<T> {
        Shared(RwLock::new(Table::of_process(sort, 0)))
    }

    pub fn add(&self, object: T) -> Result<Number, Failure> {
        let mut table = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let added = table.add(object);
        drop(table);
        added.map_err(|(failure, _)| failure)
    }

    /// Returns a clone, which lives on when the object is ended meanwhile.
    pub fn get(&self, number: Number) -> Result<T, Failure> {
        let table = self.0.read().unwrap_or_else(PoisonError::into_inner);
        table.get(number).cloned()
    }

    pub fn take(&self, number: Number) -> Result<T, Failure> {
        let mut table = self.0.write().unwrap_or_else(PoisonError::into_inner);
        table.take(number)
    }
}

/// Number of tables that [`Spread`] has.
const SPREAD: usize = 16;

/// Tables of the process's for objects that come and go with each call; threads begin with different ones.
pub struct Spread<T>([Mutex<Table<T>>; SPREAD]);

impl<T> Spread<T> {
    pub fn new(sort: Sort) -> Spread<T> {
        Spread(std::array::from_fn(|tag| {
            Mutex::new(Table::of_process(sort, tag as u32))
        }))
    }

    fn lock(&self, at: usize) -> MutexGuard<'_, Table<T>> {
        self.0[at].lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn add(&self, object: T) -> Result<Number, Failure> {
        let added = self.lock(thread_number() as usize % SPREAD).add(object);
        added.map_err(|(failure, _)| failure)
    }

    pub fn take(&self, number: Number) -> Result<T, Failure> {
        let tag = (number.addr() >> (ROW_BITS + USE_BITS)) & TAGS as usize;
        self.lock(tag % SPREAD).take(number)
    }
}

/// Returns the number of the calling thread, from 0: each is given once, until four billion threads were made.
pub fn thread_number() -> u32 {
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    thread_local! {
        // ORDER: a number that nothing else hangs on.
        static NUMBER: u32 = GIVEN.fetch_add(1, Ordering::Relaxed);
    }
    NUMBER.with(|number| *number)
}
