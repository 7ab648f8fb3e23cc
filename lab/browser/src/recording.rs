//! Recordings of pages, whatever wrote them: the user's own pages, replayed without a network.
//!
//! ```text
//!   HAR 1.2 (har.rs), WARC 1.x (warc.rs) ─► exchanges ─► answers by host and path, addresses rewritten ─► site.rs
//!   https://shop.example/a?b=1  ─►  http://shop.example.localhost:PORT/a?b=1     host by host, so sites stay sites
//!   in texts: https://shop.example/…, //shop.example/…, https:\/\/shop.example\/…  ─► the same
//! ```
//!
//! H1  Only hosts of the recording are rewritten, and only as whole host names: `shop.example.org` is another one.
//! H2  No certificate is forged and no proxy decrypts: `*.localhost` is a secure context in the browsers that we
//!     drive, so pages that need one still work. An address that a script puts together from parts is not rewritten;
//!     the request goes outside, is refused at once, and is listed.
//! H3  `integrity` attributes are set aside, since rewritten texts have other hashes.
//! H4  If an address occurs twice, its first complete answer counts.
//! H5  The first bytes of a file say what it is, not its name.
//!
//! Not here: recording (driver.mjs `record`), serving (site.rs), the formats.

use std::collections::{BTreeSet, HashMap};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};

use crate::exchange::{Exchange, Exchanges};
use crate::{har, warc};

/// The most bytes of a recording that is unpacked in memory.
const LARGEST: u64 = 4 << 30;

/// A recorded answer.
#[derive(Clone, Debug)]
pub struct Entry {
    /// HTTP status.
    pub status: u16,
    /// Content type.
    pub kind: String,
    /// Body, rewritten if it is text.
    pub body: Arc<Vec<u8>>,
    /// The target of a redirection.
    pub location: Option<String>,
}

/// A page of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// Recorded host.
    pub host: String,
    /// Path and query.
    pub path: String,
}

/// Recorded answers by host, path and query.
#[derive(Clone, Debug, Default)]
pub struct Recorded {
    entries: HashMap<(String, String), Entry>,
    /// Full paths by host and path without the query.
    by_path: HashMap<(String, String), Vec<String>>,
    /// The pages that were recorded, in order.
    pub starts: Vec<Start>,
}

impl Recorded {
    /// Returns the answer to a request: the exact one, or the only one that differs in the query alone.
    pub fn find(&self, host: &str, path: &str) -> Option<&Entry> {
        if let Some(entry) = self.entries.get(&(host.to_owned(), path.to_owned())) {
            return Some(entry);
        }
        let bare = path.split('?').next()?.to_owned();
        match self.by_path.get(&(host.to_owned(), bare))?.as_slice() {
            [only] => self.entries.get(&(host.to_owned(), only.clone())),
            _ => None,
        }
    }

    /// Returns the number of addresses in it.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Reports whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn add(&mut self, host: &str, path: &str, entry: Entry) {
        let key = (host.to_owned(), path.to_owned());
        let complete = |entry: &Entry| (200..300).contains(&entry.status);
        if self
            .entries
            .get(&key)
            .is_some_and(|known| complete(known) || !complete(&entry))
        {
            return;
        }
        if self.entries.insert(key, entry).is_none() {
            let bare = path.split('?').next().unwrap_or(path).to_owned();
            let paths = self.by_path.entry((host.to_owned(), bare)).or_default();
            paths.push(path.to_owned());
        }
    }
}

/// Returns host and path of an address; a port becomes part of the host's name, since all are served from one port.
fn split(url: &str) -> Option<(String, String)> {
    let rest = url
        .strip_prefix("https://")
        .or_else(|| url.strip_prefix("http://"))?;
    let (host, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let path = path.split('#').next().unwrap_or("");
    let path = if path.starts_with('/') {
        path.to_owned()
    } else {
        format!("/{path}")
    };
    Some((named(host)?, path))
}

/// Returns the name of a host: `shop.example:8443` is served as `p8443.shop.example`.
fn named(host: &str) -> Option<String> {
    let host = host.rsplit('@').next()?.to_ascii_lowercase();
    let plain = |name: &str| !name.is_empty() && name.bytes().all(is_of_host);
    match host.split_once(':') {
        None | Some((_, "80" | "443")) => {
            let name = host.split(':').next()?.to_owned();
            plain(&name).then_some(name)
        }
        Some((name, port)) if port.parse::<u16>().is_ok() && plain(name) => {
            Some(format!("p{port}.{name}"))
        }
        Some(_) => None,
    }
}

fn is_of_host(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.'
}

/// Reads a recording, to be served on a port.
///
/// # Errors
/// If the file is not a recording, or has no page; the error names the file and the place in it.
pub fn read(file: &Path, port: u16) -> Result<Recorded> {
    let name = file.display();
    let bytes = std::fs::read(file).with_context(|| format!("{name}: not readable"))?;
    let bytes = unpacked(bytes).with_context(|| format!("{name}"))?;
    let exchanges = if bytes.starts_with(b"WARC/") {
        warc::read(&bytes)
    } else {
        har::read(&bytes)
    };
    assemble(&exchanges.with_context(|| format!("{name}"))?, port)
        .with_context(|| format!("{name}"))
}

/// Undoes gzip; a file may have many members, one after the other.
fn unpacked(bytes: Vec<u8>) -> Result<Vec<u8>> {
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        return Ok(bytes);
    }
    let mut out = Vec::new();
    let mut decoder = flate2::bufread::MultiGzDecoder::new(bytes.as_slice()).take(LARGEST);
    if let Err(error) = decoder.read_to_end(&mut out) {
        let rest = decoder.into_inner().into_inner().len();
        bail!(
            "damaged or cut off at byte {} of {} ({error}); {} bytes came out of what is before it",
            bytes.len() - rest,
            bytes.len(),
            out.len()
        );
    }
    if out.len() as u64 == LARGEST {
        bail!("more than {} GiB when unpacked; split it", LARGEST >> 30);
    }
    Ok(out)
}

/// Assembles answers by address, and the pages to begin with.
fn assemble(exchanges: &Exchanges, port: u16) -> Result<Recorded> {
    let all = &exchanges.all;
    let addresses: Vec<Option<(String, String)>> = all.iter().map(|e| split(&e.url)).collect();
    let hosts: BTreeSet<String> = addresses
        .iter()
        .flatten()
        .map(|(host, _)| host.clone())
        .collect();
    let mut recorded = Recorded::default();
    let mut starts: Vec<(&str, Start)> = Vec::new();
    for (one, address) in all.iter().zip(&addresses) {
        // data:, blob:, ws: and the like are not fetched from a server.
        let Some((host, path)) = address else {
            continue;
        };
        if let Some(page) = &one.page
            && one.kind.contains("html")
            && (200..300).contains(&one.status)
            && !starts.iter().any(|(known, _)| known == page)
        {
            let start = Start {
                host: host.clone(),
                path: path.clone(),
            };
            starts.push((page, start));
        }
        recorded.add(host, path, answer(one, &hosts, port));
    }
    // A page's title is often its address; then it is that one, and not the first text that came.
    for (page, title) in &exchanges.titles {
        if let Some((host, path)) = split(title)
            && recorded.find(&host, &path).is_some()
        {
            let start = Start { host, path };
            match starts.iter_mut().find(|(known, _)| known == page) {
                Some((_, known)) => *known = start,
                None => starts.push((page, start)),
            }
        }
    }
    for (_, start) in starts {
        if !recorded.starts.contains(&start) {
            recorded.starts.push(start);
        }
    }
    if recorded.starts.is_empty() {
        bail!(
            "none of its {} entries is a page (status 200, HTML, with its text)",
            all.len()
        );
    }
    Ok(recorded)
}

fn answer(one: &Exchange, hosts: &BTreeSet<String>, port: u16) -> Entry {
    let textual = ["text/", "javascript", "json", "xml", "svg"];
    let body = match std::str::from_utf8(&one.body) {
        Ok(text) if textual.iter().any(|kind| one.kind.contains(kind)) => {
            let text = rewrite(text, hosts, port);
            let text = if one.kind.contains("html") {
                text.replace(" integrity=", " data-integrity=")
            } else {
                text
            };
            text.into_bytes()
        }
        _ => one.body.clone(),
    };
    let location = (300..400).contains(&one.status) && !one.redirect.is_empty();
    Entry {
        status: one.status,
        kind: one.kind.clone(),
        body: Arc::new(body),
        location: location.then(|| rewrite(&one.redirect, hosts, port)),
    }
}

/// Replaces addresses of recorded hosts (H1).
fn rewrite(text: &str, hosts: &BTreeSet<String>, port: u16) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 16);
    let mut rest = text;
    loop {
        let plain = rest.find("//");
        let escaped = rest.find("\\/\\/");
        let (at, slashes) = match (plain, escaped) {
            (Some(p), Some(e)) if e < p => (e, "\\/\\/"),
            (Some(p), _) => (p, "//"),
            (None, Some(e)) => (e, "\\/\\/"),
            (None, None) => break,
        };
        out.push_str(&rest[..at]);
        rest = &rest[at + slashes.len()..];
        let length = rest
            .bytes()
            .take_while(|b| is_of_host(*b) || *b == b':')
            .count();
        let spelled = rest[..length].trim_end_matches([':', '.']);
        let host = named(spelled).filter(|host| hosts.contains(host));
        match host {
            Some(host) if begins_address(&out) => {
                if out.ends_with("https:") {
                    out.truncate(out.len() - "https:".len());
                    out.push_str("http:");
                }
                out.push_str(slashes);
                out.push_str(&format!("{host}.localhost:{port}"));
                rest = &rest[spelled.len()..];
            }
            _ => out.push_str(slashes),
        }
    }
    out.push_str(rest);
    out
}

/// Reports whether two slashes here begin an address: after a scheme, or after what may stand before a bare address.
fn begins_address(before: &str) -> bool {
    before.ends_with("http:")
        || before.ends_with("https:")
        || before.is_empty()
        || before.ends_with(|c: char| c.is_whitespace() || "\"'`=(,".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts() -> BTreeSet<String> {
        ["shop.example", "cdn.example", "p8443.api.example"]
            .map(String::from)
            .into()
    }

    #[test]
    fn addresses_of_the_recording_are_rewritten_and_no_others() {
        let cases = [
            (
                "<a href=\"https://shop.example/x\">",
                "<a href=\"http://shop.example.localhost:7/x\">",
            ),
            (
                "src=//cdn.example/a.js",
                "src=//cdn.example.localhost:7/a.js",
            ),
            (
                "\"https:\\/\\/cdn.example\\/a\"",
                "\"http:\\/\\/cdn.example.localhost:7\\/a\"",
            ),
            (
                "'https://api.example:8443/v'",
                "'http://p8443.api.example.localhost:7/v'",
            ),
            ("https://shop.example", "http://shop.example.localhost:7"),
            (
                "See https://shop.example.",
                "See http://shop.example.localhost:7.",
            ),
            ("https://shop.example.org/x", "https://shop.example.org/x"),
            ("https://notshop.example/", "https://notshop.example/"),
            (
                "x; //shop.example is a comment",
                "x; //shop.example.localhost:7 is a comment",
            ),
            ("a//shop.example", "a//shop.example"),
            ("ftp://shop.example/", "ftp://shop.example/"),
            ("// \u{e9} //", "// \u{e9} //"),
        ];
        for (text, expected) in cases {
            assert_eq!(rewrite(text, &hosts(), 7), expected);
        }
    }

    #[test]
    fn a_packed_file_that_is_cut_is_named_with_the_place() {
        use std::io::Write;
        let folder = tempfile::tempdir().expect("room");
        let file = folder.path().join("a.warc.gz");
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gz.write_all(&[b'x'; 5000]).expect("room");
        let whole = gz.finish().expect("room");
        std::fs::write(&file, &whole[..whole.len() / 2]).expect("room");
        let error = format!("{:#}", read(&file, 7).expect_err("cut"));
        let place = format!("of {}", whole.len() / 2);
        assert!(
            error.contains("a.warc.gz") && error.contains(&place),
            "{error}"
        );
        // A file that is no archive inside is reported as what it is taken for.
        std::fs::write(&file, &whole).expect("room");
        let error = format!("{:#}", read(&file, 7).expect_err("no recording"));
        assert!(error.contains("a.warc.gz: not a HAR recording"), "{error}");
    }
}
