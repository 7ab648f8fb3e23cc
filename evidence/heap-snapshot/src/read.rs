//! The file as a stream.
//!
//! ```text
//!   {"snapshot": {"meta": …, "node_count", "edge_count"},     fields by name, wherever they stand
//!    "nodes": [ … ],  "edges": [ … ],  … ,  "strings": [ … ]}  each after what it needs
//! ```
//!
//! R1  "snapshot" comes before "nodes", "nodes" before "edges": every writer does so, and another order is refused.
//! R2  Counts must be those that the file states, or it is refused: a file that was cut has no end.
//!
//! Not here: what the numbers mean together (`graph`, `census`).

use std::fmt;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::census::Census;
use crate::graph::{Graph, Strings};

/// The number of bytes that are kept of a string.
pub const KEPT_BYTES: usize = 256;
const BUFFER_BYTES: usize = 1 << 20;

/// Why a file cannot be read.
#[derive(Debug)]
pub struct ReadError {
    /// The name of the file.
    pub file: String,
    /// The error, its place, and what to do.
    pub what: String,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file, self.what)
    }
}

impl std::error::Error for ReadError {}

/// The part of a file that the caller wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// Sums by class.
    Census,
    /// Sums by class, and nodes and edges.
    Graph,
    /// Sums by class, and the nodes' numbers, but no edges.
    Nodes,
}

/// The result of reading.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// Sums by class.
    pub census: Census,
    /// Nodes and edges, if they were wanted.
    pub graph: Graph,
}

/// Reads a file.
///
/// # Errors
/// If the file cannot be opened, or is not a heap snapshot; the error has the place where that was found.
pub fn read_file(path: &Path, want: Want) -> Result<Snapshot, ReadError> {
    let failed = |what: String| ReadError {
        file: path.display().to_string(),
        what,
    };
    let file = File::open(path).map_err(|error| failed(error.to_string()))?;
    read(file, want).map_err(failed)
}

/// Reads a stream. The error has what is wrong and where.
///
/// # Errors
/// Those of [`read_file`].
pub fn read(from: impl Read, want: Want) -> Result<Snapshot, String> {
    let reader = BufReader::with_capacity(BUFFER_BYTES, from);
    let mut json = serde_json::Deserializer::from_reader(reader);
    let mut file = Reading {
        want,
        meta: None,
        nodes: 0,
        edges: 0,
        class_names: Vec::new(),
        out: Snapshot::default(),
    };
    let result = (&mut file).deserialize(&mut json);
    let result = result.and_then(|()| json.end());
    result.map_err(|error| said(&error))?;
    file.finish()
}

fn said(error: &serde_json::Error) -> String {
    let place = format!("line {}, column {}", error.line(), error.column());
    let text = error.to_string();
    let text = text.split(" at line ").next().unwrap_or(&text);
    match error.classify() {
        serde_json::error::Category::Io => format!("cannot be read: {text}"),
        serde_json::error::Category::Eof => format!(
            "the file ends too early ({place}): it was cut, or is still being written; write the snapshot anew"
        ),
        serde_json::error::Category::Syntax => {
            format!("no JSON at {place}: {text}; is it a .heapsnapshot?")
        }
        serde_json::error::Category::Data => {
            format!("no heap snapshot that can be read: {text} ({place})")
        }
    }
}

/// The positions of a file's fields.
#[derive(Clone, Debug)]
struct Meta {
    node_fields: usize,
    class: usize,
    name: usize,
    id: usize,
    bytes: usize,
    detached: Option<usize>,
    edges: usize,
    edge_fields: usize,
    edge_class: usize,
    edge_name: usize,
    edge_to: usize,
    node_count: u64,
    edge_count: u64,
    edge_classes: Vec<String>,
    node_classes: Vec<String>,
}

#[derive(serde::Deserialize)]
struct Header {
    meta: HeaderMeta,
    node_count: u64,
    edge_count: u64,
}

#[derive(serde::Deserialize)]
struct HeaderMeta {
    node_fields: Vec<String>,
    node_types: Vec<serde_json::Value>,
    edge_fields: Vec<String>,
    edge_types: Vec<serde_json::Value>,
}

/// V8's number for a node that was taken out of its page.
const DETACHED: u64 = 2;

fn place(fields: &[String], list: &str, name: &str) -> Result<usize, String> {
    let found = fields.iter().position(|field| field == name);
    found.ok_or_else(|| format!("\"{list}\" has no \"{name}\""))
}

/// Returns the names of types: the first element of the list of types.
fn classes(types: &[serde_json::Value], at: usize, list: &str) -> Result<Vec<String>, String> {
    let names = types.get(at).and_then(serde_json::Value::as_array);
    let names = names.ok_or_else(|| format!("\"{list}\" names no types"))?;
    let text = |name: &serde_json::Value| name.as_str().unwrap_or("?").to_owned();
    Ok(names.iter().map(text).collect())
}

impl Meta {
    fn of(header: &Header) -> Result<Meta, String> {
        let (nodes, edges) = (&header.meta.node_fields, &header.meta.edge_fields);
        let class = place(nodes, "node_fields", "type")?;
        let edge_class = place(edges, "edge_fields", "type")?;
        let limit = u64::from(u32::MAX) / 2;
        if header.node_count > limit || header.edge_count > limit {
            return Err("more than 2,147,483,647 nodes or edges".to_owned());
        }
        Ok(Meta {
            node_fields: nodes.len(),
            class,
            name: place(nodes, "node_fields", "name")?,
            id: place(nodes, "node_fields", "id")?,
            bytes: place(nodes, "node_fields", "self_size")?,
            detached: place(nodes, "node_fields", "detachedness").ok(),
            edges: place(nodes, "node_fields", "edge_count")?,
            edge_fields: edges.len(),
            edge_class,
            edge_name: place(edges, "edge_fields", "name_or_index")?,
            edge_to: place(edges, "edge_fields", "to_node")?,
            node_count: header.node_count,
            edge_count: header.edge_count,
            node_classes: classes(&header.meta.node_types, class, "node_types")?,
            edge_classes: classes(&header.meta.edge_types, edge_class, "edge_types")?,
        })
    }
}

/// The state of the file as far as it was read.
struct Reading {
    want: Want,
    meta: Option<Meta>,
    nodes: u64,
    edges: u64,
    /// Numbers of the strings that are names of classes.
    class_names: Vec<u32>,
    out: Snapshot,
}

impl Reading {
    fn finish(self) -> Result<Snapshot, String> {
        let Some(meta) = &self.meta else {
            return Err("no heap snapshot: there is no \"snapshot\"".to_owned());
        };
        // The list is missing.
        if self.nodes != meta.node_count {
            return Err(counts("nodes", self.nodes, meta.node_count));
        }
        if self.want == Want::Graph && self.edges != meta.edge_count {
            return Err(counts("edges", self.edges, meta.edge_count));
        }
        let mut out = self.out;
        let strings = &out.graph.strings;
        out.census.name(strings)?;
        if self.want != Want::Census {
            out.graph.check()?;
        }
        Ok(out)
    }

    fn meta<E: Error>(&self, list: &str) -> Result<Meta, E> {
        let missing = || E::custom(format!("\"{list}\" comes before \"snapshot\""));
        self.meta.clone().ok_or_else(missing)
    }
}

impl<'de> DeserializeSeed<'de> for &mut Reading {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for &mut Reading {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a heap snapshot")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "snapshot" => {
                    let header: Header = map.next_value()?;
                    let meta = Meta::of(&header).map_err(A::Error::custom)?;
                    self.out
                        .graph
                        .set_classes(&meta.node_classes, &meta.edge_classes);
                    self.out.census.set_classes(&meta.node_classes);
                    self.meta = Some(meta);
                }
                "nodes" => {
                    let meta = self.meta("nodes")?;
                    map.next_value_seed(Nodes(self, meta))?;
                }
                "edges" if self.want == Want::Graph => {
                    let meta = self.meta("edges")?;
                    if self.nodes != meta.node_count {
                        return Err(A::Error::custom("\"edges\" comes before \"nodes\""));
                    }
                    map.next_value_seed(Edges(self, meta))?;
                }
                "strings" => map.next_value_seed(Texts(self))?,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

macro_rules! list {
    ($name:ident, $what:literal) => {
        impl<'de> DeserializeSeed<'de> for $name<'_> {
            type Value = ();
            fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
                from.deserialize_seq(self)
            }
        }

        impl<'de> Visitor<'de> for $name<'_> {
            type Value = ();

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str($what)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<(), A::Error> {
                self.read(list)
            }
        }
    };
}

struct Nodes<'a>(&'a mut Reading, Meta);
struct Edges<'a>(&'a mut Reading, Meta);
struct Texts<'a>(&'a mut Reading);

list!(Nodes, "the numbers of nodes");
list!(Edges, "the numbers of edges");
list!(Texts, "strings");

/// Reads the next `fields` numbers; returns whether there were any.
fn next<'de, A: SeqAccess<'de>>(
    list: &mut A,
    fields: &mut [u64],
    what: &str,
) -> Result<bool, A::Error> {
    for (place, field) in fields.iter_mut().enumerate() {
        match list.next_element::<u64>()? {
            Some(number) => *field = number,
            None if place == 0 => return Ok(false),
            None => return Err(A::Error::custom(format!("the last {what} is not whole"))),
        }
    }
    Ok(true)
}

fn counts(what: &str, read: u64, said: u64) -> String {
    format!("{read} {what}, where \"snapshot\" says {said}; write the snapshot anew")
}

fn narrow<E: Error>(number: u64, what: &str) -> Result<u32, E> {
    u32::try_from(number).map_err(|_| E::custom(format!("{what} is {number}: too large")))
}

impl Nodes<'_> {
    fn read<'de, A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let Nodes(reading, meta) = self;
        let graph = &mut reading.out.graph;
        let mut fields = vec![0; meta.node_fields];
        let mut edges = 0u64;
        while next(&mut list, &mut fields, "node")? {
            reading.nodes += 1;
            if reading.nodes > meta.node_count {
                return Err(A::Error::custom("more nodes than \"snapshot\" says"));
            }
            let class = fields[meta.class];
            if class >= meta.node_classes.len() as u64 {
                let what = format!("a node of type {class}, of {}", meta.node_classes.len());
                return Err(A::Error::custom(what));
            }
            let name = narrow(fields[meta.name], "the number of a name")?;
            let bytes = fields[meta.bytes];
            reading.out.census.add(class as u8, name, bytes);
            edges = edges.saturating_add(fields[meta.edges]);
            if reading.want != Want::Census {
                if meta.detached.is_some_and(|at| fields[at] == DETACHED) {
                    graph.detached.push(graph.len() as u32);
                }
                graph.add_node(
                    class as u8,
                    name,
                    fields[meta.id],
                    bytes,
                    edges.min(u64::from(u32::MAX)) as u32,
                );
            }
        }
        if reading.nodes != meta.node_count {
            return Err(A::Error::custom(counts(
                "nodes",
                reading.nodes,
                meta.node_count,
            )));
        }
        if edges != meta.edge_count {
            let what = format!(
                "nodes have {edges} edges, \"snapshot\" says {}",
                meta.edge_count
            );
            return Err(A::Error::custom(what));
        }
        reading.class_names = reading.out.census.names();
        Ok(())
    }
}

impl Edges<'_> {
    fn read<'de, A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let Edges(reading, meta) = self;
        let graph = &mut reading.out.graph;
        let mut fields = vec![0; meta.edge_fields];
        while next(&mut list, &mut fields, "edge")? {
            reading.edges += 1;
            if reading.edges > meta.edge_count {
                return Err(A::Error::custom("more edges than \"snapshot\" says"));
            }
            let class = fields[meta.edge_class];
            if class >= meta.edge_classes.len() as u64 {
                let what = format!("an edge of type {class}, of {}", meta.edge_classes.len());
                return Err(A::Error::custom(what));
            }
            let (to, width) = (fields[meta.edge_to], meta.node_fields as u64);
            if to % width != 0 || to / width >= meta.node_count {
                let what = format!(
                    "edge {} leads to {to}, where no node begins",
                    reading.edges - 1
                );
                return Err(A::Error::custom(what));
            }
            let name = narrow(fields[meta.edge_name], "the name or number of an edge")?;
            graph.add_edge(class as u8, name, (to / width) as u32);
        }
        if reading.edges != meta.edge_count {
            return Err(A::Error::custom(counts(
                "edges",
                reading.edges,
                meta.edge_count,
            )));
        }
        Ok(())
    }
}

/// A string, as bytes: JavaScript's strings may have unpaired surrogates.
struct Text<'a> {
    to: &'a mut Strings,
    kept: bool,
}

impl<'de> DeserializeSeed<'de> for Text<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_bytes(self)
    }
}

impl Visitor<'_> for Text<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<(), E> {
        let kept = if self.kept { bytes } else { &[] };
        self.to.push(kept.get(..KEPT_BYTES).unwrap_or(kept));
        Ok(())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        self.visit_bytes(text.as_bytes())
    }
}

impl Texts<'_> {
    fn read<'de, A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let Texts(reading) = self;
        let all = reading.want == Want::Graph;
        let names = std::mem::take(&mut reading.class_names);
        let strings = &mut reading.out.graph.strings;
        loop {
            let kept = all || names.binary_search(&(strings.len() as u32)).is_ok();
            if list
                .next_element_seed(Text { to: strings, kept })?
                .is_none()
            {
                return Ok(());
            }
        }
    }
}
