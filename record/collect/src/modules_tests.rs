//! The end of a bss comes from the object's headers, not from the kernel's line.

use super::*;

const PAGE: u64 = 4096;

/// Returns the pages of one mapping that belong to the object, if others follow: the mapping comes after the data of an
/// object of `span_pages` pages, which begins at 0x10000 and has data up to its eighth page.
fn cut(span_pages: u64, joined_pages: u64) -> Option<u64> {
    let mapping = |start: u64, end: u64, name: &str| Mapping {
        start,
        end,
        name: name.into(),
        kind: MappingKind::File,
        ..Mapping::default()
    };
    let begin = 0x1_0000;
    let data_end = begin + 8 * PAGE;
    let all = [
        mapping(begin, data_end, "/no/such/object"),
        mapping(
            data_end,
            data_end + joined_pages * PAGE,
            "[bss] /no/such/object",
        ),
    ];
    let mut ends = HashMap::from([("/no/such/object".to_owned(), Some(span_pages * PAGE))]);
    match joined_bss(std::process::id(), &all, &mut ends)[..] {
        [] => None,
        [(1, end)] => Some((end - data_end) / PAGE),
        ref more => panic!("{more:?}"),
    }
}

#[test]
fn what_reaches_beyond_the_object_is_no_bss() {
    assert_eq!(cut(10, 2), None, "two pages inside, none beyond");
    assert_eq!(cut(10, 1), None, "cut short");
    assert_eq!(cut(10, 3), Some(2), "one beyond");
    assert_eq!(cut(10, 90), Some(2));
    assert_eq!(cut(8, 1), Some(0), "none inside");
    assert_eq!(cut(4, 3), Some(0), "the object ends before its data do");
}

#[test]
fn an_object_that_cannot_be_read_keeps_its_bss() {
    let all = [Mapping {
        start: 0x1000,
        end: 0x9000,
        name: "[bss] /no/such/object".into(),
        kind: MappingKind::File,
        ..Mapping::default()
    }];
    assert_eq!(
        joined_bss(std::process::id(), &all, &mut HashMap::new()),
        []
    );
}
