//! The plan by which the recorder hooks an allocator that is linked into a program: the collector makes it from the
//! program's file, the recorder checks it and carries it out.
//!
//! ```text
//!   collector: symbols, first instructions ─► words in the region ─► recorder: the same bytes there? ─► a jump
//!
//!   function:  [ endbr64 | 5 bytes and more: `expected` ][ the rest … ]
//!                           └─► moved to a page near by, with `fixes`, and a jump back to the rest
//! ```
//!
//! P1  A hook that was decoded keeps within its arrays: lengths, places of fixes and numbers of arguments are checked
//!     there, and nowhere later.
//! P2  A plan says nothing about the running process: addresses are those of the file, and the recorder compares every
//!     byte before it writes one.
//!
//! Not here: which functions there are (the collector), how they are hooked (the recorder).

/// The bits of an address in a word of a plan.
const ADDRESS: u64 = (1 << 48) - 1;
/// The most bytes that are replaced or moved: fewer than five are followed by one instruction of at most fifteen.
pub const EXPECTED_BYTES: usize = 24;
/// The most bytes of the moved instructions: short jumps among them become long ones.
pub const MOVED_BYTES: usize = 40;
/// The most places that depend on where the moved instructions lie.
pub const FIXES: usize = 4;
/// The bytes of the jump that is written over the first instructions.
pub const JUMP_BYTES: usize = 5;
/// The number of integer arguments that are passed in registers.
pub const ARGUMENTS: usize = 6;
/// The number of allocators in one program that are told apart.
pub const ALLOCATORS: usize = 4;
/// Flag of [`Fix::at`]: the place is eight bytes, and holds the address itself.
pub const ABSOLUTE: u8 = 0x80;
/// Stands for "no argument".
pub const NONE: u8 = 0xff;

/// What a call of a function does.
pub mod what {
    /// It returns a block, or null.
    pub const ACQUIRE: u8 = 1;
    /// It ends a block.
    pub const RELEASE: u8 = 2;
    /// It returns what a block has become, or null, and then the block is as it was.
    pub const CHANGE: u8 = 3;
    /// As `CHANGE`, but null ends the block.
    pub const CHANGE_OR_RELEASE: u8 = 4;
    /// It returns 0 and leaves a block at the address that is its argument `block`.
    pub const ACQUIRE_INTO: u8 = 5;
    /// It changes a block where it is, and returns its usable bytes.
    pub const CHANGE_IN_PLACE: u8 = 6;
    /// It returns the usable bytes of a block: it is called, and not hooked.
    pub const MEASURE: u8 = 7;
    /// It does something that is not recorded: its calls are counted.
    pub const COUNT: u8 = 8;
}

/// By which rule an allocator rounds sizes up, where no function of its own tells.
pub mod scheme {
    /// It is not known.
    pub const UNKNOWN: u8 = 0;
    /// jemalloc's classes, pages of 4 KiB; an alignment is an argument.
    pub const JEMALLOC: u8 = 1;
    /// As `JEMALLOC`; the low six bits of an argument are the logarithm of the alignment.
    pub const JEMALLOC_FLAGS: u8 = 2;
}

/// How a function is called, by the numbers of its arguments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Call {
    /// What the call does: a number of [`what`].
    pub what: u8,
    /// The argument that is a block, or the address for one.
    pub block: u8,
    /// The argument that is a size in bytes, or of each element; [`NONE`] if it is not told.
    pub size: u8,
    /// The argument that is the number of elements.
    pub count: u8,
    /// The argument that is an alignment.
    pub align: u8,
    /// How the allocator rounds sizes up: a number of [`scheme`].
    pub scheme: u8,
    /// The function's code in an event.
    pub func: u8,
}

/// A place in the moved instructions: four bytes that are a distance from the end of their instruction, or an address
/// ([`ABSOLUTE`]).
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Fix {
    /// Where the bytes are, and whether they are an address.
    pub at: u8,
    /// Where their instruction ends.
    pub end: u8,
    /// The address that they lead to, in the file.
    pub target: u64,
}

impl Fix {
    /// Returns the number of bytes.
    const fn bytes(&self) -> usize {
        if self.at & ABSOLUTE != 0 { 8 } else { 4 }
    }
}

/// A function of an allocator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hook {
    /// Where the jump is written, or the function begins if it is only called; in the file.
    pub address: u64,
    /// Which of the program's allocators it is of.
    pub allocator: u8,
    /// How it is called.
    pub call: Call,
    /// The number of bytes that are moved; 0 if it is only called.
    pub length: u8,
    /// These bytes.
    pub expected: [u8; EXPECTED_BYTES],
    /// The number of bytes that they become.
    pub moved_length: u8,
    /// What they become.
    pub moved: [u8; MOVED_BYTES],
    /// The number of places to fix in them.
    pub fix_count: u8,
    /// These places.
    pub fixes: [Fix; FIXES],
}

/// The words of one hook.
pub const HOOK_WORDS: usize = 2 + (EXPECTED_BYTES + MOVED_BYTES) / 8 + FIXES;
/// The size of a plan in a region, in bytes: the number of hooks, and the hooks.
pub const PLAN_BYTES: usize = 32 << 10;
/// The most hooks of a plan.
pub const MOST_HOOKS: usize = (PLAN_BYTES / 8 - 1) / HOOK_WORDS;

const _: () = assert!(EXPECTED_BYTES.is_multiple_of(8) && MOVED_BYTES.is_multiple_of(8));
const _: () = assert!(EXPECTED_BYTES >= JUMP_BYTES - 1 + 15);

const BYTE: u64 = 0xff;

impl Hook {
    /// Returns a function that is called and not hooked.
    pub fn to_call(address: u64, allocator: u8, call: Call) -> Hook {
        Hook {
            address,
            allocator,
            call,
            length: 0,
            expected: [0; EXPECTED_BYTES],
            moved_length: 0,
            moved: [0; MOVED_BYTES],
            fix_count: 0,
            fixes: [Fix::default(); FIXES],
        }
    }

    /// Returns the words of the hook.
    pub fn encode(&self) -> [u64; HOOK_WORDS] {
        let mut words = [0; HOOK_WORDS];
        let call = self.call;
        words[0] = self.address & ADDRESS | u64::from(call.what) << 48 | u64::from(call.func) << 56;
        let small = [
            call.block,
            call.size,
            call.count,
            self.length,
            self.moved_length,
            self.fix_count,
            self.allocator,
            call.align & 15 | call.scheme << 4,
        ];
        words[1] = u64::from_le_bytes(small);
        let bytes = self.expected.chunks(8).chain(self.moved.chunks(8));
        for (word, bytes) in words[2..].iter_mut().zip(bytes) {
            let mut eight = [0; 8];
            eight.copy_from_slice(bytes);
            *word = u64::from_le_bytes(eight);
        }
        let fixes = &mut words[HOOK_WORDS - FIXES..];
        for (word, fix) in fixes.iter_mut().zip(self.fixes) {
            *word = fix.target & ADDRESS | u64::from(fix.at) << 48 | u64::from(fix.end) << 56;
        }
        words
    }

    /// Returns the hook that the words are of; `None` if something in it is out of bounds (P1).
    pub fn decode(words: &[u64; HOOK_WORDS]) -> Option<Hook> {
        let [
            block,
            size,
            count,
            length,
            moved_length,
            fix_count,
            allocator,
            rounding,
        ] = words[1].to_le_bytes();
        let call = Call {
            what: (words[0] >> 48 & BYTE) as u8,
            block,
            size,
            count,
            align: match rounding & 15 {
                15 => NONE,
                number => number,
            },
            scheme: rounding >> 4,
            func: (words[0] >> 56) as u8,
        };
        let mut hook = Hook::to_call(words[0] & ADDRESS, allocator, call);
        (hook.length, hook.moved_length, hook.fix_count) = (length, moved_length, fix_count);
        let (bytes, fixes) = words[2..].split_at(HOOK_WORDS - FIXES - 2);
        let into = hook.expected.chunks_mut(8).chain(hook.moved.chunks_mut(8));
        for (into, word) in into.zip(bytes) {
            into.copy_from_slice(&word.to_le_bytes());
        }
        for (fix, word) in hook.fixes.iter_mut().zip(fixes) {
            fix.target = word & ADDRESS;
            (fix.at, fix.end) = ((word >> 48 & BYTE) as u8, (word >> 56) as u8);
        }
        hook.is_within().then_some(hook)
    }

    fn is_within(&self) -> bool {
        let call = self.call;
        let is_argument = |number: u8| usize::from(number) < ARGUMENTS || number == NONE;
        let has_block = matches!(call.what, what::ACQUIRE | what::MEASURE | what::COUNT)
            || usize::from(call.block) < ARGUMENTS;
        let is_called = (what::ACQUIRE..=what::COUNT).contains(&call.what)
            && has_block
            && [call.block, call.size, call.count, call.align]
                .into_iter()
                .all(is_argument)
            && usize::from(self.allocator) < ALLOCATORS;
        let (length, moved) = (usize::from(self.length), usize::from(self.moved_length));
        let is_whole = match call.what {
            what::MEASURE => length == 0 && moved == 0,
            _ => {
                (JUMP_BYTES..=EXPECTED_BYTES).contains(&length)
                    && (1..=MOVED_BYTES).contains(&moved)
            }
        };
        let has_place = |fix: &Fix| {
            let (at, end) = (usize::from(fix.at & !ABSOLUTE), usize::from(fix.end));
            at + fix.bytes() <= end && end <= moved
        };
        let fixes = self.fixes.get(..usize::from(self.fix_count));
        is_called && is_whole && fixes.is_some_and(|fixes| fixes.iter().all(has_place))
    }

    /// Returns the moved instructions as they are at `at`, in a program that is loaded `bias` above its file's
    /// addresses, and their number of bytes; `None` if something that they need is too far away.
    pub fn moved_to(&self, at: u64, bias: u64) -> Option<([u8; MOVED_BYTES], usize)> {
        let mut moved = self.moved;
        for fix in self.fixes.get(..usize::from(self.fix_count))? {
            let target = fix.target.wrapping_add(bias);
            let place = usize::from(fix.at & !ABSOLUTE);
            let place = moved.get_mut(place..place + fix.bytes())?;
            if fix.at & ABSOLUTE != 0 {
                place.copy_from_slice(&target.to_le_bytes());
            } else {
                let from = at.wrapping_add(u64::from(fix.end));
                place.copy_from_slice(&distance(from, target)?.to_le_bytes());
            }
        }
        Some((moved, usize::from(self.moved_length)))
    }
}

/// Returns the bytes that jemalloc 5 gives for a request: quanta of 16 up to 128, and then four classes for each power
/// of two. A request with an alignment gets the class of its size rounded up to that, or a large one.
pub fn jemalloc_class(size: u64, align: u64) -> u64 {
    const PAGE: u64 = 4096;
    const SMALL_MOST: u64 = 14 << 10;
    const LARGE_LEAST: u64 = 16 << 10;
    let class = |size: u64| match size {
        0..=8 => 8,
        9..=128 => size.next_multiple_of(16),
        _ => {
            let spacing = 1 << ((size - 1).ilog2() - 2);
            size.checked_next_multiple_of(spacing).unwrap_or(size)
        }
    };
    if align <= 1 {
        return class(size);
    }
    if size <= SMALL_MOST && align <= PAGE {
        let rounded = class(size.next_multiple_of(align));
        if rounded < LARGE_LEAST {
            return rounded;
        }
    }
    class(size).max(LARGE_LEAST)
}

/// Returns the distance between two addresses, if a jump can have it.
pub fn distance(from: u64, to: u64) -> Option<i32> {
    i32::try_from(to.wrapping_sub(from) as i64).ok()
}

/// Returns a jump from `at` to an address; `None` if it is too far.
pub fn jump(at: u64, to: u64) -> Option<[u8; JUMP_BYTES]> {
    const JMP: u8 = 0xe9;
    let [a, b, c, d] = distance(at.wrapping_add(JUMP_BYTES as u64), to)?.to_le_bytes();
    Some([JMP, a, b, c, d])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hook() -> Hook {
        let call = Call {
            what: what::CHANGE,
            block: 0,
            size: 2,
            count: 1,
            align: 3,
            scheme: scheme::JEMALLOC_FLAGS,
            func: 2,
        };
        let mut hook = Hook::to_call(0x1234, 3, call);
        (hook.length, hook.moved_length, hook.fix_count) = (7, 9, 2);
        hook.expected = core::array::from_fn(|at| at as u8);
        hook.moved = core::array::from_fn(|at| 100 + at as u8);
        hook.fixes[0] = Fix {
            at: 1,
            end: 5,
            target: 0xffff_8000_1234,
        };
        hook.fixes[1] = Fix {
            at: 4,
            end: 9,
            target: 8,
        };
        hook
    }

    #[test]
    fn a_hook_comes_back_from_its_words() {
        let there = hook();
        assert_eq!(Hook::decode(&there.encode()), Some(there));
        let measure = Call {
            what: what::MEASURE,
            block: 0,
            size: NONE,
            count: NONE,
            align: NONE,
            scheme: scheme::UNKNOWN,
            func: 0,
        };
        let there = Hook::to_call(0x99, 0, measure);
        assert_eq!(Hook::decode(&there.encode()), Some(there));
    }

    #[test]
    fn what_is_out_of_bounds_is_no_hook() {
        let broken: [fn(&mut Hook); 13] = [
            |hook| hook.length = 4,
            |hook| hook.length = 25,
            |hook| hook.moved_length = 0,
            |hook| hook.moved_length = 41,
            |hook| hook.fix_count = 5,
            |hook| hook.fixes[1].end = 10,
            |hook| hook.fixes[1].at = 6,
            |hook| hook.fixes[1].at = ABSOLUTE | 2,
            |hook| hook.allocator = 4,
            |hook| hook.call.what = 0,
            |hook| hook.call.what = 9,
            |hook| hook.call.size = 6,
            |hook| hook.call.block = NONE,
        ];
        for (number, break_it) in broken.into_iter().enumerate() {
            let mut hook = hook();
            break_it(&mut hook);
            assert_eq!(Hook::decode(&hook.encode()), None, "{number}");
        }
    }

    #[test]
    fn every_plan_of_any_words_is_read_or_refused() {
        let mut random = crate::random::Random::new(7);
        for _ in 0..10_000 {
            let words = core::array::from_fn(|_| random.bits());
            if let Some(hook) = Hook::decode(&words) {
                let _ = hook.moved_to(random.bits(), random.bits());
            }
        }
    }

    #[test]
    fn classes_are_those_that_jemalloc_writes_down() {
        // Its manual, "size classes", with a page of 4 KiB; and alignments, as `nallocx` says.
        let known = [
            (1, 0, 8),
            (8, 1, 8),
            (9, 0, 16),
            (17, 0, 32),
            (112, 0, 112),
            (128, 0, 128),
            (129, 0, 160),
            (256, 0, 256),
            (257, 0, 320),
            (1025, 0, 1280),
            (12_289, 0, 14_336),
            (14_337, 0, 16_384),
            (16_385, 0, 20_480),
            (1 << 20, 0, 1 << 20),
            ((1 << 20) + 1, 0, 1280 << 10),
            (1504, 32, 1536),
            (100, 64, 128),
            (100, 4096, 4096),
            (8192, 8192, 16_384),
            (14_000, 4096, 16_384),
            (20_000, 4096, 20_480),
        ];
        for (size, align, class) in known {
            assert_eq!(
                jemalloc_class(size, align),
                class,
                "{size}, aligned to {align}"
            );
        }
        assert_eq!(jemalloc_class(u64::MAX, 0), u64::MAX);
    }

    #[test]
    fn distances_are_from_the_ends_of_instructions() {
        let mut hook = hook();
        hook.fix_count = 1;
        hook.fixes[0].target = 0x2000;
        // Moved to 0x7000, loaded 0x1000 above: the instruction ends at 0x7005, and what it means is at 0x3000.
        let (moved, length) = hook.moved_to(0x7000, 0x1000).expect("near");
        assert_eq!(length, 9);
        assert_eq!(moved[0], 100);
        assert_eq!(moved[1..5], (0x3000_i32 - 0x7005).to_le_bytes());
        assert_eq!(moved[5..], hook.moved[5..]);
        assert!(hook.moved_to(1 << 40, 0x1000).is_none());
        // An address is the same from wherever.
        (hook.fixes[0].at, hook.fixes[0].end) = (ABSOLUTE | 1, 9);
        let (moved, _) = hook.moved_to(1 << 40, 0x1000).expect("an address");
        assert_eq!(moved[1..9], 0x3000_u64.to_le_bytes());
        assert_eq!(jump(0x1000, 0x1005), Some([0xe9, 0, 0, 0, 0]));
        assert_eq!(jump(0x1000, 0x1000), Some([0xe9, 0xfb, 0xff, 0xff, 0xff]));
        assert_eq!(jump(0, 1 << 31), Some([0xe9, 0xfb, 0xff, 0xff, 0x7f]));
        assert_eq!(jump(0, (1 << 31) + 5), None);
    }
}
