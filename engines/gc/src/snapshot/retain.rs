//! Retention: the shortest paths from roots that keep an object alive.
//!
//! ```text
//!   handles, edges from heaps beside, the client's roots ─► frontier ─► next frontier ─► … ─► all that was asked for
//!                                                              parent[number of object] = number of the one before
//! ```
//!
//! R1  A path is one of the shortest, counted in edges that keep something alive. (The value of a pair counts as kept
//!     by the pair's holder.)
//! R2  Memory: four bytes for each object, and two frontiers.
//!
//! Not here: what is retained by an object alone (dominators: `skinflint heap`, of a snapshot).

use core::ptr::NonNull;
use std::collections::HashMap;

use super::number::{Numbering, Still, each_arena};
use super::trail::{Name, Trail};
use super::write::each_object;
use crate::heap::address::{Arena, Chunk};
use crate::heap::bits::each;
use crate::heap::kind::Kind;
use crate::heap::listen::listen;
use crate::heap::listener::{Listener, Segment, Strength};
use crate::heap::roots::From;
use crate::heap::set::{Busy, Roots};
use crate::heap::state::Heap;
use crate::heap::tracer::Tracer;

/// The most steps that are printed of a long path, at either end.
const SHOWN: usize = 12;

const UNSEEN: u32 = u32::MAX;
const ROOT: u32 = u32::MAX - 1;

/// A step of a path that keeps an object alive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The edge that leads here from the step before, as that object's kind names it; empty: it has no name, or this is
    /// the first step.
    pub edge: String,
    /// Name of the heap.
    pub heap: String,
    /// Kind of the object.
    pub kind: &'static str,
    /// Address of the object; it tells objects apart.
    pub address: usize,
}

/// Why an object is alive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// The name of the root.
    pub root: String,
    /// The objects from the root's to the one that was asked for.
    pub steps: Vec<Step>,
}

impl std::fmt::Display for Path {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.root)?;
        let hidden = self.steps.len().saturating_sub(2 * SHOWN);
        for (place, step) in self.steps.iter().enumerate() {
            if hidden > 0 && place == SHOWN {
                write!(f, " -> … {hidden} more …")?;
            }
            if hidden > 0 && (SHOWN..SHOWN + hidden).contains(&place) {
                continue;
            }
            if !step.edge.is_empty() {
                write!(f, " .{}", step.edge)?;
            }
            write!(f, " -> {} ({})", step.kind, step.heap)?;
        }
        Ok(())
    }
}

/// An object that a path is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted<'a> {
    /// The object at this address. An address of no object has no path.
    Object(NonNull<u8>),
    /// The nth object of a kind, from 0, in the order of heaps and places: the same while nothing is allocated or
    /// freed.
    Nth(&'a str, usize),
    /// The object of a kind that is nearest to a root.
    Nearest(&'a str),
}

/// Finds, in some heaps, what keeps objects alive.
pub struct Retainers<'a> {
    heaps: &'a [&'a Heap],
    roots: Option<&'a mut dyn Roots>,
}

impl<'a> Retainers<'a> {
    /// Prepares a search in one heap, or several of one world: their handles, and edges out of other heaps, are the
    /// roots.
    pub fn of(heaps: &'a [&'a Heap]) -> Retainers<'a> {
        Retainers { heaps, roots: None }
    }

    /// Adds roots of the client's own.
    ///
    /// # Safety
    /// They are first bytes of live objects of the same world, and `roots` keeps the tracer where it is.
    pub unsafe fn roots(self, roots: &'a mut dyn Roots) -> Retainers<'a> {
        Retainers {
            roots: Some(roots),
            ..self
        }
    }

    /// Returns a shortest path to each wanted object, in that order; `None`: nothing leads there, or there is no such
    /// object. One walk serves all. Cost: that of marking, and looking up the numbers; memory as in R2.
    ///
    /// # Errors
    /// A closure of these heaps is running, or a finalizer or trace function asked.
    pub fn paths(self, wanted: &[Wanted<'_>]) -> Result<Vec<Option<Path>>, Busy> {
        let _still = Still::new(self.heaps)?;
        Ok(walk(self.heaps, self.roots, wanted))
    }
}

impl Heap {
    /// Returns why an object of this heap is alive, as far as its own roots tell: the shortest path from a handle, or
    /// from an edge out of another heap. `None`: none of these leads there.
    ///
    /// # Panics
    /// A finalizer or a trace function of this heap calls it.
    pub fn path_to(&self, object: NonNull<u8>) -> Option<Path> {
        let set = [self];
        let _still = Still::even_entered(&set);
        walk(&set, None, &[Wanted::Object(object)]).pop().flatten()
    }

    pub(crate) fn name_of(&self, id: u32) -> String {
        let heaps = self.world.heaps();
        let heap = heaps.iter().find(|heap| heap.id == id);
        heap.map_or_else(|| format!("{id}"), |heap| heap.name().to_owned())
    }
}

/// Returns the nth object of a kind.
fn nth(heaps: &[&Heap], kind: &str, mut n: usize) -> Option<NonNull<u8>> {
    for heap in heaps {
        let found = each_arena(heap, |arena| {
            let head = arena.head();
            if (head.kind.get().name)() != kind {
                return Ok(());
            }
            let here = head.allocated.count();
            if n >= here {
                n -= here;
                return Ok(());
            }
            let cell = each(head.allocated.words()).nth(n);
            cell.map_or(Ok(()), |cell| Err(arena.cell(cell)))
        });
        if let Err(object) = found {
            return Some(object);
        }
    }
    None
}

/// Hears edges and passes the strong ones on.
struct Strong<'f>(&'f mut dyn FnMut(NonNull<u8>));

impl Listener for Strong<'_> {
    fn edge(&mut self, strength: Strength, object: NonNull<u8>) {
        if matches!(strength, Strength::Strong | Strength::Value) {
            (self.0)(object);
        }
    }
}

fn tell(object: NonNull<u8>, listener: &mut dyn Listener) {
    listen(listener, |tracer: &mut Tracer| tracer.trace(object));
}

/// The state of a walk.
struct Walk<'a> {
    heaps: &'a [&'a Heap],
    numbering: Numbering,
    parent: Vec<u32>,
    frontier: Vec<NonNull<u8>>,
}

impl Walk<'_> {
    /// Reaches an object from another, or from a root.
    fn reach(&mut self, object: NonNull<u8>, from: u32) {
        let number = self.numbering.number(object);
        let Some(parent) = number.ok().and_then(|n| self.parent.get_mut(n as usize)) else {
            return;
        };
        if *parent == UNSEEN {
            *parent = from;
            self.frontier.push(object);
        }
    }

    fn begin(&mut self, roots: &mut Option<&mut dyn Roots>) {
        let heaps = self.heaps;
        each_root(heaps, &mut |object, _| self.reach(object, ROOT));
        if let Some(roots) = roots {
            let mut reach = |object| self.reach(object, ROOT);
            listen(&mut Strong(&mut reach), |tracer| roots.trace(tracer));
        }
    }

    /// Goes on until every wanted object that can be reached is found. They are given by number, and by kind.
    fn go(
        &mut self,
        by_number: &mut HashMap<u32, Vec<usize>>,
        by_kind: &mut HashMap<&str, Vec<usize>>,
    ) -> Vec<(usize, u32)> {
        let mut found = Vec::new();
        let mut last: *const Kind = core::ptr::null();
        while !self.frontier.is_empty() {
            if by_number.is_empty() && by_kind.is_empty() {
                break;
            }
            for object in std::mem::take(&mut self.frontier) {
                let Ok(number) = self.numbering.number(object) else {
                    continue;
                };
                for place in by_number.remove(&number).into_iter().flatten() {
                    found.push((place, number));
                }
                let kind = Arena::of(object).head().kind.get();
                // Objects of one kind often come together.
                if !core::ptr::eq(last, kind) {
                    last = kind;
                    for place in by_kind.remove((kind.name)()).into_iter().flatten() {
                        found.push((place, number));
                    }
                }
                tell(object, &mut Strong(&mut |next| self.reach(next, number)));
            }
        }
        found
    }
}

/// Passes each root in the tables of some heaps that none of them tells itself to `visit`.
fn each_root(heaps: &[&Heap], visit: &mut dyn FnMut(NonNull<u8>, From)) {
    for heap in heaps {
        for (object, from) in heap.roots.borrow().all() {
            let is_in_set = |id: u32| heaps.iter().any(|heap| heap.id == id);
            if !matches!(from, From::Heap(id) if is_in_set(id)) {
                visit(object, from);
            }
        }
    }
}

/// The arenas, by which an object's place is found from its number.
struct Arenas(Vec<(u32, Arena)>);

impl Arenas {
    fn of(heaps: &[&Heap], numbering: &Numbering) -> Arenas {
        let mut arenas = Vec::new();
        for heap in heaps {
            each_arena(heap, |arena| {
                arenas.push((numbering.first(arena), arena));
                Ok(())
            })
            .unwrap_or_else(|never: core::convert::Infallible| match never {});
        }
        Arenas(arenas)
    }

    fn object(&self, number: u32) -> Option<NonNull<u8>> {
        let behind = self.0.partition_point(|(first, _)| *first <= number);
        let (first, arena) = *self.0.get(behind.checked_sub(1)?)?;
        let mut cells = each(arena.head().allocated.words());
        Some(arena.cell(cells.nth((number - first) as usize)?))
    }
}

/// Finds the name of the edge from one object to another.
struct NameOf {
    to: NonNull<u8>,
    trail: Trail,
    found: Option<String>,
}

impl Listener for NameOf {
    fn wants_names(&self) -> bool {
        true
    }

    fn enter(&mut self, segment: Segment<'_>) {
        self.trail.enter(segment);
    }

    fn leave(&mut self) {
        self.trail.leave();
    }

    fn edge(&mut self, strength: Strength, object: NonNull<u8>) {
        if object != self.to || self.found.is_some() {
            return;
        }
        let name = match (strength, self.trail.name()) {
            (Strength::Weak | Strength::Key, _) => return,
            (Strength::Value, _) => "value of a pair".to_owned(),
            (Strength::Strong, Name::Text(name)) => name.to_owned(),
            (Strength::Strong, Name::Index(index)) => format!("[{index}]"),
            (Strength::Strong, Name::Nothing) => String::new(),
        };
        self.found = Some(name);
    }
}

fn edge_name(from: NonNull<u8>, to: NonNull<u8>) -> String {
    let mut name = NameOf {
        to,
        trail: Trail::default(),
        found: None,
    };
    tell(from, &mut name);
    name.found.unwrap_or_default()
}

impl Walk<'_> {
    fn step(&self, before: Option<NonNull<u8>>, object: NonNull<u8>) -> Step {
        let id = Chunk::of(object).head().heap.get();
        let heap = self.heaps.iter().find(|heap| heap.id == id);
        Step {
            edge: before.map_or_else(String::new, |before| edge_name(before, object)),
            heap: heap.map_or_else(String::new, |heap| heap.name().to_owned()),
            kind: (Arena::of(object).head().kind.get().name)(),
            address: object.as_ptr().addr(),
        }
    }

    fn root(&self, object: NonNull<u8>) -> String {
        let mut name = None;
        each_root(self.heaps, &mut |root, from| {
            if root == object && name.is_none() {
                name = Some(match from {
                    From::Host(what) => format!("handle \"{what}\""),
                    From::Heap(id) => {
                        let heap = self.heaps.first();
                        let heap = heap.map_or_else(String::new, |heap| heap.name_of(id));
                        format!("an edge from heap \"{heap}\"")
                    }
                });
            }
        });
        name.unwrap_or_else(|| "a root of the client".to_owned())
    }

    /// Returns the path to an object that was reached.
    fn path(&self, arenas: &Arenas, number: u32) -> Option<Path> {
        let mut objects = Vec::new();
        let mut at = number;
        while at != ROOT {
            objects.push(arenas.object(at)?);
            at = *self.parent.get(at as usize)?;
        }
        objects.reverse();
        let before = std::iter::once(None).chain(objects.iter().copied().map(Some));
        let steps = before.zip(&objects);
        Some(Path {
            root: self.root(*objects.first()?),
            steps: steps
                .map(|(before, object)| self.step(before, *object))
                .collect(),
        })
    }
}

/// Runs the walk. The heaps are still.
fn walk(
    heaps: &[&Heap],
    mut roots: Option<&mut dyn Roots>,
    wanted: &[Wanted<'_>],
) -> Vec<Option<Path>> {
    let mut paths: Vec<Option<Path>> = vec![None; wanted.len()];
    // Two numbers have a special meaning here.
    let Some(numbering) = Numbering::of(heaps).ok().filter(|n| n.objects() < ROOT) else {
        return paths;
    };
    let mut by_number: HashMap<u32, Vec<usize>> = HashMap::new();
    let mut by_kind: HashMap<&str, Vec<usize>> = HashMap::new();
    let mut exact: HashMap<NonNull<u8>, Vec<usize>> = HashMap::new();
    for (place, wanted) in wanted.iter().enumerate() {
        match *wanted {
            Wanted::Object(object) => exact.entry(object).or_default().push(place),
            Wanted::Nth(kind, n) => {
                if let Some(object) = nth(heaps, kind, n) {
                    exact.entry(object).or_default().push(place);
                }
            }
            Wanted::Nearest(kind) => by_kind.entry(kind).or_default().push(place),
        }
    }
    if !exact.is_empty() {
        // A wanted address may be anything: it is searched for, not read.
        for heap in heaps {
            each_object(heap, |object, _| {
                if let Some(places) = exact.remove(&object)
                    && let Ok(number) = numbering.number(object)
                {
                    by_number.insert(number, places);
                }
                if exact.is_empty() { Err(()) } else { Ok(()) }
            })
            .unwrap_or(());
        }
    }
    let mut walk = Walk {
        heaps,
        parent: vec![UNSEEN; numbering.objects() as usize],
        numbering,
        frontier: Vec::new(),
    };
    walk.begin(&mut roots);
    let found = walk.go(&mut by_number, &mut by_kind);
    let arenas = Arenas::of(heaps, &walk.numbering);
    for (place, number) in found {
        paths[place] = walk.path(&arenas, number);
    }
    paths
}
