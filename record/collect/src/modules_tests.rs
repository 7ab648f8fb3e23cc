//! The end of a bss comes from the object's headers, not from the kernel's line.

use super::*;

const PAGE: u64 = 4096;

/// Returns the kind and name that `cut_bss` gives to one mapping after the data of an object of `span_pages` pages,
/// which begins at 0x10000 and has data up to its eighth page.
fn cut(span_pages: u64, joined_pages: u64) -> (MappingKind, String) {
    let mapping = |start: u64, end: u64, name: &str| Mapping {
        start,
        end,
        name: name.into(),
        kind: MappingKind::File,
        ..Mapping::default()
    };
    let begin = 0x1_0000;
    let data_end = begin + 8 * PAGE;
    let mut all = vec![
        mapping(begin, data_end, "/no/such/object"),
        mapping(
            data_end,
            data_end + joined_pages * PAGE,
            "[bss] /no/such/object",
        ),
    ];
    let mut ends = HashMap::from([("/no/such/object".to_owned(), Some(span_pages * PAGE))]);
    cut_bss(std::process::id(), &mut all, &mut ends);
    let last = all.pop().expect("two");
    (last.kind, last.name)
}

#[test]
fn what_reaches_beyond_the_object_by_more_than_it_has_inside_is_no_bss() {
    let bss = (MappingKind::File, "[bss] /no/such/object".to_owned());
    let other = (MappingKind::Anon, String::new());
    assert_eq!(cut(10, 2), bss, "two pages inside, none beyond");
    assert_eq!(cut(10, 4), bss, "as many beyond as inside");
    assert_eq!(cut(10, 5), other, "three beyond");
    assert_eq!(cut(8, 1), other, "none inside");
    assert_eq!(cut(4, 3), other, "the object ends before its data do");
}

#[test]
fn an_object_that_cannot_be_read_keeps_its_bss() {
    let mut all = vec![Mapping {
        start: 0x1000,
        end: 0x9000,
        name: "[bss] /no/such/object".into(),
        kind: MappingKind::File,
        ..Mapping::default()
    }];
    cut_bss(std::process::id(), &mut all, &mut HashMap::new());
    assert_eq!(all[0].kind, MappingKind::File);
}
