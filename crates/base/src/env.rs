//! Every environment variable that Skinflint reads or sets.
//!
//! One table, so that the help text, the recorder and the collector cannot disagree.

/// A variable.
pub struct Variable {
    /// Its name, with the closing zero byte that the recorder needs.
    pub name_z: &'static [u8],
    /// Who reads it and what for.
    pub meaning: &'static str,
}

impl Variable {
    /// The name without the zero byte.
    pub fn name(&self) -> &'static str {
        match self.name_z.split_last() {
            Some((0, name)) => core::str::from_utf8(name).unwrap_or(""),
            _ => "",
        }
    }
}

/// Path of the collector's socket; set by `skinflint run` and `record`. Without it the recorder
/// passes every call through.
pub const SOCKET: Variable = Variable {
    name_z: b"SKINFLINT_SOCKET\0",
    meaning: "recorder: path of the collector's socket; set by `skinflint run` and `skinflint record`",
};

/// Signal number that makes a mark in the recorded program (`--mark-signal`).
pub const MARK_SIGNAL: Variable = Variable {
    name_z: b"SKINFLINT_MARK_SIGNAL\0",
    meaning: "recorder: number of the signal that makes a mark; set by `--mark-signal`",
};

/// Where the recorder library is, if not beside the program.
pub const RECORDER: Variable = Variable {
    name_z: b"SKINFLINT_RECORDER\0",
    meaning: "skinflint: path of libskinflint_record.so, if it is not beside the program or in ../lib/skinflint",
};

/// Where the allocator library is, if not beside the program.
pub const ALLOCATOR: Variable = Variable {
    name_z: b"SKINFLINT_ALLOCATOR\0",
    meaning: "skinflint: path of libskinflint.so, if it is not beside the program or in ../lib/skinflint",
};

/// Figures at the end of the program.
pub const STATS: Variable = Variable {
    name_z: b"SKINFLINT_STATS\0",
    meaning: "allocator: figures on stderr when the program ends; set by `skinflint exec --stats`",
};

/// What an earlier run taught.
pub const FIT: Variable = Variable {
    name_z: b"SKINFLINT_FIT\0",
    meaning: "allocator: path of a fit profile (`skinflint fit`), read once at the start",
};

/// All of them.
pub const ALL: &[Variable] = &[SOCKET, MARK_SIGNAL, RECORDER, ALLOCATOR, STATS, FIT];

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
        }
    }
}
