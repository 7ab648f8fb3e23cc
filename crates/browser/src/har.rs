//! Recordings of pages, HAR 1.2 in: one's own pages, replayed without a network.
//!
//! ```text
//!   https://shop.example/a?b=1  ─►  http://shop.example.localhost:PORT/a?b=1     host by host, so sites stay sites
//!   in texts: https://shop.example/…, //shop.example/…, https:\/\/shop.example\/…  ─► the same
//! ```
//!
//! H1  Only hosts of the recording are rewritten, and only as whole host names: `shop.example.org` is another one.
//! H2  No certificate is forged and no proxy decrypts: `*.localhost` is a secure context in the browsers that we drive,
//!     so pages that need one still work. An address that a script puts together from parts is not rewritten; it goes
//!     outside, is refused at once, and listed.
//! H3  `integrity` attributes are set aside, since rewritten texts have other hashes.
//! H4  A malformed file is an error with the number of the entry; of an address that occurs twice the first complete
//!     answer counts.
//!
//! Not here: recording (driver.mjs `record`), serving (site.rs).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use base64::Engine;
use serde::Deserialize;

#[derive(Deserialize)]
struct Har {
    log: Log,
}

#[derive(Deserialize)]
struct Log {
    #[serde(default)]
    pages: Vec<PageOf>,
    entries: Vec<EntryOf>,
}

#[derive(Deserialize)]
struct PageOf {
    id: String,
    #[serde(default)]
    title: String,
}

#[derive(Deserialize)]
struct EntryOf {
    pageref: Option<String>,
    request: RequestOf,
    response: ResponseOf,
}

#[derive(Deserialize)]
struct RequestOf {
    url: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResponseOf {
    status: i64,
    #[serde(default)]
    content: ContentOf,
    #[serde(default, rename = "redirectURL")]
    redirect_url: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContentOf {
    #[serde(default)]
    mime_type: String,
    text: Option<String>,
    encoding: Option<String>,
}

/// One recorded answer.
#[derive(Clone, Debug)]
pub struct Entry {
    /// HTTP status.
    pub status: u16,
    /// Content type.
    pub kind: String,
    /// Body, rewritten if it is text.
    pub body: Arc<Vec<u8>>,
    /// Where a redirection leads.
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
    /// The answer to a request: the very one, or the only one that differs in the query alone.
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

    /// Addresses in it.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing was recorded.
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

/// Host and path of an address; a port becomes part of the host's name, since all are served from one port.
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

/// `shop.example:8443` is served as `p8443.shop.example`.
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
/// If the file is not one; names the entry.
pub fn read(file: &Path, port: u16) -> Result<Recorded> {
    let name = file.display();
    let bytes = std::fs::read(file).with_context(|| format!("{name}: not readable"))?;
    // Some writers begin with a byte order mark.
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
    let har: Har =
        serde_json::from_slice(bytes).with_context(|| format!("{name}: not a HAR recording"))?;
    let split_all: Vec<Option<(String, String)>> = har
        .log
        .entries
        .iter()
        .map(|e| split(&e.request.url))
        .collect();
    let hosts: BTreeSet<String> = split_all
        .iter()
        .flatten()
        .map(|(host, _)| host.clone())
        .collect();
    let mut recorded = Recorded::default();
    let mut starts: BTreeMap<String, Start> = BTreeMap::new();
    for (at, (entry, address)) in har.log.entries.iter().zip(&split_all).enumerate() {
        // data:, blob:, ws: and the like are not fetched from a server.
        let Some((host, path)) = address else {
            continue;
        };
        let answer = answer(entry, &hosts, port).with_context(|| format!("{name}: entry {at}"))?;
        let Some(answer) = answer else { continue };
        let page = entry.pageref.clone().unwrap_or_default();
        if answer.kind.contains("html") && answer.status < 300 {
            let start = Start {
                host: host.clone(),
                path: path.clone(),
            };
            starts.entry(page).or_insert(start);
        }
        recorded.add(host, path, answer);
    }
    // A page's title is often its address; that one is meant, not the first text that came.
    for page in &har.log.pages {
        if let Some((host, path)) = split(&page.title)
            && recorded.find(&host, &path).is_some()
        {
            starts.insert(page.id.clone(), Start { host, path });
        }
    }
    recorded.starts = starts.into_values().collect();
    recorded.starts.dedup();
    if recorded.starts.is_empty() {
        bail!(
            "{name}: none of its {} entries is a page (status 200, HTML, with its text)",
            har.log.entries.len()
        );
    }
    Ok(recorded)
}

/// What an entry answers; `None` if it never got an answer.
fn answer(entry: &EntryOf, hosts: &BTreeSet<String>, port: u16) -> Result<Option<Entry>> {
    let response = &entry.response;
    if !(100..600).contains(&response.status) {
        return Ok(None);
    }
    let kind = response.content.mime_type.clone();
    let text = response.content.text.as_deref().unwrap_or("");
    let body = match response.content.encoding.as_deref() {
        None | Some("") => text.as_bytes().to_vec(),
        Some("base64") => base64::engine::general_purpose::STANDARD
            .decode(text.trim())
            .context("response.content.text is not base64")?,
        Some(other) => bail!("response.content.encoding is {other:?}; base64 or none is known"),
    };
    let textual = ["text/", "javascript", "json", "xml", "svg"];
    let body = match String::from_utf8(body) {
        Ok(text) if textual.iter().any(|one| kind.contains(one)) => {
            let text = rewrite(&text, hosts, port);
            let text = if kind.contains("html") {
                text.replace(" integrity=", " data-integrity=")
            } else {
                text
            };
            text.into_bytes()
        }
        Ok(text) => text.into_bytes(),
        Err(error) => error.into_bytes(),
    };
    let location = (300..400).contains(&response.status) && !response.redirect_url.is_empty();
    Ok(Some(Entry {
        status: response.status as u16,
        kind,
        body: Arc::new(body),
        location: location.then(|| rewrite(&response.redirect_url, hosts, port)),
    }))
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

/// Whether two slashes here begin an address: after a scheme, or after what may stand before a bare one.
fn begins_address(before: &str) -> bool {
    before.ends_with("http:")
        || before.ends_with("https:")
        || before.is_empty()
        || before.ends_with(|c: char| c.is_whitespace() || "\"'`=(,".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

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

    fn entry(url: &str, status: i64, kind: &str, text: &str) -> serde_json::Value {
        json!({"pageref": "p", "request": {"url": url},
               "response": {"status": status, "content": {"mimeType": kind, "text": text}}})
    }

    fn written(entries: serde_json::Value) -> Result<Recorded> {
        let folder = tempfile::tempdir().expect("room");
        let file = folder.path().join("a.har");
        std::fs::write(&file, json!({"log": {"entries": entries}}).to_string()).expect("room");
        read(&file, 7)
    }

    #[test]
    fn answers_by_address() {
        let html = "<script src=https://cdn.example/a.js integrity=sha256-x></script>";
        let recorded = written(json!([
            entry("http://shop.example/", 301, "text/html", ""),
            entry("https://shop.example/?q=1#top", 200, "text/html", html),
            entry(
                "https://cdn.example/a.js?v=1",
                404,
                "text/javascript",
                "none"
            ),
            entry(
                "https://cdn.example/a.js?v=1",
                200,
                "text/javascript",
                "first"
            ),
            entry(
                "https://cdn.example/a.js?v=1",
                200,
                "text/javascript",
                "second"
            ),
            entry("data:text/plain,x", 200, "text/plain", "x"),
            entry("https://cdn.example/never", 0, "", ""),
        ]))
        .expect("sound");
        let start = Start {
            host: "shop.example".into(),
            path: "/?q=1".into(),
        };
        assert_eq!(recorded.starts, [start]);
        let page = recorded.find("shop.example", "/?q=1").expect("there");
        let text = String::from_utf8_lossy(&page.body).into_owned();
        assert_eq!(
            text,
            "<script src=http://cdn.example.localhost:7/a.js data-integrity=sha256-x></script>"
        );
        let script = recorded
            .find("cdn.example", "/a.js?v=2")
            .expect("only the query differs");
        assert_eq!(
            (script.status, script.body.as_slice()),
            (200, b"first".as_slice())
        );
        assert!(recorded.find("cdn.example", "/never").is_none());
        assert_eq!(recorded.len(), 3);
    }

    #[test]
    fn what_is_malformed_is_named() {
        let mut broken = entry("https://a.example/", 200, "image/png", "%%%");
        broken["response"]["content"]["encoding"] = json!("base64");
        for (entries, word) in [
            (
                json!([entry("https://a.example/", 200, "text/html", "x"), broken]),
                "entry 1: response.content.text",
            ),
            (
                json!([entry("https://a.example/", 200, "image/png", "x")]),
                "none of its 1 entries is a page",
            ),
            (json!([{"request": {}}]), "not a HAR recording"),
            (json!("x"), "not a HAR recording"),
        ] {
            let error = format!("{:#}", written(entries).expect_err(word));
            assert!(error.contains(word) && error.contains("a.har"), "{error}");
        }
    }
}
