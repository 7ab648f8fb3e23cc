//! Values that are made by futures, whatever executor polls them.
//!
//! ```text
//!   get_or_make_async ─► hit                                                    no thread sleeps, no timer, no runtime
//!                    └─► miss ─► flight: lead ─► make().await ─► insert ─► land
//!                                     └► wait ─► woken ─► the value, or the next lead
//! ```
//!
//! A1  A value that futures miss at the same time is made once (flight.G1). Of a future that is dropped while it makes
//!     the value the work is lost, and one of the others begins anew, with a `make` of its own (flight.G4).
//! A2  A future that leads has to be polled or dropped: one that is kept and not polled keeps the others waiting. What
//!     bounds a `make` bounds that too: a time limit of the executor drops it.
//! A3  The time of making is from the first poll of `make` to its end, waiting included: it is what a hit saves.
//! A4  A future that is polled by another one's `make` does not wait, since two that need each other's values would wait
//!     for ever (flight.G3). One that `make` gives to the executor as a task of its own is not known to be such.
//!
//! Not here: which future or thread waits for which (`flight`).

use core::convert::Infallible;
use core::future::Future;
use std::hash::{BuildHasher, Hash};
use std::time::Instant;

use super::{Cache, count};
use crate::measure::HeapBytes;

impl<K, V> Cache<K, V>
where
    K: Eq + Hash + HeapBytes + Clone,
    V: HeapBytes + Clone,
{
    /// Returns the value of a key, and makes it by a future if it is not there. Futures that miss the key meanwhile wait
    /// for it, and none of them blocks its thread. Any executor may poll it.
    ///
    /// ```
    /// use std::{pin::pin, sync::Arc, task::{Context, Poll, Waker}};
    /// use skinflint_cache::Cache;
    ///
    /// let pages: Arc<Cache<u32, Arc<str>>> = Cache::named("pages").build();
    /// let page = pin!(pages.get_or_make_async(7, |n| {
    ///     let n = *n;
    ///     async move { format!("page {n}").into() }
    /// }));
    /// let Poll::Ready(page) = page.poll(&mut Context::from_waker(Waker::noop())) else { panic!() };
    /// assert_eq!(&*page, "page 7");
    /// # use std::future::Future;
    /// ```
    pub async fn get_or_make_async<F>(&self, key: K, make: impl FnOnce(&K) -> F) -> V
    where
        F: Future<Output = V>,
    {
        let make = |key: &K| {
            let made = make(key);
            async move { Ok::<V, Infallible>(made.await) }
        };
        match self.get_or_try_make_async(key, make).await {
            Ok(value) => value,
        }
    }

    /// Does what [`Cache::get_or_make_async`] does for a `make` that may fail. An error is not kept, and goes to the
    /// future whose `make` it was; of the others that waited the next one tries.
    ///
    /// # Errors
    /// The error of `make`.
    pub async fn get_or_try_make_async<E, F>(
        &self,
        key: K,
        make: impl FnOnce(&K) -> F,
    ) -> Result<V, E>
    where
        F: Future<Output = Result<V, E>>,
    {
        if let Some(value) = self.get(&key) {
            return Ok(value);
        }
        let hash = self.hasher.hash_one(&key);
        let made = async {
            let begin = Instant::now();
            let value = make(&key).await?;
            self.insert(key.clone(), value.clone(), begin.elapsed());
            Ok(value)
        };
        let joined = || count(&self.counts.joined, 1);
        let peek = || self.peek(hash, &key);
        self.flights
            .fetch_async(hash, &key, peek, made, joined)
            .await
    }
}
