//! Mappings divided among their owners: the kernel merges neighbouring anonymous mappings, whoever made them.
//!
//! ```text
//!   smaps    |-- a file's data --|------------------ anonymous, one line ------------------|
//!   parts    |-- a file's data --|- its bss -|- stack -|--- anonymous ---|- recorder's -|--|
//! ```
//!
//! V1  A range belongs to the recorder, to a thread's stack or to an object only as far as the recorder, the thread and the
//!     object's headers say. What lies beside it in the same line is the program's.
//! V2  Resident bytes of a part are those of its pages. A line whose pages were not read is not divided: it is an
//!     object's if most of it lies inside the object, and anonymous memory otherwise.
//!
//! What the design rejected: names (`PR_SET_VMA_ANON_NAME`) and guard pages around what the recorder maps, which keep
//! the kernel from merging. The recorder's bss is mapped by the loader, and names need a kernel that has them; and both
//! do nothing for stacks, and for the data of other objects.
//!
//! Not here: where objects end (modules.rs), reading pages (mappings.rs).

use skinflint_trace::{Mapping, MappingKind};

/// Divides mappings (V1). `joined`: those that go on behind an object's bss, by index, and where the object ends;
/// `stacks` and `own`: from and to.
pub fn by_owner(
    mappings: Vec<Mapping>,
    joined: &[(usize, u64)],
    mut stacks: Vec<(u64, u64)>,
    mut own: Vec<(u64, u64)>,
) -> Vec<Mapping> {
    for ranges in [&mut stacks, &mut own] {
        ranges.sort_unstable();
        ranges.dedup();
    }
    let mut done = Vec::with_capacity(mappings.len());
    for (index, mapping) in mappings.into_iter().enumerate() {
        let mut rest = mapping;
        if let Some(&(_, object_end)) = joined.iter().find(|one| one.0 == index) {
            rest = behind_bss(rest, object_end, &mut done);
        }
        let mut parts = Vec::new();
        split_off(rest, &stacks, MappingKind::Stack, "", &mut parts);
        for part in parts {
            split_off(part, &own, MappingKind::Recorder, "[skinflint]", &mut done);
        }
    }
    done
}

/// Divides a mapping where its object ends; returns what is not the object's, or all of it undivided (V2).
fn behind_bss(mut mapping: Mapping, object_end: u64, done: &mut Vec<Mapping>) -> Mapping {
    if mapping.runs_known {
        let mut bss = part(&mapping, mapping.start, object_end);
        bss.runs_known = false;
        bss.runs.clear();
        done.extend((bss.start < bss.end).then_some(bss));
        mapping = part(&mapping, object_end, mapping.end);
    } else if mapping.end - object_end <= object_end - mapping.start {
        return mapping;
    }
    mapping.kind = MappingKind::Anon;
    mapping.name = String::new();
    mapping
}

/// Splits ranges, which are ordered, off an anonymous mapping whose pages are known.
pub fn split_off(
    mapping: Mapping,
    ranges: &[(u64, u64)],
    kind: MappingKind,
    name: &str,
    done: &mut Vec<Mapping>,
) {
    let mut rest = mapping;
    if rest.kind != MappingKind::Anon || !rest.runs_known {
        done.push(rest);
        return;
    }
    for &(start, end) in ranges {
        let (cut_start, cut_end) = (start.max(rest.start), end.min(rest.end));
        if cut_start >= cut_end {
            continue;
        }
        let before = part(&rest, rest.start, cut_start);
        let mut theirs = part(&rest, cut_start, cut_end);
        theirs.kind = kind;
        theirs.name = name.into();
        rest = part(&rest, cut_end, rest.end);
        done.extend((before.start < before.end).then_some(before));
        done.push(theirs);
    }
    if rest.start < rest.end {
        done.push(rest);
    }
}

/// Divides an anonymous mapping whose pages are known by ranges that have names, which are ordered.
pub fn split_names(mapping: Mapping, ranges: &[(u64, u64, &str)], done: &mut Vec<Mapping>) {
    let mut rest = mapping;
    for &(start, end, name) in ranges {
        let before = part(&rest, rest.start, start);
        let mut named = part(&rest, start, end);
        named.name = name.into();
        rest = part(&rest, end, rest.end);
        done.extend((before.start < before.end).then_some(before));
        done.push(named);
    }
    done.extend((rest.start < rest.end || ranges.is_empty()).then_some(rest));
}

/// Returns a part of a mapping whose pages are known; its resident bytes are those of its runs.
pub fn part(mapping: &Mapping, start: u64, end: u64) -> Mapping {
    let runs: Vec<(u64, u64)> = mapping
        .runs
        .iter()
        .filter_map(|&(first, bytes)| {
            let (from, to) = (first.max(start), (first + bytes).min(end));
            (from < to).then(|| (from, to - from))
        })
        .collect();
    let rss_bytes: u64 = runs.iter().map(|&(_, bytes)| bytes).sum();
    let share = |bytes: u64, part: u64, whole: u64| {
        (u128::from(bytes) * u128::from(part) / u128::from(whole.max(1))) as u64
    };
    let of_resident = |bytes| share(bytes, rss_bytes, mapping.rss_bytes);
    // What is swapped out lies where no page is resident.
    let absent = (end - start).saturating_sub(rss_bytes);
    let all_absent = (mapping.end - mapping.start).saturating_sub(mapping.rss_bytes);
    let swap_bytes = share(mapping.swap_bytes, absent, all_absent.max(absent));
    Mapping {
        start,
        end,
        perms: mapping.perms.clone(),
        name: mapping.name.clone(),
        kind: mapping.kind,
        rss_bytes,
        pss_bytes: of_resident(mapping.pss_bytes),
        private_bytes: of_resident(mapping.private_bytes),
        anon_bytes: of_resident(mapping.anon_bytes),
        swap_bytes,
        huge_bytes: mapping.huge_bytes.map(of_resident),
        runs,
        runs_known: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A mapping of sixteen pages from 0x10000 on; resident are four from the second on, and the last two.
    fn mapping(kind: MappingKind, name: &str) -> Mapping {
        Mapping {
            start: 0x10000,
            end: 0x20000,
            name: name.into(),
            kind,
            rss_bytes: 0x6000,
            swap_bytes: 0xA000,
            runs: vec![(0x11000, 0x4000), (0x1e000, 0x2000)],
            runs_known: true,
            ..Mapping::default()
        }
    }

    type Seen = Vec<(u64, u64, MappingKind, String, u64, u64)>;

    fn seen(done: &[Mapping]) -> Seen {
        let each = done.iter();
        each.map(|m| {
            (
                m.start,
                m.end,
                m.kind,
                m.name.clone(),
                m.rss_bytes,
                m.swap_bytes,
            )
        })
        .collect()
    }

    #[test]
    fn own_memory_and_stacks_are_taken_out_of_the_middle() {
        let own = vec![(0x12000, 0x14000), (0x1000, 0x2000), (0x12000, 0x14000)];
        let stacks = vec![(0x1d000, 0x1f000)];
        let anon = mapping(MappingKind::Anon, "");
        assert_eq!(
            seen(&by_owner(vec![anon], &[], stacks, own)),
            [
                (
                    0x10000,
                    0x12000,
                    MappingKind::Anon,
                    "".into(),
                    0x1000,
                    0x1000
                ),
                (
                    0x12000,
                    0x14000,
                    MappingKind::Recorder,
                    "[skinflint]".into(),
                    0x2000,
                    0
                ),
                (
                    0x14000,
                    0x1d000,
                    MappingKind::Anon,
                    "".into(),
                    0x1000,
                    0x8000
                ),
                (
                    0x1d000,
                    0x1f000,
                    MappingKind::Stack,
                    "".into(),
                    0x1000,
                    0x1000
                ),
                (0x1f000, 0x20000, MappingKind::Anon, "".into(), 0x1000, 0),
            ]
        );
    }

    /// A program's table that the kernel merged with the data of the recorder, or of a library.
    #[test]
    fn what_lies_behind_an_objects_data_is_the_programs() {
        for kind in [MappingKind::Recorder, MappingKind::File] {
            let joined = mapping(kind, "[bss] /x.so");
            let done = by_owner(vec![joined], &[(0, 0x12000)], vec![], vec![]);
            let bss = (0x10000, 0x12000, kind, "[bss] /x.so".into(), 0x1000, 0x1000);
            let rest = (
                0x12000,
                0x20000,
                MappingKind::Anon,
                "".into(),
                0x5000,
                0x9000,
            );
            assert_eq!(seen(&done), [bss, rest]);
            assert!(!done[0].runs_known && done[0].runs.is_empty());
            assert_eq!(done[1].runs, [(0x12000, 0x3000), (0x1e000, 0x2000)]);
        }
    }

    #[test]
    fn without_pages_a_mapping_is_its_objects_if_most_of_it_is() {
        let kind_of = |object_end| {
            let mut joined = mapping(MappingKind::Recorder, "[bss] /x.so");
            joined.runs_known = false;
            joined.runs.clear();
            let done = by_owner(vec![joined], &[(0, object_end)], vec![], vec![]);
            assert_eq!((done.len(), done[0].rss_bytes), (1, 0x6000));
            done[0].kind
        };
        assert_eq!(kind_of(0x18000), MappingKind::Recorder);
        assert_eq!(kind_of(0x17000), MappingKind::Anon);
        assert_eq!(kind_of(0x10000), MappingKind::Anon);
    }

    #[test]
    fn an_object_that_has_no_bss_there_keeps_nothing() {
        let joined = mapping(MappingKind::File, "[bss] /x.so");
        let done = by_owner(vec![joined], &[(0, 0x10000)], vec![], vec![]);
        let all = (
            0x10000,
            0x20000,
            MappingKind::Anon,
            "".into(),
            0x6000,
            0xA000,
        );
        assert_eq!(seen(&done), [all]);
    }
}
