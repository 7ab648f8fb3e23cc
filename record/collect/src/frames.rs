//! What a process's recorder says of frames of interpreters, and of their allocators, in words.
//!
//! Not here: reading them (the recorder).

use std::sync::atomic::Ordering;

use skinflint_base::ring::{
    FRAMES_ATTACHED, FRAMES_LATE, FRAMES_OF_RUBY, FRAMES_READ, OBJECTS_ARENA, OBJECTS_LATE,
    OBJECTS_MIMALLOC, OBJECTS_RECORDED, OBJECTS_ZEND, ProcessHeader,
};

/// Returns what a reader of the trace should know, if anything is missing.
pub fn note(header: &ProcessHeader) -> Option<String> {
    // ORDER: Relaxed throughout; the process has ended.
    let status = header.frames.load(Ordering::Relaxed);
    let version = header.frames_version.load(Ordering::Relaxed);
    let unread = header.frames_unread.load(Ordering::Relaxed);
    said(status, version, unread)
}

fn said(status: u32, version: u32, unread: u64) -> Option<String> {
    let (language, status) = (status / FRAMES_OF_RUBY, status % FRAMES_OF_RUBY);
    let [major, minor, micro, level] = version.to_be_bytes();
    let name = match (language, version) {
        (0, 0) => "Python before 3.9".to_owned(),
        // These do not say more of themselves.
        (0, 0x0309_00f0 | 0x030a_00f0) => format!("Python {major}.{minor}"),
        (0, _) => {
            let level = if level >> 4 == 0xf {
                ""
            } else {
                " (not final)"
            };
            format!("Python {major}.{minor}.{micro}{level}")
        }
        (3, _) => format!("Java {minor}.{micro}.{level} (HotSpot)"),
        (_, 0) => "PHP".to_owned(),
        (1, _) => format!("Ruby {minor}.{micro}.{level}"),
        _ => format!("PHP {minor}.{micro}"),
    };
    let why = match status {
        0 => return None,
        FRAMES_READ if unread == 0 => return None,
        FRAMES_READ => {
            let stacks = match unread {
                1 => "1 stack has".to_owned(),
                _ => format!("{unread} stacks have"),
            };
            return Some(format!(
                "{stacks} native frames only: in a signal handler, on a stack that is not the thread's own, or \
                 with more than 4096 frames of its language"
            ));
        }
        FRAMES_ATTACHED => {
            "it ran before the recorder came; start it with skinflint to have its own frames"
        }
        FRAMES_LATE => "it was opened while the program ran, and may be closed again",
        1 if language == 1 => "this version's frames are not known (3.1's are)",
        2 if language == 3 => {
            "its own description lacks what frames are read by (17, 21 and 25 to 28 have it)"
        }
        1 if language > 1 => "this build's frames are not known (8.2's without threads are)",
        1 => "this version's frames are not known (3.9, 3.10, and 3.11.1 to 3.14 are)",
        2 => "its tables are not those of that version (a debug build, or changed sources)",
        3 => "a frame's address was none",
        4 => "a frame's code was none",
        5 => "a frame's instruction was outside of its code",
        7 => "it is free-threaded: its frames have other fields",
        _ => "its frames contradicted themselves",
    };
    Some(format!("native frames only: {name}: {why}"))
}

/// Returns what a reader of the trace should know of small objects, if they were asked for.
pub fn objects_note(header: &ProcessHeader) -> Option<String> {
    // ORDER: Relaxed; the process has ended.
    said_of_objects(header.objects.load(Ordering::Relaxed))
}

fn said_of_objects(status: u32) -> Option<String> {
    let why = match status {
        0 => return None,
        // By these words `recording::left_out` knows it.
        OBJECTS_RECORDED => return Some("small objects of Python are blocks of their own".into()),
        OBJECTS_LATE => "Python was opened while the program ran",
        OBJECTS_MIMALLOC => "it has them from mimalloc (free threading, or PYTHONMALLOC=mimalloc)",
        OBJECTS_ZEND => {
            return Some(
                "PHP serves requests from chunks of its own, which are no blocks of malloc's; with USE_ZEND_ALLOC=0 \
                 each is a block"
                    .into(),
            );
        }
        OBJECTS_ARENA => "an arena lies where none was expected",
        _ => "this Python is older than 3.8, or does not show its allocator",
    };
    Some(format!(
        "small objects of Python are not blocks of their own: {why}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_that_are_not_recorded_are_said() {
        assert_eq!(said_of_objects(0), None);
        let recorded = said_of_objects(OBJECTS_RECORDED).unwrap_or_default();
        assert_eq!(recorded, "small objects of Python are blocks of their own");
        let late = said_of_objects(OBJECTS_LATE).unwrap_or_default();
        assert!(late.ends_with("opened while the program ran"), "{late}");
        let mimalloc = said_of_objects(OBJECTS_MIMALLOC).unwrap_or_default();
        assert!(mimalloc.contains("PYTHONMALLOC=mimalloc"), "{mimalloc}");
        let php = said_of_objects(OBJECTS_ZEND).unwrap_or_default();
        assert!(php.contains("USE_ZEND_ALLOC=0"), "{php}");
        assert!(said_of_objects(skinflint_base::ring::OBJECTS_CLOSED).is_some());
    }

    #[test]
    fn what_is_refused_is_said_with_its_version() {
        let said = |status, version| said(status, version, 0).unwrap_or_default();
        assert!(
            said(1, 0x0310_00f0).starts_with("native frames only: Python 3.16.0: this version")
        );
        assert!(said(1, 0x030e_00b2).contains("Python 3.14.0 (not final)"));
        assert!(said(1, 0).contains("Python before 3.9"));
        let old = "native frames only: Python 3.9: this version's";
        assert!(said(1, 0x0309_00f0).starts_with(old));
        let ruby = "native frames only: Ruby 3.3.8: this version's frames are not known";
        assert!(said(1 + FRAMES_OF_RUBY, 0x03_0308).starts_with(ruby));
        let php = "native frames only: PHP: this build's frames";
        assert!(said(1 + 2 * FRAMES_OF_RUBY, 0).starts_with(php));
        assert!(said(5 + 2 * FRAMES_OF_RUBY, 0x08_0200).contains("PHP 8.2: a frame's instruction"));
        assert!(said(7, 0x030e_00f0).contains("Python 3.14.0: it is free-threaded"));
        assert_eq!(said(0, 0) + &said(FRAMES_READ, 0x030b_02f0), "");
        assert!(
            super::said(FRAMES_READ, 0x030b_02f0, 3)
                .is_some_and(|note| note.starts_with("3 stacks"))
        );
    }
}
