//! Every environment variable that Skinflint reads or sets.
//!
//! ```text
//!   ALL ──► help of `skinflint exec`      recorder, allocator: each by its own constant
//!    └─ a name that is in no list: one line of the allocator's, with the nearest that is
//! ```
//!
//! E1  One table, so that the help text, the libraries and the collector cannot disagree.
//! E2  `values` and `default` are those of the variable's parser; the answer to a bad value is made
//!     from them.
//!
//! Not here: reading the variables. The libraries read the list that the kernel left, before `getenv` can be used.

/// The program or library that reads a variable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reader {
    /// `libskinflint_record.so`.
    Recorder,
    /// `libskinflint.so`.
    Allocator,
    /// `libskinflint_probe.so`.
    Probe,
    /// `skinflint`.
    Tool,
}

/// An environment variable.
pub struct Variable {
    /// Its name, with the closing zero byte that the recorder needs.
    pub name_z: &'static [u8],
    /// The program or library that reads it.
    pub reader: Reader,
    /// What it is for.
    pub meaning: &'static str,
    /// The values that it may have.
    pub values: &'static str,
    /// What holds without it.
    pub default: &'static str,
}

impl Variable {
    /// Returns the name without the zero byte.
    #[unsafe(link_section = ".text.skinflint_first")]
    pub fn name(&self) -> &'static str {
        match self.name_z.split_last() {
            Some((0, name)) => core::str::from_utf8(name).unwrap_or(""),
            _ => "",
        }
    }
}

/// The path of the collector's socket; set by `skinflint run` and `record`. Without it the recorder
/// passes every call through.
pub const SOCKET: Variable = Variable {
    name_z: b"SKINFLINT_SOCKET\0",
    reader: Reader::Recorder,
    meaning: "path of the collector's socket; set by `skinflint run` and `skinflint record`",
    values: "a path",
    default: "none: nothing is recorded",
};

/// The number of the signal that makes a mark in the recorded program (`--mark-signal`).
pub const MARK_SIGNAL: Variable = Variable {
    name_z: b"SKINFLINT_MARK_SIGNAL\0",
    reader: Reader::Recorder,
    meaning: "number of the signal that makes a mark; set by `--mark-signal`",
    values: "a signal's number",
    default: "none",
};

/// Where the recorder library is, if not beside the program.
pub const RECORDER: Variable = Variable {
    name_z: b"SKINFLINT_RECORDER\0",
    reader: Reader::Tool,
    meaning: "where libskinflint_record.so is",
    values: "a path",
    default: "beside the program, in ../lib/skinflint, or carried in the program",
};

/// Where the allocator library is, if not beside the program.
pub const ALLOCATOR: Variable = Variable {
    name_z: b"SKINFLINT_ALLOCATOR\0",
    reader: Reader::Tool,
    meaning: "where libskinflint.so is",
    values: "a path",
    default: "beside the program, in ../lib/skinflint, or carried in the program",
};

/// Whether the allocator writes its figures when the program ends, and where to.
pub const STATS: Variable = Variable {
    name_z: b"SKINFLINT_STATS\0",
    reader: Reader::Allocator,
    meaning: "figures as JSON when the program ends; set to 1 by `skinflint exec --stats`",
    values: "0, 1 for stderr, or a file to append to (%p is the process id)",
    default: "0",
};

/// The reaction when the program frees an address that it may not free.
pub const BAD_FREE: Variable = Variable {
    name_z: b"SKINFLINT_BAD_FREE\0",
    reader: Reader::Allocator,
    meaning: "the reaction to a fault of the program: a line and abort, a line, nothing",
    values: "abort, warn or ignore",
    default: "abort",
};

/// Checks beyond those that are always there.
pub const HARDEN: Variable = Variable {
    name_z: b"SKINFLINT_HARDEN\0",
    reader: Reader::Allocator,
    meaning: "further checks: 1 sample; 2 also guard; 3 also canary and zero; 4 also poison and quarantine",
    values: "0 to 4, or a list of sample, guard, canary, zero, poison and quarantine with commas",
    default: "0",
};

/// How often a block is placed between guard pages.
pub const SAMPLE_EVERY: Variable = Variable {
    name_z: b"SKINFLINT_SAMPLE_EVERY\0",
    reader: Reader::Allocator,
    meaning: "with sample: one in so many blocks stands between guard pages",
    values: "a number from 1 to 1000000000",
    default: "5000",
};

/// How many bytes of freed blocks wait in the quarantine.
pub const QUARANTINE_BYTES: Variable = Variable {
    name_z: b"SKINFLINT_QUARANTINE_BYTES\0",
    reader: Reader::Allocator,
    meaning: "with quarantine: most bytes of freed blocks that wait to be used again",
    values: "a number of bytes, optionally with K, M or G",
    default: "16M",
};

/// Whether a thread gives memory back while the program idles.
pub const PURGE: Variable = Variable {
    name_z: b"SKINFLINT_PURGE\0",
    reader: Reader::Allocator,
    meaning: "whether a thread gives memory back while the program idles",
    values: "on or off",
    default: "on",
};

/// How long free pages are kept, in milliseconds.
pub const DECAY_MS: Variable = Variable {
    name_z: b"SKINFLINT_DECAY_MS\0",
    reader: Reader::Allocator,
    meaning: "milliseconds for which free pages are kept before they are given back",
    values: "a number from 0 to 3600000",
    default: "500",
};

/// Whether the allocator checks its invariants inside real programs.
pub const CHECK: Variable = Variable {
    name_z: b"SKINFLINT_CHECK\0",
    reader: Reader::Allocator,
    meaning: "checks its own invariants again and again: 1 counters, 2 lists, 3 bits; aborts at the first that does not hold, says at the end how often they held",
    values: "a number from 0 to 3",
    default: "0",
};

/// Whether the kernel may back the heap with huge pages.
pub const THP: Variable = Variable {
    name_z: b"SKINFLINT_THP\0",
    reader: Reader::Allocator,
    meaning: "whether the kernel may back the heap with huge pages",
    values: "on or off",
    default: "off",
};

/// Whether pages whose live blocks do not overlap are made equal, for the kernel to merge.
pub const MESH: Variable = Variable {
    name_z: b"SKINFLINT_MESH\0",
    reader: Reader::Allocator,
    meaning: "whether pages with disjoint blocks are made equal while the program idles, for the kernel (KSM) to keep one of them",
    values: "on, off, or auto: where /sys/kernel/mm/ksm/run is 1 at the start",
    default: "auto",
};

/// The fit profile, made from traces of earlier runs.
pub const FIT: Variable = Variable {
    name_z: b"SKINFLINT_FIT\0",
    reader: Reader::Allocator,
    meaning: "path of a fit profile (`skinflint fit`), read once at the start",
    values: "a path",
    default: "none",
};

/// Whether a sampled heap profile is kept.
pub const PROFILE: Variable = Variable {
    name_z: b"SKINFLINT_PROFILE\0",
    reader: Reader::Allocator,
    meaning: "whether a sampled heap profile is kept from the start; set to on by `skinflint exec --profile`; `skinflint agent` may then ask for it",
    values: "on or off",
    default: "off",
};

/// The mean distance of the profile's samples.
pub const PROFILE_RATE: Variable = Variable {
    name_z: b"SKINFLINT_PROFILE_RATE\0",
    reader: Reader::Allocator,
    meaning: "with a profile: requested bytes between two samples, on average",
    values: "a number of bytes from 1K to 1G, optionally with K, M or G",
    default: "512K",
};

/// Where the profile goes when the program ends.
pub const PROFILE_FILE: Variable = Variable {
    name_z: b"SKINFLINT_PROFILE_FILE\0",
    reader: Reader::Allocator,
    meaning: "with a profile: file in which it is written when the program ends, and the same with .peak for what was in use at the peak (%p is the process id)",
    values: "a path",
    default: "none: the program asks for it (skinflint_profile_write)",
};

/// Memory that is held back for when the system refuses more.
pub const RESERVE: Variable = Variable {
    name_z: b"SKINFLINT_RESERVE\0",
    reader: Reader::Allocator,
    meaning: "bytes kept back as the heap grows, no more than it holds and half of what is available, and given up when the system refuses more",
    values: "a number of bytes, optionally with K, M or G",
    default: "0",
};

/// Whether a process has a reserve though its parent has one.
pub const RESERVE_CHILDREN: Variable = Variable {
    name_z: b"SKINFLINT_RESERVE_CHILDREN\0",
    reader: Reader::Allocator,
    meaning: "whether the children of a process that keeps a reserve keep one, too",
    values: "on or off",
    default: "off",
};

/// Whether `skinflint memory` may ask for figures while the program runs.
pub const MEMORY: Variable = Variable {
    name_z: b"SKINFLINT_MEMORY\0",
    reader: Reader::Allocator,
    meaning: "whether `skinflint memory` of the same user may ask for figures while the program runs; set to on by `skinflint exec --memory`; where it is not set, a kept profile opens the socket, too",
    values: "off, on (a socket in XDG_RUNTIME_DIR/skinflint or /tmp/skinflint-USER), or another folder",
    default: "off",
};

/// The file of the page of counted calls.
pub const PROBE: Variable = Variable {
    name_z: b"SKINFLINT_PROBE\0",
    reader: Reader::Probe,
    meaning: "file in which calls are counted; set by `skinflint compare` for its check round",
    values: "a path",
    default: "none: nothing is counted",
};

/// Where the probe library is, if not beside the program.
pub const PROBE_LIBRARY: Variable = Variable {
    name_z: b"SKINFLINT_PROBE_LIBRARY\0",
    reader: Reader::Tool,
    meaning: "where libskinflint_probe.so is",
    values: "a path",
    default: "beside the program, in ../lib/skinflint, or carried in the program",
};

/// Where the replayer is, if not beside the program.
pub const REPLAYER: Variable = Variable {
    name_z: b"SKINFLINT_REPLAYER\0",
    reader: Reader::Tool,
    meaning: "where skinflint-replay is",
    values: "a path",
    default: "beside the program, in ../lib/skinflint, or carried in the program",
};

/// The list of the allocators that `cargo xtask peers` built.
pub const PEERS: Variable = Variable {
    name_z: b"SKINFLINT_PEERS\0",
    reader: Reader::Tool,
    meaning: "list of other allocators, as `cargo xtask peers` writes it",
    values: "a path of a peers.json",
    default: "../bench/alloc/peers/peers.json or ../lib/skinflint/peers/peers.json, from the program",
};

/// Where the programs of `skinflint js` are, if not beside it.
pub const JS: Variable = Variable {
    name_z: b"SKINFLINT_JS\0",
    reader: Reader::Tool,
    meaning: "folder of the programs of `skinflint js`",
    values: "a path",
    default: "beside the program, in ../lib/skinflint, or ../js/release",
};

/// All variables.
pub const ALL: &[Variable] = &[
    SOCKET,
    MARK_SIGNAL,
    RECORDER,
    ALLOCATOR,
    STATS,
    BAD_FREE,
    HARDEN,
    SAMPLE_EVERY,
    QUARANTINE_BYTES,
    PURGE,
    DECAY_MS,
    CHECK,
    THP,
    MESH,
    FIT,
    PROFILE,
    PROFILE_RATE,
    PROFILE_FILE,
    RESERVE,
    RESERVE_CHILDREN,
    MEMORY,
    PROBE,
    PROBE_LIBRARY,
    REPLAYER,
    PEERS,
    JS,
];

/// Variables that tests, benches and build scripts read, and nothing that is installed. Names that begin with
/// SKINFLINT_TEST_ are tests' own.
pub const OF_TESTS: &[&str] = &[
    "SKINFLINT_ALONE",
    "SKINFLINT_BUILT",
    "SKINFLINT_BYTES",
    "SKINFLINT_COUNT",
    "SKINFLINT_JS_STRESS",
    "SKINFLINT_LONG",
    "SKINFLINT_NO_SKIPS",
    "SKINFLINT_OTHER",
    "SKINFLINT_REPORT_LIBRARY",
    "SKINFLINT_SEED",
    "SKINFLINT_SKIPPED",
    "SKINFLINT_TABS",
    "SKINFLINT_WRITE_SCHEMA",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_ends_with_zero_and_has_our_prefix() {
        for variable in ALL {
            assert_eq!(variable.name_z.last(), Some(&0));
            assert!(
                variable.name().starts_with("SKINFLINT_"),
                "{}",
                variable.name()
            );
            assert!(!variable.meaning.is_empty());
            assert!(!variable.values.is_empty() && !variable.default.is_empty());
        }
    }

    #[test]
    fn every_name_is_there_once() {
        for (i, variable) in ALL.iter().enumerate() {
            assert!(ALL[..i].iter().all(|v| v.name() != variable.name()));
        }
    }
}
