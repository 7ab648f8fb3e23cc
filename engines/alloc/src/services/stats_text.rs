//! The figures as one line of JSON.
//!
//! ```text
//!   Snapshot ──► {"mapped_bytes":…,"rows":{…},"resident":{…},…,"classes":[{…},…]} ──► sink, piece by piece
//! ```
//!
//! J1  Nothing is formatted by the standard library, and no heap is used: pieces go to a sink as they are made.
//! J2  What was not measured is absent, and never 0. The end of a name is its unit: bytes, counts, nanoseconds.
//!
//! Not here: the figures (`stats`).

use super::idle;
use super::stats::{ClassRow, Rows, Snapshot, snapshot};

/// Writes names and numbers to a sink.
struct Writer<S> {
    sink: S,
    /// Whether the next name follows another.
    more: bool,
}

impl<S: FnMut(&[u8])> Writer<S> {
    fn name(&mut self, name: &str) {
        if self.more {
            (self.sink)(b",");
        }
        self.more = true;
        (self.sink)(b"\"");
        (self.sink)(name.as_bytes());
        (self.sink)(b"\":");
    }

    /// Writes a name and a number. Out of line: in the loops over rows it would be copied once for each of them.
    #[inline(never)]
    fn number(&mut self, name: &str, number: u64) {
        self.name(name);
        let mut digits = [0u8; 20];
        let mut first = digits.len();
        let mut rest = number;
        for digit in digits.iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            first -= 1;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        (self.sink)(digits.get(first..).unwrap_or(&[]));
    }

    fn bytes(&mut self, name: &str, bytes: usize) {
        self.number(name, bytes as u64);
    }

    fn numbers(&mut self, of: &[(&str, u64)]) {
        for &(name, number) in of {
            self.number(name, number);
        }
    }

    fn truth(&mut self, name: &str, truth: bool) {
        self.name(name);
        (self.sink)(if truth { b"true" } else { b"false" });
    }

    /// Writes a name and a word without anything to escape.
    fn word(&mut self, name: &str, word: &str) {
        self.name(name);
        for piece in [b"\"", word.as_bytes(), b"\""] {
            (self.sink)(piece);
        }
    }

    fn open(&mut self, name: &str) {
        self.name(name);
        (self.sink)(b"{");
        self.more = false;
    }

    fn close(&mut self) {
        (self.sink)(b"}");
        self.more = true;
    }

    fn rows(&mut self, name: &str, rows: &Rows) {
        self.open(name);
        for (name, bytes) in [
            ("small_bytes", rows.small),
            ("large_bytes", rows.large),
            ("free_in_spans_bytes", rows.in_spans),
            ("holes_bytes", rows.holes),
            ("reserve_bytes", rows.reserve),
            ("free_dirty_bytes", rows.dirty),
            ("free_clean_bytes", rows.clean),
            ("others_bytes", rows.others),
        ] {
            self.bytes(name, bytes);
        }
        self.close();
    }

    fn class(&mut self, row: &ClassRow) {
        if self.more {
            (self.sink)(b",");
        }
        (self.sink)(b"{");
        self.more = false;
        self.numbers(&[
            ("size_bytes", u64::from(row.size)),
            ("blocks", row.blocks),
            ("live_bytes", row.blocks * u64::from(row.size)),
            ("spans", u64::from(row.spans)),
            ("pages", u64::from(row.pages)),
            ("hole_pages", u64::from(row.hole_pages)),
        ]);
        self.close();
    }
}

/// Writes the present figures to a buffer, cut to its length and closed with a zero; returns the length of the whole
/// text, 0 if there are no figures.
///
/// # Safety
/// `buffer` has room for `bytes`, or `bytes` is 0.
pub unsafe fn to_buffer(buffer: *mut u8, bytes: usize) -> usize {
    let mut figures = Snapshot::new();
    let mut length = 0;
    if snapshot(&mut figures, true) {
        write_json(&figures, |piece| {
            for &byte in piece {
                if length + 1 < bytes {
                    // SAFETY: as the caller promises.
                    unsafe { buffer.add(length).write(byte) };
                }
                length += 1;
            }
        });
    }
    if bytes > 0 {
        // SAFETY: as above.
        unsafe { buffer.add(length.min(bytes - 1)).write(0) };
    }
    length
}

/// Writes a snapshot as one line of JSON, without a line end.
pub fn write_json(snapshot: &Snapshot, sink: impl FnMut(&[u8])) {
    let mut out = Writer { sink, more: false };
    (out.sink)(b"{");
    out.number("version", 1);
    out.truth("balanced", snapshot.balanced);
    out.bytes("mapped_bytes", snapshot.mapped_bytes);
    out.rows("mapped", &snapshot.mapped);
    out.bytes("metadata_mapped_bytes", snapshot.metadata_bytes);
    if snapshot.measured {
        out.bytes("resident_bytes", snapshot.resident_bytes());
        out.rows("resident", &snapshot.resident);
        out.bytes("metadata_resident_bytes", snapshot.metadata_resident);
        out.bytes("retained_bytes", snapshot.retained_bytes());
        if snapshot.process_resident != 0 {
            out.bytes("process_resident_bytes", snapshot.process_resident);
        }
        if snapshot.process_proportional != 0 {
            out.bytes("process_proportional_bytes", snapshot.process_proportional);
        }
        if let Some(bytes) = snapshot.merged_bytes {
            out.bytes("merged_bytes", bytes);
        }
    }
    out.word("idle_threads", idle::way().word());
    out.bytes("trimmable_bytes", snapshot.trimmable_bytes);
    out.bytes("magazines_bytes", snapshot.magazine_bytes);
    out.bytes("free_in_current_spans_bytes", snapshot.current_bytes);
    out.bytes("empty_spans_bytes", snapshot.empty_bytes);
    live(&mut out, snapshot);
    events(&mut out, snapshot);
    out.name("classes");
    (out.sink)(b"[");
    out.more = false;
    for row in snapshot.class.iter().filter(|row| row.pages > 0) {
        out.class(row);
    }
    (out.sink)(b"]}");
}

fn live(out: &mut Writer<impl FnMut(&[u8])>, snapshot: &Snapshot) {
    out.open("live");
    out.number("small_blocks", snapshot.small_blocks);
    out.number("large_blocks", snapshot.large_blocks);
    out.bytes("usable_bytes", snapshot.usable_bytes());
    if snapshot.sampled {
        let (requested, error) = snapshot.live_requested();
        out.bytes("requested_bytes", requested);
        out.bytes("requested_error_bytes", error);
        out.bytes(
            "slop_bytes",
            snapshot.usable_bytes().saturating_sub(requested),
        );
        out.number("samples", u64::from(snapshot.slop.samples));
        out.number("sample_interval_bytes", snapshot.slop.interval_bytes);
    }
    out.bytes("large_requested_bytes", snapshot.large_requested);
    out.number("large_blocks_max", snapshot.large_blocks_max);
    out.bytes("large_bytes_max", snapshot.large_bytes_max);
    out.number("tenants", snapshot.tenants);
    out.number("tenant_blocks", snapshot.tenant_blocks);
    out.bytes("tenant_small_bytes", snapshot.tenant_small_bytes);
    out.bytes("tenant_large_bytes", snapshot.tenant_large_bytes);
    out.number("heaps", snapshot.heaps);
    out.number("thread_heaps", snapshot.thread_heaps);
    out.close();
}

fn events(out: &mut Writer<impl FnMut(&[u8])>, snapshot: &Snapshot) {
    let events = &snapshot.events;
    out.open("total");
    out.numbers(&[
        ("requested_bytes", snapshot.requested_total),
        ("purged_pages", events.purged_pages),
        ("purged_hole_pages", events.purged_hole_pages),
        ("taken_hole_pages", events.taken_hole_pages),
        ("reused_pages", events.reused_pages),
        ("taken_blocks", events.taken_blocks),
        ("meshed_pages", events.meshed_pages),
        ("meshed_groups", events.meshed_groups),
        ("purger_passes", events.purger_passes),
        ("purger_cpu_ns", events.purger_cpu_ns),
        ("heap_growths", events.grown),
        ("refusals", events.refusals),
        ("reserve_releases", events.reserve_releases),
        ("listener_calls", events.listener_calls),
        ("failures", events.failures),
    ]);
    out.close();
}
