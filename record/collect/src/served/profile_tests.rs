//! Profiles written field by field, cut and damaged.

use super::*;

/// Writes messages as a server does.
#[derive(Default)]
pub(crate) struct Message(pub(crate) Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    pub(crate) fn uint(mut self, field: u64, value: u64) -> Message {
        self.varint(field << 3);
        self.varint(value);
        self
    }

    pub(crate) fn bytes(mut self, field: u64, bytes: &[u8]) -> Message {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend(bytes);
        self
    }

    pub(crate) fn packed(self, field: u64, values: &[u64]) -> Message {
        let mut list = Message::default();
        values.iter().for_each(|value| list.varint(*value));
        self.bytes(field, &list.0)
    }

    pub(crate) fn with(self, field: u64, message: Message) -> Message {
        self.bytes(field, &message.0)
    }
}

fn new() -> Message {
    Message::default()
}

/// A profile as Go writes it: `leaf` inlined into `caller`, both called by `main`.
pub(crate) fn of_go(live: [u64; 2], all: [u64; 2], block_bytes: u64) -> Vec<u8> {
    let texts = [
        "",
        "alloc_objects",
        "count",
        "alloc_space",
        "bytes",
        "inuse_objects",
        "inuse_space",
        "leaf",
        "caller",
        "main",
        "/srv/main.go",
    ];
    let kind = |name, unit| new().uint(1, name).uint(2, unit);
    let mut profile = new();
    for (name, unit) in [(1, 2), (3, 4), (5, 2), (6, 4)] {
        profile = profile.with(1, kind(name, unit));
    }
    let label = new().uint(1, 4).uint(3, block_bytes);
    let sample = new()
        .packed(1, &[1, 2])
        .packed(2, &[all[0], all[1], live[0], live[1]])
        .with(3, label);
    let line = |function, line| new().uint(1, function).uint(2, line);
    let function = |id, name| new().uint(1, id).uint(2, name).uint(4, 10).uint(5, id * 10);
    profile = profile.with(2, sample);
    let inlined = new().uint(1, 1).with(4, line(1, 12)).with(4, line(2, 25));
    profile = profile
        .with(4, inlined)
        .with(4, new().uint(1, 2).with(4, line(3, 31)));
    profile = profile
        .with(5, function(1, 7))
        .with(5, function(2, 8))
        .with(5, function(3, 9));
    for text in texts {
        profile = profile.bytes(6, text.as_bytes());
    }
    profile.uint(12, 512 << 10).0
}

#[test]
fn a_profile_of_go_has_stacks_with_inlined_frames_and_figures() {
    let profile =
        Profile::read(&of_go([12, 524_288], [25, 1_048_576], 40_960)).expect("a heap profile");
    assert_eq!((profile.period, profile.samples.len()), (512 << 10, 1));
    let sample = &profile.samples[0];
    let wanted = Figures {
        live_blocks: 12,
        live_bytes: 524_288,
        all: Some((25, 1_048_576)),
    };
    assert_eq!((sample.figures, sample.block_bytes), (wanted, Some(40_960)));
    let frames = profile.frames(&sample.stack);
    let frames: Vec<_> = frames
        .iter()
        .map(|one| (&*one.function, one.line, one.first_line, &*one.file))
        .collect();
    let file = "/srv/main.go";
    assert_eq!(
        frames,
        [
            ("main", 31, 30, file),
            ("caller", 25, 20, file),
            ("leaf", 12, 10, file)
        ]
    );
}

#[test]
fn addresses_without_names_are_named_by_their_file() {
    let kind = |name| new().uint(1, name);
    let mut profile = new().with(1, kind(1)).with(1, kind(2));
    // Not packed, as some write them; the first place has no mapping.
    profile = profile.with(2, new().uint(1, 7).uint(1, 8).uint(2, 3).uint(2, 96));
    profile = profile.with(
        3,
        new()
            .uint(1, 1)
            .uint(2, 0x5000)
            .uint(3, 0x9000)
            .uint(4, 0x1000)
            .uint(5, 3),
    );
    profile = profile.with(4, new().uint(1, 7).uint(3, 0x77));
    profile = profile.with(4, new().uint(1, 8).uint(2, 1).uint(3, 0x5123));
    for text in ["", "objects", "space", "/usr/bin/server"] {
        profile = profile.bytes(6, text.as_bytes());
    }
    let profile = Profile::read(&profile.0).expect("a heap profile");
    let frames = profile.frames(&profile.samples[0].stack);
    let names: Vec<_> = frames.iter().map(|one| &*one.function).collect();
    assert_eq!(names, ["server+0x1123", "0x77"]);
    let wanted = Figures {
        live_blocks: 3,
        live_bytes: 96,
        all: None,
    };
    assert_eq!(
        (profile.samples[0].figures, profile.period),
        (wanted, USUAL_PERIOD)
    );
}

#[test]
fn what_is_no_heap_profile_is_told_apart() {
    let why = |bytes: &[u8]| Profile::read(bytes).expect_err("refused");
    assert!(why(b"<!DOCTYPE html><html>").contains("<!DOCTYPE html><html>"));
    assert!(why(b"").contains("no profile"));
    let mut cpu = new().with(1, new().uint(1, 1)).with(1, new().uint(1, 2));
    for text in ["", "samples", "cpu"] {
        cpu = cpu.bytes(6, text.as_bytes());
    }
    assert!(
        why(&cpu.0).contains("samples, cpu, and no inuse_objects"),
        "{}",
        why(&cpu.0)
    );
}

#[test]
fn a_profile_that_is_cut_anywhere_or_of_any_bytes_is_read_or_refused() {
    let whole = of_go([12, 524_288], [25, 1_048_576], 40_960);
    for end in 0..whole.len() {
        let _ = Profile::read(&whole[..end]).map(|profile| profile.frames(&[1, 2, 3]));
    }
    let mut random = skinflint_base::random::Random::new(5);
    for _ in 0..20_000 {
        let mut damaged = whole.clone();
        for _ in 0..=random.bits() % 4 {
            let at = random.bits() as usize % damaged.len();
            damaged[at] = random.bits() as u8;
        }
        if let Ok(profile) = Profile::read(&damaged) {
            profile
                .samples
                .iter()
                .for_each(|one| drop(profile.frames(&one.stack)));
        }
    }
}
