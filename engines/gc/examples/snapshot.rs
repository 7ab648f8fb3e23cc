//! A snapshot of a heap: how long writing it takes, and how much memory it needs beside the heap.
//!
//! ```text
//!   snapshot OBJECTS FILE ─► two tenants and a shared heap ─► collect ─► Snapshot ─► FILE; figures as JSON on stdout
//! ```
//!
//! E1  Memory is the peak of what this thread requested from its allocator while the snapshot was written, and the most
//!     that was resident by the kernel's count, before and after; time is the processor's.
//!
//! Not here: bars (`bench/gc/snapshot.py`), DevTools (`tests/browser`).

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fs::File;
use std::process::ExitCode;

use skinflint_gc::typed::{Gc, Handle, Locked, Runtime, Slot, Sys, Tenant, Weak};
use skinflint_gc::{OutOfMemory, object};

object! {
    /// A person, with friends anywhere.
    pub struct Person<'gc> {
        home: Slot<Gc<'gc, Place<'gc>>>,
        friend: Slot<Gc<'gc, Person<'gc>>>,
        next: Slot<Gc<'gc, Person<'gc>>>,
        shape: Sys<'gc, u64>,
        data: [u64; 8],
    }
}

object! {
    /// A place, which knows the people who live there, but does not keep them.
    pub struct Place<'gc> {
        people: Locked<Vec<Gc<'gc, Person<'gc>>>>,
        latest: Weak<'gc, Person<'gc>>,
        number: u64,
    }
}

thread_local! {
    static NOW: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: it passes every call on.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        NOW.set(NOW.get() + layout.size() as isize);
        PEAK.set(PEAK.get().max(NOW.get()));
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        NOW.set(NOW.get() - layout.size() as isize);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const PEOPLE_OF_A_PLACE: usize = 99;

/// Fills a tenant with places and people, `objects` in all (a few more or less).
fn fill(tenant: &Tenant, objects: usize) -> Result<Handle<Person<'static>>, OutOfMemory> {
    tenant.enter(|cx| {
        let shape = cx.alloc_shared(7u64)?;
        let mut last: Option<Gc<'_, Person<'_>>> = None;
        let mut first = None;
        let mut seed = 1u64;
        for number in 0..(objects / (PEOPLE_OF_A_PLACE + 1)).max(1) {
            let mut people = Vec::with_capacity(PEOPLE_OF_A_PLACE);
            for _ in 0..PEOPLE_OF_A_PLACE {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let friend = people.get(seed as usize % people.len().max(1)).copied();
                let person = cx.alloc(Person {
                    home: Slot::new(None),
                    friend: Slot::new(friend),
                    next: Slot::new(last),
                    shape,
                    data: [seed; 8],
                })?;
                people.push(person);
                last = Some(person);
                first = first.or(last);
            }
            let place = cx.alloc(Place {
                latest: Weak::to(people[0]),
                people: Locked::default(),
                number: number as u64,
            })?;
            people.iter().for_each(|p| p.home.set(cx, Some(place)));
            *place.people.borrow_mut(cx) = people;
        }
        let last = last.or(first).expect("at least one place");
        Ok(cx.keep(last, "the last person"))
    })
}

/// Returns a line of /proc/self/status in kB.
fn status_kb(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(name));
    let number = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
    number.unwrap_or(0)
}

/// Returns the processor time of the process.
fn cpu_ms() -> f64 {
    // SAFETY: a zeroed timespec is one, and the kernel writes it.
    let time = unsafe {
        let mut time: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time);
        time
    };
    time.tv_sec as f64 * 1e3 + time.tv_nsec as f64 / 1e6
}

fn run(objects: usize, file: &str) -> Result<(), Box<dyn std::error::Error>> {
    let runtime = Runtime::default();
    let small = runtime.tenant("tab \"small\"", usize::MAX);
    let large = runtime.tenant("tab large", usize::MAX);
    let _kept = [
        fill(&small, objects / 10)?,
        fill(&large, objects - objects / 10)?,
    ];
    runtime.collect_all(skinflint_gc::Reason::Asked)?;
    let cell_bytes: usize = runtime.rows().iter().map(|row| row.holds.cell_bytes).sum();
    let census = runtime.census()?;
    let person = |kind: &str| kind.contains("Person");
    let people: u64 = census
        .rows
        .iter()
        .filter(|(class, _)| person(&class.kind))
        .map(|(_, sum)| sum.objects)
        .sum();
    let name = census
        .rows
        .keys()
        .find(|class| person(&class.kind))
        .map_or("", |class| class.kind.as_str());
    let mut out = File::create(file).map_err(|error| format!("{file}: {error}"))?;
    let (before_kb, before_ms) = (status_kb("VmHWM:"), cpu_ms());
    let before = NOW.get();
    PEAK.set(before);
    let written = runtime.snapshot(&mut out)?;
    println!(
        "{{\"objects\":{},\"nodes\":{},\"edges\":{},\"cell_bytes\":{},\"heap_cell_bytes\":{cell_bytes},\"file_bytes\":{},\
         \"class\":\"{name}\",\"class_objects\":{people},\"writer_peak_bytes\":{},\"cpu_ms\":{:.1},\
         \"peak_rss_before_kb\":{before_kb},\"peak_rss_after_kb\":{}}}",
        written.objects,
        written.nodes,
        written.edges,
        written.cell_bytes,
        written.bytes,
        PEAK.get() - before,
        cpu_ms() - before_ms,
        status_kb("VmHWM:"),
    );
    Ok(())
}

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let (objects, file) = (words.next().and_then(|n| n.parse().ok()), words.next());
    let (Some(objects), Some(file)) = (objects, file) else {
        eprintln!("snapshot: snapshot OBJECTS FILE, for instance 1000000 /tmp/a.heapsnapshot");
        return ExitCode::from(2);
    };
    match run(objects, &file) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("snapshot: {error}");
            ExitCode::FAILURE
        }
    }
}
