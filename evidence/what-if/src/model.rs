//! A policy at work: a layout, its pages, and the figures of both.
//!
//! ```text
//!   came(block) ─► layout.acquire ─► pages.block       regrown ─► in place │ moved with its pages │ copied
//!   went(block) ─► pages.unblock  ─► layout.release
//! ```
//!
//! M1  `usable` is the sum of what the layout returns for each live block.
//! M2  Blocks of [`DIRECT_BYTES`] or more are mappings of their own under every policy and have no entries in the
//!     page table: a program that asks for a terabyte and uses none costs nothing here.
//! M3  Meshing is computed when the acts since the last time have paid for it, or when the fall is an eighth deeper:
//!     its cost stays a constant for each act.
//!
//! Not here: the moments (`mod.rs`).

use crate::chunks::ChunkLayout;
use crate::layout::{Ask, Layout, Place};
use crate::mesh::Mesh;
use crate::outcome::{Average, Figures, Held, Outcome};
use crate::pages::{PAGE, Pages, Residents};
use crate::policy::Policy;
use crate::spans::SpanLayout;

/// The size from which blocks are mappings of their own (M2).
pub(crate) const DIRECT_BYTES: u64 = 64 << 20;
/// The looks at a pair of spans that an act pays for (M3).
const LOOKS_PER_ACT: u64 = 4;

/// The bytes of a block: requested, and touched; both at least 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Size {
    pub asked: u64,
    pub touched: u64,
}

/// Sums over time, in byte-nanoseconds.
#[derive(Clone, Copy, Default)]
struct Sums {
    slop: u128,
    floor: u128,
    resident: [u128; 3],
}

/// A policy at work.
pub(crate) struct Model {
    pub policy: Policy,
    layout: Box<dyn Layout>,
    pages: Pages,
    /// The places, by block number.
    places: Vec<Place>,
    usable: u64,
    most: Residents,
    /// The most bytes of descriptors: they are used again, and not given back.
    descriptors: u64,
    /// The bytes that perhaps are not touched yet (simulation.S3).
    pub fresh: u64,
    /// The most resident bytes in spans without them.
    most_sure: u64,
    sums: Sums,
    at_peak: Figures,
    after_free: Option<Figures>,
    /// The last result of meshing, with its ticket and its fall.
    mesh: Option<(Mesh, u64, u64)>,
    credit: u64,
}

impl Model {
    pub(crate) fn new(policy: Policy, delay_ms: u32) -> Model {
        let layout: Box<dyn Layout> = match policy.order {
            Some(order) => Box::new(SpanLayout::new(&policy, order)),
            None => Box::new(ChunkLayout::new()),
        };
        Model::with_layout(policy, layout, delay_ms)
    }

    pub(crate) fn with_layout(policy: Policy, layout: Box<dyn Layout>, delay_ms: u32) -> Model {
        Model {
            policy,
            layout,
            pages: Pages::new(delay_ms),
            places: Vec::new(),
            usable: 0,
            most: Residents::default(),
            descriptors: 0,
            fresh: 0,
            most_sure: 0,
            sums: Sums::default(),
            at_peak: Figures::default(),
            after_free: None,
            mesh: None,
            credit: 0,
        }
    }

    /// Notes that a block came.
    pub(crate) fn came(&mut self, block: u32, size: Size, heap: u32) {
        let place = self.place(size.asked, heap);
        self.enter(place, size);
        self.settle(block, place);
    }

    /// Notes that a block went.
    pub(crate) fn went(&mut self, block: u32, size: Size) {
        self.credit += LOOKS_PER_ACT;
        let place = self.places[block as usize];
        self.leave(place, size);
        self.layout.release(place, size.asked, &mut self.pages);
    }

    /// Notes that a block has another size now.
    pub(crate) fn regrown(&mut self, block: u32, old: Size, new: Size, heap: u32) {
        let place = self.places[block as usize];
        let before = self.layout.usable(place, old.asked);
        // A direct mapping stays one while the layout allows it, and above DIRECT_BYTES in any case.
        let huge = (old.asked >= DIRECT_BYTES, new.asked >= DIRECT_BYTES);
        let stays = match (place.is_direct(), huge) {
            (true, (true, true)) => true,
            (false, (_, true)) => false,
            _ => self
                .layout
                .in_place(place, old.asked, new.asked, &mut self.pages),
        };
        if stays {
            self.touch(place, old.touched, new.touched);
            self.usable = self.usable - before + self.layout.usable(place, new.asked);
            return self.settle(block, place);
        }
        let to = self.place(new.asked, heap);
        if self.layout.moves_pages(old.asked, new.asked) {
            self.leave(place, old);
            if !place.is_direct() {
                self.pages.moved_away(place.0, old.touched);
            }
            self.enter(to, new);
        } else {
            // Both are resident while the bytes are copied, the new one as far as it is written then.
            let written = Size {
                touched: new.touched.min(old.touched),
                ..new
            };
            self.enter(to, written);
            self.see_most();
            self.leave(place, old);
            self.layout.release(place, old.asked, &mut self.pages);
            self.touch(to, written.touched, new.touched);
            return self.settle(block, to);
        }
        self.layout.release(place, old.asked, &mut self.pages);
        self.settle(block, to);
    }

    fn place(&mut self, size: u64, heap: u32) -> Place {
        if size >= DIRECT_BYTES {
            return Place::DIRECT;
        }
        let heap = if self.policy.threads { heap } else { 0 };
        self.layout.acquire(Ask { size, heap }, &mut self.pages)
    }

    fn enter(&mut self, place: Place, size: Size) {
        match place.is_direct() {
            true => self.pages.direct(size.touched.div_ceil(PAGE)),
            false => self.pages.block(place.0, size.touched),
        }
        self.usable += self.layout.usable(place, size.asked);
    }

    /// Changes how much of a block is touched, from its start.
    fn touch(&mut self, place: Place, old: u64, new: u64) {
        if place.is_direct() {
            self.pages.undirect(old.div_ceil(PAGE));
            self.pages.direct(new.div_ceil(PAGE));
        } else {
            self.pages.resize(place.0, old, new);
        }
    }

    fn leave(&mut self, place: Place, size: Size) {
        match place.is_direct() {
            true => self.pages.undirect(size.touched.div_ceil(PAGE)),
            false => self.pages.unblock(place.0, size.touched),
        }
        self.usable -= self.layout.usable(place, size.asked);
    }

    fn settle(&mut self, block: u32, place: Place) {
        self.credit += LOOKS_PER_ACT;
        let block = block as usize;
        if block >= self.places.len() {
            self.places.resize(block + 1, Place(0));
        }
        self.places[block] = place;
        self.see_most();
    }

    fn see_most(&mut self) {
        let now = self.pages.resident();
        self.most_sure = self
            .most_sure
            .max((now.spans * PAGE).saturating_sub(self.fresh));
        self.most = self.most.with(&now, u64::max);
        self.descriptors = self.descriptors.max(self.layout.descriptor_bytes());
    }

    /// Notes that the state has lasted for `ns`, and that it is `now_ms` now.
    pub(crate) fn lasted(&mut self, ns: u64, requested: u64, now_ms: u32) {
        let all = self.pages.resident();
        let weigh = |pages: u64| u128::from(pages * PAGE) * u128::from(ns);
        self.sums.slop += u128::from(self.usable - requested) * u128::from(ns);
        self.sums.floor += weigh(self.pages.floor());
        for (sum, pages) in self
            .sums
            .resident
            .iter_mut()
            .zip([all.never, all.spans, all.holes])
        {
            *sum += weigh(pages);
        }
        self.pages.advance(now_ms);
    }

    fn figures(&self, requested: u64) -> Figures {
        let resident = self.pages.resident();
        Figures {
            // Blocks of 0 bytes have usable bytes, too: all of them are slop.
            slop_bytes: self.usable - requested,
            floor_bytes: self.pages.floor() * PAGE,
            resident: bytes(resident),
            held_bytes: (resident.spans - self.pages.floor()) * PAGE,
            spans: self.layout.spans(),
            mesh: None,
            mesh_ticket: None,
        }
    }

    /// Takes the figures of a peak that has passed.
    pub(crate) fn see_peak(&mut self, requested: u64) {
        self.at_peak = self.figures(requested);
    }

    /// Takes the figures of a low that has passed, `fall` bytes below the peak before it.
    pub(crate) fn see_low(&mut self, requested: u64, fall: u64, ticket: u64) {
        let deeper = self.mesh.is_none_or(|(_, _, before)| fall / 9 > before / 8);
        if deeper || self.credit >= self.layout.mesh_work() {
            self.look_for_mesh(ticket, fall);
        }
        self.after_free = Some(self.meshed(requested));
    }

    fn look_for_mesh(&mut self, ticket: u64, fall: u64) {
        self.credit = 0;
        self.mesh = self
            .layout
            .mesh(&self.pages)
            .map(|mesh| (mesh, ticket, fall));
    }

    fn meshed(&self, requested: u64) -> Figures {
        Figures {
            mesh: self.mesh.map(|found| found.0),
            mesh_ticket: self.mesh.map(|found| found.1),
            ..self.figures(requested)
        }
    }

    /// Ends the simulation, and returns the result.
    pub(crate) fn finish(
        mut self,
        requested: u64,
        ticket: u64,
        duration_ns: u64,
        heaps: u64,
    ) -> Outcome {
        let average = |sum: u128| (sum / u128::from(duration_ns.max(1))) as u64;
        let [never, spans, holes] = self.sums.resident.map(average);
        self.look_for_mesh(ticket, 0);
        let most_held = self.policy.own.map(|own| {
            let most_bytes = self.most.spans * PAGE;
            let (there, perhaps) = own.bytes(most_bytes, self.descriptors, heaps);
            Held {
                low_bytes: self.most_sure + there,
                high_bytes: most_bytes + there + perhaps,
            }
        });
        Outcome {
            at_end: self.meshed(requested),
            policy: self.policy.name,
            about: self.policy.about,
            at_peak: self.at_peak,
            after_free: self.after_free,
            most_resident: bytes(self.most),
            most_held,
            average: (duration_ns > 0).then_some(Average {
                slop_bytes: average(self.sums.slop),
                floor_bytes: average(self.sums.floor),
                resident: Residents {
                    never,
                    spans,
                    holes,
                },
            }),
        }
    }

    pub(crate) fn table_bytes(&self) -> usize {
        self.layout.table_bytes()
            + self.pages.table_bytes()
            + self.places.capacity() * size_of::<Place>()
    }

    /// pages.P1 and pages.P2, and outcome.O1.
    #[cfg(test)]
    pub(crate) fn check(&self, requested: u64, touched: u64) {
        let all = self.pages.resident();
        let direct: u64 = all.never - self.pages.recount().1.never;
        let (floor, counted) = self.pages.recount();
        assert_eq!(self.pages.floor(), floor + direct);
        assert_eq!(all.spans, counted.spans + direct);
        assert_eq!(all.holes, counted.holes + direct);
        assert!(self.pages.floor() <= all.holes, "{:?}", self.policy.name);
        assert!(all.holes <= all.spans && all.spans <= all.never);
        assert!(
            touched.div_ceil(PAGE) <= self.pages.floor(),
            "{:?}",
            self.policy.name
        );
        assert!(self.usable >= requested);
    }

    /// Pages that hold a live block.
    #[cfg(test)]
    pub(crate) fn floor_pages(&self) -> u64 {
        self.pages.floor()
    }

    /// Returns where a block is.
    #[cfg(test)]
    pub(crate) fn place_of(&self, block: u32) -> Place {
        self.places[block as usize]
    }
}

fn bytes(pages: Residents) -> Residents {
    Residents {
        never: pages.never * PAGE,
        spans: pages.spans * PAGE,
        holes: pages.holes * PAGE,
    }
}
