//! Tells a file's bss from mappings that merely lie near it.

use super::*;

fn kinds(data_end: &str, next: &str) -> Vec<(MappingKind, String)> {
    let text = format!(
        "1000-{data_end} rw-p 00001000 fe:00 77 /bin/x\nRss: 8 kB\n{next} rw-p 00000000 00:00 0 \nRss: 4 kB\n"
    );
    parse_smaps(&text)
        .into_iter()
        .map(|m| (m.kind, m.name))
        .collect()
}

#[test]
fn bss_begins_where_the_files_data_ends() {
    let file = (MappingKind::File, "/bin/x".to_owned());
    let bss = (MappingKind::File, "[bss] /bin/x".to_owned());
    let other = (MappingKind::Anon, String::new());
    assert_eq!(kinds("3000", "3000-5000"), [file.clone(), bss]);
    assert_eq!(
        kinds("3000", "4000-5000"),
        [file.clone(), other.clone()],
        "a page between"
    );
    assert_eq!(kinds("3000", "9000-a000"), [file, other]);
}

#[test]
fn only_what_lies_at_once_behind_the_data_is_bss() {
    let text = "\
1000-3000 rw-p 00001000 fe:00 77 /bin/x
3000-4000 rw-p 00000000 00:00 0 
4000-5000 rw-p 00000000 00:00 0 
6000-7000 r--p 00001000 fe:00 78 /bin/y
7000-8000 rw-p 00000000 00:00 0 
";
    let names: Vec<String> = parse_smaps(text).into_iter().map(|m| m.name).collect();
    assert_eq!(names, ["/bin/x", "[bss] /bin/x", "", "/bin/y", ""]);
}
