//! The tables: one row type for each.
//!
//! ```text
//!   profiles ─ stack ─► stacks ─ frames ─► frames        processes ─ host ─► machines
//!   findings ─ stack ┘                                   books ─ process ─► processes ─ build ─► builds
//! ```
//!
//! R1  Of one process and stack, no two rows of `profiles` stand for the same minute; the same of `processes`, of a row
//!     of the books, and of a finding.
//! R2  Levels add up over time as byte-minutes; what flowed adds up as bytes. Both are whole numbers.
//! R3  The `byte_min` of a process's books add up to its `resident_byte_min`: the books are closed.
//! R4  Variances are in KiB², whole: in bytes² those of a fleet's day do not fit 64 bits.
//! R5  `profile_days` has the sums of `profiles`, by day, process, stack and build, whatever was merged (sum_files.rs).
//!
//! Not here: how rows are merged (merge.rs).

use crate::schema::table;

table! {
    /// What one stack of one process did and held in some minutes.
    "profiles", DayAndService, Profile {
        /// The first second of the minutes that the row stands for, since 1970, UTC.
        t: i64,
        /// How many minutes they are; never beyond the hour (or day, in a row of days).
        minutes: i64,
        /// The machine.
        host: String,
        /// The process: a hash of host, number and start.
        process: i64,
        /// The build that it runs.
        build: String,
        /// The stack: a hash of its frames; the same in every build and on every machine.
        stack: i64,
        /// Samples that the figures rest on, taken in these minutes; blocks, where each one was recorded.
        samples: i64,
        /// Bytes asked for, of new blocks.
        alloc_bytes: i64,
        /// New blocks.
        alloc_blocks: i64,
        /// Of the new bytes, those in use at the end of the minutes.
        born_bytes: i64,
        /// Bytes released, of blocks from before.
        died_bytes: i64,
        /// Variance of born less died, KiB²; 0 where each block was recorded.
        change_var: i64,
        /// Bytes in use at the end, as they were asked for.
        live_bytes: i64,
        /// Blocks in use at the end.
        live_blocks: i64,
        /// The most bytes in use at the end of a minute.
        live_max_bytes: i64,
        /// Bytes in use, summed over the minutes.
        live_byte_min: i64,
        /// Variance of bytes in use, KiB², summed over the minutes.
        live_var_min: i64,
        /// Bytes given beyond those asked for, summed over the minutes.
        slop_byte_min: i64,
        /// Free bytes on pages that the stack's blocks keep resident, summed over the minutes.
        pinned_byte_min: i64,
    }
}

table! {
    /// What one stack of one process did and held in a day: its rows of `profiles`, added up. Questions read these.
    "profile_days", DayAndService, ProfileDay {
        /// The machine.
        host: String,
        /// The process.
        process: i64,
        /// Its build.
        build: String,
        /// The stack.
        stack: i64,
        /// The minutes of the rows.
        minutes: i64,
        /// As in `profiles`, added; so are all that follow but `live_max_bytes`.
        samples: i64,
        /// As in `profiles`.
        alloc_bytes: i64,
        /// As in `profiles`.
        alloc_blocks: i64,
        /// As in `profiles`.
        born_bytes: i64,
        /// As in `profiles`.
        died_bytes: i64,
        /// As in `profiles`.
        change_var: i64,
        /// The most bytes in use at the end of a minute.
        live_max_bytes: i64,
        /// As in `profiles`.
        live_byte_min: i64,
        /// As in `profiles`.
        live_var_min: i64,
        /// As in `profiles`.
        slop_byte_min: i64,
        /// As in `profiles`.
        pinned_byte_min: i64,
    }
}

table! {
    /// One process in some minutes.
    "processes", DayAndService, Process {
        /// As in `profiles`.
        t: i64,
        /// As in `profiles`.
        minutes: i64,
        /// The machine.
        host: String,
        /// The process.
        process: i64,
        /// Its build.
        build: String,
        /// Name of its program.
        program: String,
        /// Resident bytes at the end.
        resident_bytes: i64,
        /// The most resident bytes at the end of a minute.
        resident_max_bytes: i64,
        /// Resident bytes, summed over the minutes.
        resident_byte_min: i64,
        /// Bytes between two samples, on average; 1 where every block was recorded, 0 where it is not known.
        sample_bytes: i64,
        /// Events or samples that are known to be lost.
        lost: i64,
    }
}

table! {
    /// A row of the books of one process in some minutes.
    "books", DayAndService, Book {
        /// As in `profiles`.
        t: i64,
        /// As in `profiles`.
        minutes: i64,
        /// The machine.
        host: String,
        /// The process.
        process: i64,
        /// Its build.
        build: String,
        /// The row: `live`, `slop`, `allocator-free`, `mapped-files` and the others of a report's books.
        part: String,
        /// Resident bytes at the end.
        bytes: i64,
        /// Resident bytes, summed over the minutes.
        byte_min: i64,
    }
}

table! {
    /// A finding in one process, in the minutes in which it held.
    "findings", DayAndService, Finding {
        /// As in `profiles`.
        t: i64,
        /// As in `profiles`.
        minutes: i64,
        /// The machine.
        host: String,
        /// The process.
        process: i64,
        /// Its build.
        build: String,
        /// Its kind: `leak`, `pinned`, `growth` and the others of a report.
        kind: String,
        /// The stack; 0 for the process as a whole.
        stack: i64,
        /// One line.
        title: String,
        /// The change to make.
        change: String,
        /// `certain`, `likely` or `possible`.
        confidence: String,
        /// Bytes that it is about, summed over the minutes.
        now_byte_min: i64,
        /// Bytes that the change would give back, summed over the minutes.
        saved_byte_min: i64,
    }
}

table! {
    /// A stack.
    "stacks", Service, Stack {
        /// Its id.
        stack: i64,
        /// The frame that names it: the innermost that does not only pass an allocation on.
        leaf: i64,
        /// Its frames, innermost first.
        frames: Vec<i64>,
    }
}

table! {
    /// A frame.
    "frames", Service, Frame {
        /// Its id: a hash of module and function.
        frame: i64,
        /// The function.
        function: String,
        /// File name of the module, without its folder.
        module: String,
        /// Source file, as it was first seen; empty if it is not known.
        file: String,
        /// Line, as it was first seen; 0 if it is not known.
        line: i64,
    }
}

table! {
    /// A machine.
    "machines", No, Machine {
        /// Its name.
        host: String,
        /// Processors; 0 if not known.
        cores: i64,
        /// Memory; 0 if not known.
        memory_bytes: i64,
        /// Kernel and architecture.
        system: String,
    }
}

table! {
    /// A build of a service.
    "builds", Service, Build {
        /// Its name: a version, a commit, or the build id of the program.
        build: String,
        /// When it was first seen, seconds since 1970.
        first_t: i64,
    }
}

/// Returns all tables.
pub fn tables() -> [crate::schema::Table; 9] {
    use crate::schema::Row;
    [
        Profile::TABLE,
        ProfileDay::TABLE,
        Process::TABLE,
        Book::TABLE,
        Finding::TABLE,
        Stack::TABLE,
        Frame::TABLE,
        Machine::TABLE,
        Build::TABLE,
    ]
}
