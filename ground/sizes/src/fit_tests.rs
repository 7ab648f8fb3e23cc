//! Tests of the profile format: a file written by hand, each fault alone, and random damage.
//!
//! ```text
//!   by hand ─► parse ─► fields        encode ─► the same bytes        damage ─► an error, never a panic
//! ```
//!
//! T1  The bytes of `by_hand` were written from FIT.md and not by `encode`.
//! T2  Random damage is seeded, and a failure prints the seed.

use skinflint_base::random::Random;

use super::*;

const EARNED: [u16; 2] = [608, 4368];
const SPANS: [(u16, u8); 3] = [(16, 1), (608, 10), (4368, 13)];

fn profile() -> Profile<'static> {
    Profile {
        earned: &EARNED,
        spans: &SPANS,
        spare_pages: 2048,
        program: "sqlite3",
        build_id: &[0xab, 0xcd],
        flags: FLAG_SHORT,
        traces: 2,
        events: 0x0102_0304_0506,
        first_unix_ns: 1_700_000_000_000_000_000,
        last_unix_ns: 1_800_000_000_000_000_000,
    }
}

fn written(profile: &Profile<'_>) -> Result<Vec<u8>, FitError> {
    let mut out = [0xee; FILE_BYTES_MAX];
    encode(profile, &mut out).map(|len| out[..len].to_vec())
}

/// Returns the file that was written by hand (T1).
fn by_hand() -> Vec<u8> {
    let mut bytes = vec![0x89, b'S', b'F', b'P', 13, 10, 26, 10, 1, 0, 1, 0];
    bytes.extend([93, 0, 0, 0]); // 64 + 4 + 12 + 7 + 2 + 4
    bytes.extend([2, 0, 3, 0, 7, 2, 2, 0]); // counts, lengths of the texts, flags
    bytes.extend([0, 8, 0, 0, 2, 0, 0, 0]); // 2,048 pages, 2 traces
    bytes.extend([6, 5, 4, 3, 2, 1, 0, 0]);
    bytes.extend(1_700_000_000_000_000_000u64.to_le_bytes());
    bytes.extend(1_800_000_000_000_000_000u64.to_le_bytes());
    bytes.extend([0; 8]);
    bytes.extend([0x60, 2, 0x10, 0x11]); // 608, 4,368
    bytes.extend([16, 0, 1, 0, 0x60, 2, 10, 0, 0x10, 0x11, 13, 0]);
    bytes.extend(b"sqlite3");
    bytes.extend([0xab, 0xcd]);
    bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
    bytes
}

/// Corrects the checksum, so that the check of the fault is reached.
fn resealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let end = bytes.len() - 4;
    let crc = crc32fast::hash(&bytes[..end]).to_le_bytes();
    bytes[end..].copy_from_slice(&crc);
    bytes
}

#[test]
fn the_file_by_hand_is_what_is_written_and_read() {
    let bytes = by_hand();
    assert_eq!(bytes.len(), 93);
    assert_eq!(written(&profile()), Ok(bytes.clone()));
    let view = parse(&bytes).expect("good");
    let wanted = profile();
    assert_eq!(view.earned().collect::<Vec<_>>(), EARNED);
    assert_eq!(view.spans().collect::<Vec<_>>(), SPANS);
    assert_eq!((view.spare_pages(), view.program()), (2048, "sqlite3"));
    assert_eq!(
        (view.build_id(), view.flags()),
        (wanted.build_id, FLAG_SHORT)
    );
    assert_eq!((view.traces(), view.events()), (2, wanted.events));
    assert_eq!(view.first_unix_ns(), wanted.first_unix_ns);
    assert_eq!(view.last_unix_ns(), wanted.last_unix_ns);
}

#[test]
fn our_checksum_is_everybodys() {
    let mut random = Random::new(0x1234_5678_9abc_def1);
    // The check value of the CRC catalogues.
    assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
    for len in 0..600 {
        let bytes: Vec<u8> = (0..len).map(|_| random.bits() as u8).collect();
        assert_eq!(crc32(&bytes), crc32fast::hash(&bytes), "{len} bytes");
    }
}

#[test]
fn the_emptiest_and_the_fullest() {
    let empty = written(&Profile::default()).expect("may be written");
    assert_eq!(empty.len(), 68);
    assert_eq!(parse(&empty).expect("good").earned().count(), 0);

    let earned: Vec<u16> = (272..=32_752).step_by(16).collect();
    let earned: Vec<u16> = earned
        .into_iter()
        .filter(|c| !is_base_class(u32::from(*c)))
        .take(EARNED_MAX)
        .collect();
    let mut spans: Vec<(u16, u8)> = (16..=32_768u32)
        .step_by(16)
        .filter(|class| is_base_class(*class))
        .map(|class| (class as u16, crate::spans::pages_max(class) as u8))
        .collect();
    // 72 base classes and 120 earned ones: no other class could have a length.
    assert_eq!(spans.len(), 72);
    spans.extend(earned.iter().map(|class| (*class, 15)));
    spans.sort_unstable();
    let name = "n".repeat(PROGRAM_BYTES_MAX);
    let full = Profile {
        earned: &earned,
        spans: &spans,
        spare_pages: SPARE_PAGES_MAX,
        program: &name,
        build_id: &[7; BUILD_ID_BYTES_MAX],
        ..profile()
    };
    let bytes = written(&full).expect("may be written");
    assert_eq!(bytes.len(), FILE_BYTES_MAX - 4 * (SPANS_MAX - 192));
    let view = parse(&bytes).expect("good");
    assert_eq!(view.earned().collect::<Vec<_>>(), earned);
    assert_eq!(view.spans().collect::<Vec<_>>(), spans);
}

/// Returns the file written by hand with other bytes at one place.
fn with(at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut file = by_hand();
    file[at..at + bytes.len()].copy_from_slice(bytes);
    file
}

#[track_caller]
fn faulty(bytes: &[u8], wanted: FitError) {
    assert_eq!(parse(bytes).expect_err("damaged"), wanted);
}

#[test]
fn each_fault_of_the_whole_has_its_own_error() {
    faulty(&[], FitError::Empty);
    faulty(&with(1, b"X"), FitError::NotAProfile);
    faulty(b"\x89SFT\r\n\x1a\n\x01", FitError::NotAProfile);
    faulty(&with(8, &[2]), FitError::Version(2));
    // Another version may have another checksum elsewhere: the checksum is not looked at.
    faulty(&resealed(with(8, &[0, 1])), FitError::Version(256));
    faulty(&resealed(with(10, &[9])), FitError::Scheme(9));
    let cut = |bytes, needed| FitError::Cut { bytes, needed };
    faulty(&by_hand()[..5], cut(5, 68));
    faulty(&by_hand()[..70], cut(70, 93));
    let mut longer = by_hand();
    longer.push(0);
    let (bytes, needed) = (94, 93);
    faulty(&longer, FitError::TooLong { bytes, needed });
    faulty(&with(80, &[0]), FitError::Checksum);
    let (said, needed) = (93, 94);
    faulty(&resealed(with(20, &[8])), FitError::Length { said, needed });
}

#[test]
fn each_fault_of_a_field_has_its_own_error() {
    let field = |at, bytes: &[u8], wanted| faulty(&resealed(with(at, bytes)), wanted);
    let pages = |class, pages| FitError::SpanPages { class, pages };
    field(16, &[121], FitError::EarnedCount(121));
    field(18, &[1, 1], FitError::SpanCount(257));
    field(21, &[65], FitError::BuildId(65));
    field(64, &[0x61], FitError::EarnedStep(609));
    field(64, &[0x00, 1], FitError::EarnedRange(256));
    field(66, &[0x10, 0x80], FitError::EarnedRange(32_784));
    field(64, &[0x80, 2], FitError::EarnedIsBase(640));
    field(66, &[0x60, 2], FitError::EarnedOrder(608));
    field(68, &[24], FitError::SpanClass(24));
    field(72, &[0x70, 2], FitError::SpanClass(624));
    field(70, &[0], pages(16, 0));
    field(70, &[5], pages(16, 5));
    field(74, &[17], pages(608, 17));
    field(78, &[1], pages(4368, 1));
    field(72, &[16, 0], FitError::SpanOrder(16));
    field(27, &[8], FitError::Spare((8 << 24) + 2048));
    field(80, &[0xff], FitError::Program);
    for reserved in [23, 56, 63, 71] {
        field(reserved, &[1], FitError::Reserved);
    }
    field(22, &[4], FitError::Reserved);
}

#[test]
fn what_cannot_be_read_is_not_written() {
    let error = |profile: Profile<'_>| written(&profile).expect_err("refused");
    let profile = profile();
    let name = "n".repeat(256);
    assert_eq!(
        error(Profile {
            earned: &[272; 121],
            ..profile
        }),
        FitError::EarnedCount(121)
    );
    assert_eq!(
        error(Profile {
            earned: &[4608],
            ..profile
        }),
        FitError::EarnedIsBase(4608)
    );
    assert_eq!(
        error(Profile {
            spans: &[(16, 1); 257],
            ..profile
        }),
        FitError::SpanCount(257)
    );
    assert_eq!(
        error(Profile {
            spans: &[(4368, 1)],
            ..profile
        }),
        FitError::SpanPages {
            class: 4368,
            pages: 1
        }
    );
    assert_eq!(
        error(Profile {
            program: &name,
            ..profile
        }),
        FitError::Program
    );
    assert_eq!(
        error(Profile {
            build_id: &[0; 65],
            ..profile
        }),
        FitError::BuildId(65)
    );
    assert_eq!(
        error(Profile {
            flags: 4,
            ..profile
        }),
        FitError::Reserved
    );
    assert_eq!(encode(&profile, &mut [0; 100]), Err(FitError::Buffer));
}

#[test]
fn texts_of_two_faults_differ() {
    let all = [
        FitError::Empty,
        FitError::NotAProfile,
        FitError::Version(2),
        FitError::Scheme(2),
        FitError::Cut {
            bytes: 1,
            needed: 2,
        },
        FitError::TooLong {
            bytes: 2,
            needed: 1,
        },
        FitError::Length { said: 1, needed: 2 },
        FitError::Checksum,
        FitError::EarnedCount(1),
        FitError::EarnedStep(1),
        FitError::EarnedRange(1),
        FitError::EarnedIsBase(1),
        FitError::EarnedOrder(1),
        FitError::SpanCount(1),
        FitError::SpanClass(1),
        FitError::SpanPages { class: 1, pages: 1 },
        FitError::SpanOrder(1),
        FitError::Spare(1),
        FitError::Program,
        FitError::BuildId(1),
        FitError::Reserved,
        FitError::Buffer,
    ];
    let mut texts: Vec<&str> = all.iter().map(FitError::reason).collect();
    texts.sort_unstable();
    texts.dedup();
    assert_eq!(texts.len(), all.len());
    assert!(
        all.iter()
            .all(|error| error.to_string().starts_with(error.reason()))
    );
    assert_eq!(
        FitError::SpanPages {
            class: 4368,
            pages: 1
        }
        .to_string(),
        "a span length is out of range (1 pages for 4368)"
    );
}

#[test]
fn every_flipped_bit_and_every_cut_is_found() {
    let bytes = by_hand();
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(parse(&flipped).is_err(), "bit {bit}");
    }
    for len in 0..bytes.len() {
        assert!(parse(&bytes[..len]).is_err(), "{len} bytes");
    }
}

/// fit.F2, fit.F3: what passes is within its ranges, even if the checksum was corrected on purpose.
#[test]
fn no_damage_makes_it_panic_or_believe() {
    let mut random = Random::new(0x9e37_79b9_7f4a_7c15);
    let mut accepted = 0;
    for round in 0..60_000 {
        let seed = random.seed();
        let mut bytes = by_hand();
        for _ in 0..=random.index(3) {
            let at = random.index(bytes.len());
            bytes[at] = random.bits() as u8;
        }
        if random.index(4) == 0 {
            bytes.truncate(random.index(bytes.len() + 1));
        }
        if random.index(4) == 0 {
            bytes.extend((0..random.index(3000)).map(|i| i as u8));
        }
        if bytes.len() >= 20 && round % 8 != 0 {
            bytes[..12].copy_from_slice(&by_hand()[..12]);
            let len = bytes.len() as u32;
            bytes[12..16].copy_from_slice(&len.to_le_bytes());
            bytes = resealed(bytes);
        }
        let Ok(view) = parse(&bytes) else {
            continue;
        };
        accepted += 1;
        assert!(view.earned().count() <= EARNED_MAX, "seed {seed:#x}");
        for class in view.earned() {
            let good = class % 16 == 0 && (272..32_768).contains(&class);
            assert!(
                good && !is_base_class(class.into()),
                "seed {seed:#x}: {class}"
            );
        }
        for (class, pages) in view.spans() {
            let known = is_base_class(class.into()) || view.earned().any(|one| one == class);
            let holds = usize::from(pages) * 4096 >= usize::from(class);
            assert!(
                known && holds && (1..=16).contains(&pages),
                "seed {seed:#x}: {class}"
            );
        }
    }
    assert!(
        accepted > 1000,
        "only {accepted} were good: the test tests nothing"
    );
}

#[test]
fn random_bytes_are_no_profile() {
    let mut random = Random::new(0xdead_beef_cafe_f00d);
    for _ in 0..20_000 {
        let len = random.index(300);
        let mut bytes: Vec<u8> = (0..len).map(|_| random.bits() as u8).collect();
        let start = len.min(12);
        if random.index(2) == 0 {
            bytes[..start].copy_from_slice(&by_hand()[..start]);
        }
        assert!(parse(&bytes).is_err());
    }
}
