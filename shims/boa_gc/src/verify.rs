//! The second, simpler examination, and what keeps the objects of a tenant that ended.
//!
//! ```text
//!   suspects ─► each tells its edges into a map ─► handles − edges > 0: alive ─► a walk over sets ─► the same garbage?
//! ```
//!
//! R1  It shares no flag and no count with `examine`: edges come from `trace`, not from `trace_non_roots`.
//! R2  It is for tests and stress modes, and for reports about what should not exist: it takes a map entry for each
//!     object.
//!
//! Not here: the consequences.

use std::collections::{HashMap, HashSet, VecDeque};

use crate::local::Local;
use crate::object::{DOOMED, ENDED, Erased, QUEUED, head};
use crate::tenant::Tenant;
use crate::trace::Tracer;

/// Returns what an object leads to, including the value of an ephemeron.
fn edges(object: Erased) -> Vec<Erased> {
    let mut tracer = Tracer::new();
    // SAFETY: the caller has it from a walk over objects that have not ended; object.H3.
    unsafe {
        let vtable = head(object).vtable;
        match vtable.pair {
            Some(fns) => (fns.trace_value)(object, &mut tracer),
            None => (vtable.trace)(object, &mut tracer),
        }
    }
    tracer.stack
}

/// Returns the key of an ephemeron that has one.
fn key(object: Erased) -> Option<Erased> {
    // SAFETY: as in `edges`.
    unsafe { head(object).vtable.pair.and_then(|fns| (fns.key)(object)) }
}

fn name(object: Erased) -> &'static str {
    // SAFETY: as in `edges`.
    unsafe { (head(object).vtable.name)() }
}

/// Returns which of `suspects` are garbage, by sets. `pairs` are as in `examine`.
pub(crate) fn garbage_by_sets(suspects: &[Erased], pairs: &[&[Erased]]) -> HashSet<Erased> {
    let set: HashSet<Erased> = suspects.iter().copied().collect();
    let open = |pair: &Erased| {
        // SAFETY: those on the list are not free.
        let seen_to = unsafe { head(*pair) }.has(QUEUED | DOOMED | ENDED);
        !seen_to && !set.contains(pair) && key(*pair).is_some_and(|key| set.contains(&key))
    };
    let open: Vec<Erased> = pairs
        .iter()
        .copied()
        .flatten()
        .copied()
        .filter(open)
        .collect();
    let mut explained: HashMap<Erased, u32> = HashMap::new();
    for &object in suspects.iter().chain(&open) {
        for edge in edges(object) {
            *explained.entry(edge).or_default() += 1;
        }
    }
    let unexplained = |object: &Erased| {
        // SAFETY: suspects have not ended.
        let handles = unsafe { head(*object) }.handles();
        handles > explained.get(object).copied().unwrap_or(0)
    };
    let mut queue: VecDeque<Erased> = suspects.iter().copied().filter(unexplained).collect();
    let mut reached: HashSet<Erased> = HashSet::new();
    let mut waiting = open;
    loop {
        while let Some(object) = queue.pop_front() {
            if !set.contains(&object) || !reached.insert(object) {
                continue;
            }
            if key(object).is_some() {
                waiting.push(object);
            } else {
                queue.extend(edges(object));
            }
        }
        let before = waiting.len();
        waiting.retain(|&pair| {
            let alive = key(pair).is_none_or(|key| !set.contains(&key) || reached.contains(&key));
            if alive {
                queue.extend(edges(pair));
            }
            !alive
        });
        if waiting.len() == before && queue.is_empty() {
            return set.difference(&reached).copied().collect();
        }
    }
}

/// Compares what `examine` found with what the sets give.
///
/// # Panics
/// If they differ.
pub(crate) fn check(by_sets: &HashSet<Erased>, garbage: &[Erased]) {
    for &object in garbage {
        assert!(
            by_sets.contains(&object),
            "{} at {object:p} was taken for garbage and is alive: an edge was counted that is not told",
            name(object)
        );
    }
    assert_eq!(
        by_sets.len(),
        garbage.len(),
        "garbage was missed: an edge is told that is not counted"
    );
}

impl Local {
    /// Describes what keeps objects of a tenant alive, as far as it can be found: the object from which most of them
    /// are reached, what of other tenants leads to it, and how many handles remain unexplained.
    pub(crate) fn retaining_path(&self, tenant: &Tenant) -> Option<String> {
        let mut objects = Vec::new();
        tenant.each(|object| objects.push(object));
        let set: HashSet<Erased> = objects.iter().copied().collect();
        let mut explained: HashMap<Erased, u32> = HashMap::new();
        let all_edges = objects.iter().flat_map(|&object| edges(object));
        for edge in all_edges.filter(|edge| set.contains(edge)) {
            *explained.entry(edge).or_default() += 1;
        }
        let outside = |object: Erased| {
            // SAFETY: it has not ended.
            let handles = unsafe { head(object) }.handles();
            handles.saturating_sub(explained.get(&object).copied().unwrap_or(0))
        };
        let mut reached: HashSet<Erased> = HashSet::new();
        let mut best: Option<(usize, Erased, Vec<Erased>)> = None;
        for &root in objects.iter().filter(|&&object| outside(object) > 0) {
            let (count, path) = walk(root, &set, &mut reached);
            if count > best.as_ref().map_or(0, |best| best.0) {
                best = Some((count, root, path));
            }
        }
        let (count, root, path) = best?;
        let mut holders = self.holders(tenant, root);
        let rest = outside(root) as usize - holders.len().min(outside(root) as usize);
        if rest > 0 {
            holders.push(format!("{rest} handles from outside of all heaps"));
        }
        let path: Vec<&str> = path.into_iter().map(name).collect();
        Some(format!(
            "{} -> {} ({count} objects)",
            holders.join(", "),
            path.join(" -> ")
        ))
    }

    /// Returns objects of other tenants that lead to one.
    fn holders(&self, tenant: &Tenant, object: Erased) -> Vec<String> {
        let mut holders = Vec::new();
        for other in self.all_tenants() {
            if other.heap.id() == tenant.heap.id() {
                continue;
            }
            other.each(|holder| {
                for _ in edges(holder).iter().filter(|&&edge| edge == object) {
                    holders.push(format!("tenant \"{}\": {}", other.name, name(holder)));
                }
            });
        }
        holders
    }
}

/// Walks from `root` over what was not reached before: returns how many objects that is, and the way to the last of
/// them.
fn walk(
    root: Erased,
    set: &HashSet<Erased>,
    reached: &mut HashSet<Erased>,
) -> (usize, Vec<Erased>) {
    if !reached.insert(root) {
        return (0, Vec::new());
    }
    let mut parents: HashMap<Erased, Erased> = HashMap::new();
    let mut queue = VecDeque::from([root]);
    let (mut count, mut last) = (0, root);
    while let Some(object) = queue.pop_front() {
        count += 1;
        last = object;
        for edge in edges(object) {
            if set.contains(&edge) && reached.insert(edge) {
                parents.insert(edge, object);
                queue.push_back(edge);
            }
        }
    }
    let mut path = vec![last];
    while let Some(&parent) = path.last().and_then(|object| parents.get(object)) {
        path.push(parent);
    }
    path.reverse();
    (count, path)
}
