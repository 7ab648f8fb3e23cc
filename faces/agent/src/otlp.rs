//! OTLP profiles: one `ExportProfilesServiceRequest` for each process.
//!
//! ```text
//!   Stacks ─► dictionary { mappings, locations, functions, texts, attributes, stacks }
//!   Labels ─► resource { attributes }          each type of Values ─► a Profile { sample_type, samples }
//! ```
//!
//! T1  The first element of each table is its zero value, so that index 0 means none.
//! T2  A profile has one type: what holds memory has no duration, what was asked for has that of the interval.
//! T3  The scope is named, as receivers want it that call a profile by it.
//!
//! The schema: opentelemetry-proto, package `profiles.v1development`, as of August 2026 (1.11). Not here: sending (`push`).

use crate::labels::Labels;
use crate::modules::{Place, Stacks};
use crate::proto::{Message, Texts};
use crate::values::Values;

/// The name of the attribute with the build id of a mapping.
const BUILD_ID: &str = "process.executable.build_id.gnu";

fn any(text: &str) -> Message {
    let mut value = Message::new();
    value.text(1, text);
    value
}

/// Returns the semantic conventions' name of a label.
fn attribute(label: &str) -> String {
    match label {
        "service" => "service.name".into(),
        "process" => "process.executable.name".into(),
        "container" => "container.id".into(),
        "pod_uid" => "k8s.pod.uid".into(),
        "pod_name" => "k8s.pod.name".into(),
        "pod_namespace" => "k8s.namespace.name".into(),
        "pid" => "process.pid".into(),
        other => format!("skinflint.{other}"),
    }
}

fn resource(labels: &Labels) -> Message {
    let mut resource = Message::new();
    for (name, value) in labels {
        let mut pair = Message::new();
        pair.text(1, &attribute(name));
        match value.parse::<u64>() {
            // The number of a process is a number.
            Ok(number) if name == "pid" => {
                let mut value = Message::new();
                value.uint(3, number);
                pair.message(2, &value);
            }
            _ => drop(pair.message(2, &any(value))),
        }
        resource.message(1, &pair);
    }
    resource
}

/// Returns the dictionary of stacks, but for its texts.
fn dictionary(stacks: &Stacks, texts: &mut Texts) -> Message {
    let zero = Message::new();
    let mut tables = Message::new();
    let (mut attributes, mut count) = (Message::new(), 1);
    attributes.message(6, &zero);
    tables.message(1, &zero);
    for map in &stacks.mappings {
        let mut mapping = Message::new();
        mapping
            .uint(1, map.start)
            .uint(2, map.end)
            .uint(3, map.offset)
            .uint(4, texts.at(&map.name));
        if !map.build_id.is_empty() {
            let mut pair = Message::new();
            pair.uint(1, texts.at(BUILD_ID))
                .message(2, &any(&map.build_id));
            attributes.message(6, &pair);
            mapping.packed(5, &[count]);
            count += 1;
        }
        tables.message(1, &mapping);
    }
    tables.message(2, &zero);
    let mut functions = Vec::new();
    for place in &stacks.places {
        let mut location = Message::new();
        match place {
            Place::Code(Some(map), address) => {
                location.uint(1, *map as u64 + 1).uint(2, *address);
            }
            Place::Code(None, _) => functions.push("(code of no module)"),
            Place::Named(name) => functions.push(name),
        }
        if location.bytes().is_empty() {
            let mut line = Message::new();
            line.uint(1, functions.len() as u64);
            location.message(3, &line);
        }
        tables.message(2, &location);
    }
    tables.message(3, &zero);
    for name in functions {
        let mut function = Message::new();
        function.uint(1, texts.at(name)).uint(2, texts.at(name));
        tables.message(3, &function);
    }
    tables.message(4, &zero);
    tables.append(&attributes);
    tables.message(7, &zero);
    for stack in &stacks.stacks {
        let places: Vec<u64> = stack.iter().map(|place| u64::from(*place) + 1).collect();
        let mut one = Message::new();
        one.packed(1, &places);
        tables.message(7, &one);
    }
    tables
}

/// Writes a request: each type of each of the values is a profile. `id`: sixteen bytes that name them, of which the last is
/// counted on.
pub fn write(labels: &Labels, stacks: &Stacks, all: &[Values], mut id: [u8; 16]) -> Vec<u8> {
    let mut texts = Texts::new();
    let mut tables = dictionary(stacks, &mut texts);
    let mut scoped = Message::new();
    let mut scope = Message::new();
    scope.text(1, "skinflint");
    scoped.message(1, &scope);
    for values in all {
        for (at, (name, unit)) in values.types.iter().enumerate() {
            let mut kind = Message::new();
            kind.uint(1, texts.at(name)).uint(2, texts.at(unit));
            let mut profile = Message::new();
            profile.message(1, &kind);
            for (stack, row) in values.rows.iter().enumerate() {
                if let Some(value) = row.get(at).filter(|value| **value != 0) {
                    let mut sample = Message::new();
                    sample.uint(1, stack as u64 + 1).packed(4, &[*value as u64]);
                    profile.message(2, &sample);
                }
            }
            let is_flow = name.starts_with("alloc");
            let mut period = Message::new();
            period
                .uint(1, texts.at("memory"))
                .uint(2, texts.at("bytes"));
            profile.fixed(3, values.time_ns);
            profile.uint(4, if is_flow { values.duration_ns } else { 0 });
            profile.message(5, &period).uint(6, values.rate);
            id[15] = id[15].wrapping_add(1);
            profile.data(7, &id);
            scoped.message(2, &profile);
        }
    }
    texts.write(5, &mut tables);
    let mut of_resource = Message::new();
    of_resource
        .message(1, &resource(labels))
        .message(2, &scoped);
    let mut request = Message::new();
    request.message(1, &of_resource).message(2, &tables);
    request.bytes().to_vec()
}
