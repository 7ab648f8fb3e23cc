//! Answers a program's requests with a pool, timed or checked.
//!
//! ```text
//!   requests ─► take, give, extend ─► (page, pages) of each run, by its number
//! ```
//!
//! Y1  A resize shrinks in place by giving the end back, and grows in place if the pool can; else it is a take and a
//!     give. All pools get the same requests in the same order; only whether a run grows in place may differ.
//! Y2  `checked` compares every answer with a list of pages: no page is handed out twice.
//!
//! Not here: time (`main`), and the pools.

use crate::map::Runs;
use crate::requests::{Request, Requests};

/// Answers all requests. Runs that are left at the end are given back, so that it can be done again.
pub fn replay<P: Runs>(pool: &mut P, program: &Requests, runs: &mut Vec<(u32, u32)>) {
    runs.clear();
    for request in &program.requests {
        answer(pool, *request, runs);
    }
    for &(page, pages) in runs.iter().filter(|run| run.1 > 0) {
        pool.give(page, pages);
    }
}

#[inline(always)]
fn answer<P: Runs>(pool: &mut P, request: Request, runs: &mut Vec<(u32, u32)>) {
    match request {
        Request::Take { pages } => runs.push((pool.take(pages), pages)),
        Request::Give { run } => {
            let (page, pages) = std::mem::take(&mut runs[run as usize]);
            pool.give(page, pages);
        }
        Request::Resize { run, pages: wanted } => {
            let (page, pages) = runs[run as usize];
            let page = if wanted < pages {
                pool.give(page + wanted, pages - wanted);
                page
            } else if pool.extend(page + pages, wanted - pages) {
                page
            } else {
                let moved = pool.take(wanted);
                pool.give(page, pages);
                moved
            };
            runs[run as usize] = (page, wanted);
        }
    }
}

/// The result of a checked replay.
pub struct Seen {
    /// The most pages in use at once.
    pub used_max: u32,
    /// The first wrong answer, if there was one (Y2).
    pub fault: Option<String>,
}

/// Answers all requests and compares each answer with a list of pages.
pub fn checked<P: Runs>(pool: &mut P, program: &Requests) -> Seen {
    let mut runs = Vec::new();
    let mut owner: Vec<u32> = Vec::new();
    let (mut used, mut used_max) = (0u32, 0u32);
    for (index, request) in program.requests.iter().enumerate() {
        let run = match *request {
            Request::Take { .. } => runs.len(),
            Request::Give { run } | Request::Resize { run, .. } => run as usize,
        };
        let (page, pages) = runs.get(run).copied().unwrap_or_default();
        owner
            .iter_mut()
            .skip(page as usize)
            .take(pages as usize)
            .for_each(|page| *page = 0);
        answer(pool, *request, &mut runs);
        let (new_page, new_pages) = runs[run];
        let end = (new_page + new_pages) as usize;
        if owner.len() < end {
            owner.resize(end, 0);
        }
        // For a moment a run that moves exists twice.
        let moved = if new_page == page { 0 } else { pages };
        used_max = used_max.max(used - pages + new_pages + moved);
        used = used - pages + new_pages;
        for (at, page) in owner
            .iter_mut()
            .enumerate()
            .take(end)
            .skip(new_page as usize)
        {
            if std::mem::replace(page, run as u32 + 1) != 0 {
                let fault = format!("request {index} ({request:?}) was given page {at}, in use");
                return Seen {
                    used_max,
                    fault: Some(fault),
                };
            }
        }
        if end > pool.heap_pages() as usize {
            let fault = format!("request {index} ({request:?}) was given pages beyond the heap");
            return Seen {
                used_max,
                fault: Some(fault),
            };
        }
    }
    Seen {
        used_max,
        fault: None,
    }
}
