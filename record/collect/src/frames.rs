//! What a process's recorder says of frames and objects of Python, in words.
//!
//! Not here: reading them (the recorder).

use std::sync::atomic::Ordering;

use skinflint_base::ring::{
    FRAMES_ATTACHED, FRAMES_LATE, FRAMES_READ, OBJECTS_ARENA, OBJECTS_LATE, OBJECTS_RECORDED,
    ProcessHeader,
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
    let python = match version {
        0 => "Python before 3.11".to_owned(),
        _ => {
            let [major, minor, micro, level] = version.to_be_bytes();
            let level = if level >> 4 == 0xf {
                ""
            } else {
                " (not final)"
            };
            format!("Python {major}.{minor}.{micro}{level}")
        }
    };
    let why = match status {
        0 => return None,
        FRAMES_READ if unread == 0 => return None,
        FRAMES_READ => {
            return Some(format!(
                "{unread} stacks have native frames only: in a signal handler, on a stack that is not the thread's own, or \
                 with more than 4096 frames of Python"
            ));
        }
        FRAMES_ATTACHED => {
            "it ran before the recorder came; start it with skinflint to have its own frames"
        }
        FRAMES_LATE => "it was opened while the program ran, and may be closed again",
        1 => "this version's frames are not known (3.11.1 to 3.13 are)",
        2 => {
            "its tables are not those of that version (a debug build, free threading, or changed sources)"
        }
        3 => "a frame's address was none",
        4 => "a frame's code was none",
        5 => "a frame's instruction was outside of its code",
        _ => "its frames contradicted themselves",
    };
    Some(format!("native frames only: {python}: {why}"))
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
        assert!(said_of_objects(skinflint_base::ring::OBJECTS_CLOSED).is_some());
    }

    #[test]
    fn what_is_refused_is_said_with_its_version() {
        let said = |status, version| said(status, version, 0).unwrap_or_default();
        assert!(
            said(1, 0x0310_00f0).starts_with("native frames only: Python 3.16.0: this version")
        );
        assert!(said(1, 0x030e_00b2).contains("Python 3.14.0 (not final)"));
        assert!(said(1, 0).contains("Python before 3.11"));
        assert_eq!(said(0, 0) + &said(FRAMES_READ, 0x030b_02f0), "");
        assert!(
            super::said(FRAMES_READ, 0x030b_02f0, 3)
                .is_some_and(|note| note.starts_with("3 stacks"))
        );
    }
}
