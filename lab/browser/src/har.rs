//! Reads recordings as HAR 1.2, written by any recorder.
//!
//! ```text
//!   log.pages[].title ─► where a page starts       log.entries[] ─► exchanges, by pageref
//! ```
//!
//! F1  A malformed file is an error with the number of the entry.
//! F2  An entry without an answer (status 0) is skipped.
//!
//! Not here: how exchanges are used (recording.rs).

use anyhow::{Context, Result, bail};
use base64::Engine;
use serde::Deserialize;

use crate::exchange::{Exchange, Exchanges};

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

/// Reads a recording.
///
/// # Errors
/// If the bytes are not a recording; the error names the entry.
pub fn read(bytes: &[u8]) -> Result<Exchanges> {
    // Some writers begin with a byte order mark.
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let har: Har = serde_json::from_slice(bytes).context("not a HAR recording")?;
    let mut exchanges = Exchanges::default();
    for (at, entry) in har.log.entries.iter().enumerate() {
        let one = exchange(entry).with_context(|| format!("entry {at}"))?;
        exchanges.all.extend(one);
    }
    let titles = har.log.pages.into_iter().map(|page| (page.id, page.title));
    exchanges.titles = titles.collect();
    Ok(exchanges)
}

/// Returns the exchange of an entry; `None` if it never got an answer (F2).
fn exchange(entry: &EntryOf) -> Result<Option<Exchange>> {
    let response = &entry.response;
    if !(100..600).contains(&response.status) {
        return Ok(None);
    }
    let text = response.content.text.as_deref().unwrap_or("");
    let body = match response.content.encoding.as_deref() {
        None | Some("") => text.as_bytes().to_vec(),
        Some("base64") => base64::engine::general_purpose::STANDARD
            .decode(text.trim())
            .context("response.content.text is not base64")?,
        Some(other) => bail!("response.content.encoding is {other:?}; base64 or none is known"),
    };
    Ok(Some(Exchange {
        page: Some(entry.pageref.clone().unwrap_or_default()),
        url: entry.request.url.clone(),
        status: response.status as u16,
        kind: response.content.mime_type.clone(),
        body,
        redirect: response.redirect_url.clone(),
    }))
}

#[cfg(test)]
mod tests {
    use crate::recording::{self, Recorded, Start};
    use anyhow::Result;
    use serde_json::json;

    fn entry(url: &str, status: i64, kind: &str, text: &str) -> serde_json::Value {
        json!({"pageref": "p", "request": {"url": url},
               "response": {"status": status, "content": {"mimeType": kind, "text": text}}})
    }

    fn written(entries: serde_json::Value) -> Result<Recorded> {
        let folder = tempfile::tempdir().expect("room");
        let file = folder.path().join("a.har");
        std::fs::write(&file, json!({"log": {"entries": entries}}).to_string()).expect("room");
        recording::read(&file, 7)
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
