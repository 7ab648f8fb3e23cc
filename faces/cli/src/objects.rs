//! `skinflint report x.sfo`: what an object trace is made of, as text or JSON.
//!
//! ```text
//!   Reader ─► Profile ─► sizes, lives, origins, kinds, large objects        damage, losses ─► the first lines
//! ```
//!
//! J1  The first lines say whether the trace is whole, and what was passed over, block by block.
//! J2  Each table has a row for all, and its other rows add up to it.
//!
//! Not here: what is counted (`objects::profile`).

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use anyhow::Result;
use serde_json::{Value, json};
use skinflint_objects::profile::{BANDS, Group, LARGE_BYTES, Profile, SPANS, Sum};
use skinflint_objects::{KindId, Origin, Reader};
use skinflint_view::units::{bytes, count, percent, plural};

/// Kinds that have a row of their own in the text; the JSON has all.
const KINDS_SHOWN: usize = 20;
/// Damaged blocks that are named in the text; the JSON has all.
const DAMAGE_SHOWN: usize = 10;

/// Reports whether a file is an object trace: by its first bytes, or by its name if those are damaged.
pub fn is_object_trace(path: &Path) -> bool {
    let mut first = [0; 4];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut first));
    read.is_ok_and(|()| first == *b"\x89SFO") || path.extension().is_some_and(|end| end == "sfo")
}

/// Reports on a trace.
///
/// # Errors
/// If it cannot be read.
pub fn report(path: &Path, as_json: bool) -> Result<u8> {
    let mut reader = Reader::open(path)?;
    let mut profile = Profile::default();
    reader.by_ref().for_each(|event| profile.add(event));
    let mut out = io::stdout().lock();
    if as_json {
        serde_json::to_writer_pretty(&mut out, &as_value(path, &reader, &profile))?;
        writeln!(out)?;
    } else {
        out.write_all(text(&reader, &profile).as_bytes())?;
    }
    out.flush()?;
    Ok(0)
}

/// The words of an origin.
fn origin(origin: Origin) -> &'static str {
    match origin {
        Origin::GeneratedCode => "compiled code",
        Origin::Runtime => "the runtime",
        Origin::Gc => "the collector",
    }
}

/// Names a band: `up to 64 B`, `above 1.00 MiB`.
fn range(bounds: &[u64], index: usize) -> String {
    match (bounds.get(index), bounds.last()) {
        (Some(last), _) => format!("up to {}", bytes(*last)),
        (None, Some(last)) => format!("above {}", bytes(*last)),
        (None, None) => String::new(),
    }
}

/// Names a span without "up to": `64 B`, `over 1.00 MiB`.
fn within(bounds: &[u64], index: usize) -> String {
    match bounds.get(index) {
        Some(last) => bytes(*last),
        None => range(bounds, index).replacen("above", "over", 1),
    }
}

/// Says what is missing (J1).
fn completeness(out: &mut String, reader: &Reader, profile: &Profile) {
    let damage = reader.damage();
    let complete = match reader.ending() {
        Some(totals) if damage.is_empty() && totals.lost == 0 => "complete",
        Some(_) => "not complete",
        None => "cut: it has no ending; what is there is reported",
    };
    let _ = writeln!(
        out,
        "{complete}: {} read",
        plural(profile.all.allocated.objects, "object")
    );
    for damage in damage.iter().take(DAMAGE_SHOWN) {
        let _ = writeln!(
            out,
            "  {damage}; passed over: {}, {} known to be lost",
            bytes(damage.bytes),
            plural(damage.objects, "object")
        );
    }
    if let Some(more) = damage
        .len()
        .checked_sub(DAMAGE_SHOWN)
        .filter(|more| *more > 0)
    {
        let _ = writeln!(out, "  and {more} more damaged places (--json has all)");
    }
    if !damage.is_empty() {
        let _ = writeln!(
            out,
            "  deaths that were lost are of objects that seem to live on"
        );
    }
    if let Some(totals) = reader.ending().filter(|totals| totals.lost > 0) {
        let lost = plural(totals.lost, "event");
        let _ = writeln!(out, "  {lost} did not reach the file when it was written");
    }
    if profile.unknown_deaths > 0 {
        let deaths = plural(profile.unknown_deaths, "death");
        let _ = writeln!(out, "  {deaths} of objects that are not in it");
    }
}

fn text(reader: &Reader, profile: &Profile) -> String {
    let mut out = String::new();
    let info = reader.info();
    let source = match info.source.as_str() {
        "" => "made in an unknown way",
        source => source,
    };
    let _ = writeln!(out, "{}  object trace, {source}", info.program);
    completeness(&mut out, reader, profile);
    let all = &profile.all;
    let _ = writeln!(
        out,
        "\n{} of {} ({} in the mean) · {} died · {} of {} live at the end · at most {} of {} · {}",
        plural(all.allocated.objects, "object"),
        bytes(all.allocated.bytes),
        bytes(all.allocated.bytes / all.allocated.objects.max(1)),
        count(all.deaths()),
        count(all.survivors.objects),
        bytes(all.survivors.bytes),
        count(profile.peak.objects),
        bytes(profile.peak.bytes),
        match profile.collections {
            0 => "no collections noted".to_owned(),
            collections => plural(collections, "collection"),
        },
    );
    let rows = |groups: &[Group], name: &dyn Fn(usize) -> String| -> Vec<(String, Group)> {
        let named = groups.iter().enumerate();
        let named = named.map(|(index, group)| (name(index), group.clone()));
        named
            .filter(|(_, group)| group.allocated.objects > 0)
            .collect()
    };
    let bands = rows(&profile.bands, &|index| range(&BANDS, index));
    table(&mut out, "Sizes", &bands, all);
    lives(&mut out, all);
    let origins = rows(&profile.origins, &|index| origin(Origin::ALL[index]).into());
    table(&mut out, "Origins", &origins, all);
    let name = |index: usize| reader.kind(KindId(index as u32)).to_owned();
    let mut kinds = rows(&profile.kinds, &name);
    kinds.sort_by_key(|(name, kind)| (std::cmp::Reverse(kind.allocated.bytes), name.clone()));
    shorten(&mut kinds);
    table(&mut out, "Kinds", &kinds, all);
    large(&mut out, profile);
    out
}

/// Sums the kinds up that have no row of their own.
fn shorten(kinds: &mut Vec<(String, Group)>) {
    if kinds.len() <= KINDS_SHOWN {
        return;
    }
    let rest = kinds.split_off(KINDS_SHOWN - 1);
    let mut sum = Group::default();
    let add = |sum: &mut Sum, more: Sum| {
        sum.objects += more.objects;
        sum.bytes += more.bytes;
    };
    for (_, kind) in &rest {
        add(&mut sum.allocated, kind.allocated);
        add(&mut sum.survivors, kind.survivors);
        for (sum, more) in sum.lives.iter_mut().zip(kind.lives) {
            add(sum, more);
        }
    }
    kinds.push((format!("{} others", rest.len()), sum));
}

/// Returns a name for a column: of a long one the end, which tells paths of types apart.
fn tail(name: &str) -> String {
    const COLUMN: usize = 23;
    match name.chars().count() {
        long if long > COLUMN => {
            let end: String = name.chars().skip(long - COLUMN + 1).collect();
            format!("…{end}")
        }
        _ => name.to_owned(),
    }
}

/// A table of groups: how many, how much, how many live on, and how long half of them lived at most.
fn table(out: &mut String, title: &str, rows: &[(String, Group)], all: &Group) {
    let _ = writeln!(
        out,
        "\n{title:24}{:>14}{:>8}{:>12}{:>8}{:>12}{:>18}",
        "objects", "", "bytes", "", "live on", "half died within"
    );
    let sum = ("all".to_owned(), all.clone());
    for (name, group) in rows.iter().chain([&sum]) {
        let name = tail(name);
        let half = match group.half_life() {
            Some(span) => within(&SPANS, span),
            None => "lives on".into(),
        };
        let _ = writeln!(
            out,
            "{name:24}{:>14}{:>8}{:>12}{:>8}{:>12}{half:>18}",
            count(group.allocated.objects),
            percent(group.allocated.objects, all.allocated.objects),
            bytes(group.allocated.bytes),
            percent(group.allocated.bytes, all.allocated.bytes),
            percent(group.survivors.objects, group.allocated.objects),
        );
    }
}

/// How long objects lived.
fn lives(out: &mut String, all: &Group) {
    let _ = writeln!(
        out,
        "\n{:24}{:>14}{:>8}{:>12}{:>8}",
        "Lives, in bytes allocated", "objects", "", "bytes", ""
    );
    let named = all.lives.iter().enumerate();
    let rows = named.map(|(index, sum)| (range(&SPANS, index), *sum));
    let end = ("to the end".to_owned(), all.survivors);
    for (name, sum) in rows.chain([end]).filter(|(_, sum)| sum.objects > 0) {
        let _ = writeln!(
            out,
            "{name:24}{:>14}{:>8}{:>12}{:>8}",
            count(sum.objects),
            percent(sum.objects, all.allocated.objects),
            bytes(sum.bytes),
            percent(sum.bytes, all.allocated.bytes),
        );
    }
}

/// What is too large for the pages of free lists.
fn large(out: &mut String, profile: &Profile) {
    let large = &profile.large;
    let _ = match large.allocated.objects {
        0 => writeln!(
            out,
            "\nNo large objects (above {}, which no free list places); the largest has {}.",
            bytes(LARGE_BYTES),
            bytes(profile.largest_bytes)
        ),
        objects => writeln!(
            out,
            "\nLarge (above {}, which no free list places): {} of {}, the largest {}; at most {} of {} lived at once, {} \
             live at the end.",
            bytes(LARGE_BYTES),
            plural(objects, "object"),
            bytes(large.allocated.bytes),
            bytes(profile.largest_bytes),
            count(profile.large_peak.objects),
            bytes(profile.large_peak.bytes),
            count(large.survivors.objects),
        ),
    };
}

fn sum_value(sum: Sum) -> Value {
    json!({ "objects": sum.objects, "bytes": sum.bytes })
}

/// A group as JSON; `lives` have the same order as `spans`, with one more for longer ones.
fn group_value(group: &Group) -> Value {
    json!({
        "allocated": sum_value(group.allocated),
        "survivors": sum_value(group.survivors),
        "lives": group.lives.iter().map(|sum| sum_value(*sum)).collect::<Vec<_>>(),
    })
}

fn as_value(path: &Path, reader: &Reader, profile: &Profile) -> Value {
    let groups = |groups: &[Group]| groups.iter().map(group_value).collect::<Vec<_>>();
    let with_name = |name: &str, group: &Group| {
        let mut value = group_value(group);
        value["name"] = name.into();
        value
    };
    let kinds = profile.kinds.iter().enumerate();
    let origins = Origin::ALL.iter().zip(&profile.origins);
    json!({
        "trace": path.display().to_string(),
        "program": reader.info().program,
        "source": reader.info().source,
        "complete": reader.damage().is_empty() && reader.ending().is_some_and(|totals| totals.lost == 0),
        "cut": reader.ending().is_none(),
        "lost_events": reader.ending().map_or(0, |totals| totals.lost),
        "unknown_deaths": profile.unknown_deaths,
        "damage": reader.damage().iter().map(|damage| json!({
            "offset": damage.offset,
            "what": damage.what,
            "bytes": damage.bytes,
            "objects": damage.objects,
        })).collect::<Vec<_>>(),
        "collections": profile.collections,
        "all": group_value(&profile.all),
        "peak": sum_value(profile.peak),
        "bands_last_bytes": BANDS,
        "bands": groups(&profile.bands),
        "spans_longest_bytes": SPANS,
        "origins": origins.map(|(of, group)| with_name(origin(*of), group)).collect::<Vec<_>>(),
        "kinds": kinds.map(|(id, group)| with_name(reader.kind(KindId(id as u32)), group)).collect::<Vec<_>>(),
        "large_above_bytes": LARGE_BYTES,
        "large": group_value(&profile.large),
        "large_peak": sum_value(profile.large_peak),
        "largest_bytes": profile.largest_bytes,
    })
}
