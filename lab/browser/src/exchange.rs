//! Exchanges, of which recordings of pages consist: requests and their answers, in whatever format they were kept.
//!
//! ```text
//!   har.rs, warc.rs ─► Exchanges ─► recording.rs
//! ```
//!
//! N1  A body is without the encodings of its transfer: chunks are put together, compression is undone.
//!
//! Not here: the formats, and what is served of them.

/// A request and its answer, as recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exchange {
    /// The page it belongs to; that page starts at its first HTML. `None` starts no page.
    pub page: Option<String>,
    /// Address.
    pub url: String,
    /// HTTP status.
    pub status: u16,
    /// Content type.
    pub kind: String,
    /// Body, without any encoding of its transfer.
    pub body: Vec<u8>,
    /// The target of a redirection; empty if there is none.
    pub redirect: String,
}

/// The result of reading a format.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exchanges {
    /// The exchanges, in their order.
    pub all: Vec<Exchange>,
    /// Pages with a title, by name.
    pub titles: Vec<(String, String)>,
}
