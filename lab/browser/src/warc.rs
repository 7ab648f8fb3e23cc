//! Reads recordings as WARC 1.0 and 1.1 (ISO 28500), by wget, browsertrix, warcprox and similar tools.
//!
//! ```text
//!   WARC/1.0 ─┬─ request   method, Referer ──────┐ paired by WARC-Concurrent-To
//!    record   ├─ response  HTTP head, body ──────┴─► exchange: body unchunked, unpacked
//!             ├─ revisit   the body is that of an earlier record with the same digest
//!             ├─ resource  a body as it is
//!             └─ others    passed over
//! ```
//!
//! C1  A record that is malformed or cut off is an error with its number and its byte in the (unpacked) file; then
//!     nothing of the file is used.
//! C2  Every length is checked against the remaining bytes before anything is taken.
//! C3  A page starts at HTML that was requested without a Referer: requested by a person or a list of addresses, not
//!     by a page.
//! C4  Answers to GET go before those to other methods; those to HEAD, OPTIONS and CONNECT have no body and are left out.
//!
//! Records are framed by hand, so that an error has its place (the crate `warc` reports none, and reads no HTTP);
//! HTTP heads, chunks and encodings are read by libraries.
//!
//! Not here: how exchanges are used, gzip around the file (recording.rs).

use std::collections::HashMap;
use std::io::Read;

use anyhow::{Context, Result, bail};

use crate::exchange::{Exchange, Exchanges};

/// The most bytes of a record's head, and the most headers of an HTTP head.
const HEAD: usize = 1 << 20;
const HEADERS: usize = 512;
/// The most bytes of a body, unpacked.
const BODY: u64 = 1 << 30;

/// A record: headers by lower-case name, and its block.
struct Record<'a> {
    number: usize,
    at: usize,
    headers: HashMap<String, String>,
    block: &'a [u8],
}

impl Record<'_> {
    fn of(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    fn place(&self) -> String {
        format!("record {} (byte {})", self.number, self.at)
    }

    /// Returns its address; old wgets write it in brackets.
    fn url(&self) -> String {
        let uri = self.of("warc-target-uri");
        uri.trim_start_matches('<').trim_end_matches('>').to_owned()
    }
}

/// The content of a request record.
struct Asked {
    method: String,
    referer: bool,
}

/// Reads a recording.
///
/// # Errors
/// Names the record and its byte (C1).
pub fn read(bytes: &[u8]) -> Result<Exchanges> {
    let records = records(bytes)?;
    let mut asked: HashMap<&str, Asked> = HashMap::new();
    for record in records.iter().filter(|r| r.of("warc-type") == "request") {
        let said = request(record).with_context(|| record.place())?;
        asked.insert(record.of("warc-record-id"), said);
    }
    // Either record may name the other.
    let named: HashMap<&str, &str> = records
        .iter()
        .filter(|r| r.of("warc-type") == "request")
        .map(|r| (r.of("warc-concurrent-to"), r.of("warc-record-id")))
        .collect();
    let mut bodies: HashMap<&str, Vec<u8>> = HashMap::new();
    let mut ranked: Vec<(u8, Exchange)> = Vec::new();
    for record in &records {
        let own = named.get(record.of("warc-record-id")).copied();
        let request = asked.get(own.unwrap_or(record.of("warc-concurrent-to")));
        let method = request.map_or("GET", |request| request.method.as_str());
        if ["HEAD", "OPTIONS", "CONNECT"].contains(&method) {
            continue;
        }
        let exchange = exchange(record, &bodies).with_context(|| record.place())?;
        let Some(mut exchange) = exchange else {
            continue;
        };
        let digest = record.of("warc-payload-digest");
        if !digest.is_empty() {
            bodies
                .entry(digest)
                .or_insert_with(|| exchange.body.clone());
        }
        let starts = record.of("warc-type") != "resource" && !request.is_some_and(|r| r.referer);
        exchange.page = starts.then(|| record.number.to_string());
        ranked.push((u8::from(method != "GET"), exchange));
    }
    ranked.sort_by_key(|(rank, _)| *rank);
    Ok(Exchanges {
        all: ranked.into_iter().map(|(_, exchange)| exchange).collect(),
        titles: Vec::new(),
    })
}

fn records(bytes: &[u8]) -> Result<Vec<Record<'_>>> {
    let mut records = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let number = records.len() + 1;
        let (record, next) =
            record(bytes, at, number).with_context(|| format!("record {number} (byte {at})"))?;
        records.push(record);
        at = next;
    }
    Ok(records)
}

/// Returns the record that begins at a byte, and where the next one begins.
fn record(bytes: &[u8], at: usize, number: usize) -> Result<(Record<'_>, usize)> {
    let rest = &bytes[at..];
    let mut lines = Lines { bytes: rest, at: 0 };
    let version = lines.next()?;
    if !version.starts_with("WARC/1.") && version != "WARC/0.18" {
        bail!("no WARC record begins here: {:?}", shortened(&version));
    }
    let mut headers: HashMap<String, String> = HashMap::new();
    let mut last = String::new();
    loop {
        let line = lines.next()?;
        if line.is_empty() {
            break;
        }
        if line.starts_with([' ', '\t']) && !last.is_empty() {
            let value = headers.entry(last.clone()).or_default();
            value.push(' ');
            value.push_str(line.trim());
            continue;
        }
        let Some((name, value)) = line.split_once(':') else {
            bail!("a line that is no header: {:?}", shortened(&line));
        };
        last = name.trim().to_ascii_lowercase();
        headers.insert(last.clone(), value.trim().to_owned());
    }
    let length = headers.get("content-length").map_or("", String::as_str);
    let Ok(length) = length.parse::<usize>() else {
        bail!(
            "Content-Length is {:?}, not a number of bytes",
            shortened(length)
        );
    };
    let left = rest.len() - lines.at;
    if length > left {
        bail!("cut off: it says {length} bytes, and {left} are left");
    }
    let end = lines.at + length;
    let record = Record {
        number,
        at,
        headers,
        block: &rest[lines.at..end],
    };
    // Two empty lines follow; a file may end before them.
    let tail = rest[end..].iter().take(4);
    let empty = tail
        .take_while(|byte| matches!(byte, b'\r' | b'\n'))
        .count();
    Ok((record, at + end + empty))
}

fn shortened(text: &str) -> String {
    text.chars().take(60).collect()
}

struct Lines<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Lines<'_> {
    fn next(&mut self) -> Result<String> {
        let rest = &self.bytes[self.at..];
        let within = &rest[..rest.len().min(HEAD.saturating_sub(self.at))];
        let Some(end) = within.iter().position(|byte| *byte == b'\n') else {
            let said = shortened(&String::from_utf8_lossy(&within[..within.len().min(60)]));
            if self.at == 0 && !rest.starts_with(b"WARC/") {
                bail!("no WARC record begins here: {said:?}");
            }
            bail!("its head is cut off, or no end of it in {HEAD} bytes");
        };
        self.at += end + 1;
        let line = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]);
        Ok(String::from_utf8_lossy(line).into_owned())
    }
}

fn request(record: &Record) -> Result<Asked> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    let done = parsed.parse(record.block).context("the request's head")?;
    if done.is_partial() {
        bail!("the request's head is cut off");
    }
    let mut names = parsed.headers.iter().map(|header| header.name);
    Ok(Asked {
        method: parsed.method.unwrap_or("GET").to_ascii_uppercase(),
        referer: names.any(|name| name.eq_ignore_ascii_case("referer")),
    })
}

/// Returns the exchange of a page that a record holds; `None` if it holds none.
fn exchange(record: &Record, bodies: &HashMap<&str, Vec<u8>>) -> Result<Option<Exchange>> {
    match record.of("warc-type") {
        "response" | "revisit" if !record.of("warc-segment-number").is_empty() => {
            bail!("it is in segments, which are not read; join them first")
        }
        "response" => {
            let kind = record.of("content-type");
            if !kind.starts_with("application/http") {
                // dns: and similar schemes.
                return Ok(None);
            }
            response(record, None).map(Some)
        }
        "revisit" => match bodies.get(record.of("warc-payload-digest")) {
            Some(body) => response(record, Some(body)).map(Some),
            // The page was not modified since another recording, or its body is in another file.
            None => Ok(None),
        },
        "resource" => Ok(Some(Exchange {
            url: record.url(),
            status: 200,
            kind: record.of("content-type").to_owned(),
            body: record.block.to_vec(),
            ..Exchange::default()
        })),
        _ => Ok(None),
    }
}

fn response(record: &Record, known: Option<&Vec<u8>>) -> Result<Exchange> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut parsed = httparse::Response::new(&mut headers);
    let done = httparse::ParserConfig::default()
        .allow_spaces_after_header_name_in_responses(true)
        .ignore_invalid_headers_in_responses(true)
        .parse_response(&mut parsed, record.block)
        .context("the answer's head")?;
    let httparse::Status::Complete(head) = done else {
        bail!("the answer's head is cut off");
    };
    let of = |name: &str| {
        let found = parsed
            .headers
            .iter()
            .find(|h| h.name.eq_ignore_ascii_case(name));
        found.map_or(String::new(), |h| {
            String::from_utf8_lossy(h.value).trim().to_owned()
        })
    };
    let body = match known {
        Some(body) => body.clone(),
        None => {
            let block = unchunked(&record.block[head..], &of("transfer-encoding"))?;
            decoded(block, &of("content-encoding"))?
        }
    };
    Ok(Exchange {
        page: None,
        url: record.url(),
        status: parsed.code.unwrap_or(0),
        kind: of("content-type"),
        body,
        redirect: of("location"),
    })
}

/// Undoes chunks. Some recorders have already undone them, and left the header.
fn unchunked(body: &[u8], encoding: &str) -> Result<Vec<u8>> {
    if !encoding.to_ascii_lowercase().contains("chunked") {
        return Ok(body.to_vec());
    }
    let (mut rest, mut out) = (body, Vec::new());
    loop {
        let (at, size) = match httparse::parse_chunk_size(rest) {
            Ok(httparse::Status::Complete(found)) => found,
            _ if rest.len() == body.len() => return Ok(body.to_vec()),
            Ok(httparse::Status::Partial) => {
                bail!("its chunks are cut off after {} bytes", out.len())
            }
            Err(_) => bail!("its chunks are damaged after {} bytes", out.len()),
        };
        rest = &rest[at..];
        if size == 0 {
            return Ok(out);
        }
        let Some(chunk) = usize::try_from(size).ok().and_then(|size| rest.get(..size)) else {
            bail!(
                "its chunks are cut off after {} bytes",
                out.len() + rest.len()
            );
        };
        out.extend_from_slice(chunk);
        rest = &rest[chunk.len()..];
        rest = rest.strip_prefix(b"\r\n").unwrap_or(rest);
    }
}

/// Undoes encodings, the last one first.
fn decoded(body: Vec<u8>, encodings: &str) -> Result<Vec<u8>> {
    let mut body = body;
    for encoding in encodings
        .rsplit(',')
        .map(|one| one.trim().to_ascii_lowercase())
    {
        let packed = std::mem::take(&mut body);
        if packed.is_empty() || matches!(encoding.as_str(), "" | "identity") {
            body = packed;
            continue;
        }
        let bytes = packed.as_slice();
        let mut reader: Box<dyn Read> = match encoding.as_str() {
            "gzip" | "x-gzip" => Box::new(flate2::read::MultiGzDecoder::new(bytes)),
            // Most servers send zlib's format, as they should; some send it bare.
            "deflate" if bytes[0] & 0x0f == 8 => Box::new(flate2::read::ZlibDecoder::new(bytes)),
            "deflate" => Box::new(flate2::read::DeflateDecoder::new(bytes)),
            "br" => Box::new(brotli_decompressor::Decompressor::new(bytes, 4096)),
            "zstd" => Box::new(zstd::stream::read::Decoder::new(bytes)?),
            other => bail!("its body is packed by {other:?}; gzip, deflate, br and zstd are known"),
        };
        let mut out = Vec::new();
        let read = reader.by_ref().take(BODY).read_to_end(&mut out);
        read.with_context(|| {
            format!(
                "its body ({encoding}) is damaged or cut off after {} bytes",
                out.len()
            )
        })?;
        body = out;
    }
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn record_of(kind: &str, id: &str, more: &str, block: &[u8]) -> Vec<u8> {
        let mut text = format!(
            "WARC/1.0\r\nWARC-Type: {kind}\r\nWARC-Record-ID: <{id}>\r\n{more}Content-Length: {}\r\n\r\n",
            block.len()
        )
        .into_bytes();
        text.extend_from_slice(block);
        text.extend_from_slice(b"\r\n\r\n");
        text
    }

    const HTTP: &str = "Content-Type: application/http;msgtype=response\r\n";

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gz.write_all(text).expect("room");
        gz.finish().expect("room")
    }

    /// Builds a page in chunks, a compressed script that it requests, HEAD and POST, two revisits, and what is
    /// skipped.
    fn by_hand() -> Vec<u8> {
        let uri = |url: &str, more: &str| format!("{HTTP}WARC-Target-URI: {url}\r\n{more}");
        let ask = |id: &str, method: &str, more: &str| {
            let block = format!("{method} / HTTP/1.1\r\nHost: a.example\r\n{more}\r\n");
            record_of(
                "request",
                id,
                "Content-Type: application/http\r\n",
                block.as_bytes(),
            )
        };
        let mut page =
            b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n"
                .to_vec();
        page.extend_from_slice(b"5\r\nhello\r\n6;x=y\r\n, page\r\n0\r\n\r\n");
        let mut script =
            b"HTTP/1.1 200 OK\r\nContent-Type: text/javascript\r\nContent-Encoding: gzip\r\n\r\n"
                .to_vec();
        script.extend_from_slice(&gzip(b"let a = 1;"));
        let again = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n";
        let to = |id: &str| format!("WARC-Concurrent-To: <{id}>\r\n");
        let digest = "WARC-Payload-Digest: sha1:A\r\n";
        [
            record_of("warcinfo", "i", "", b"software: by hand\r\n"),
            ask("q1", "GET", ""),
            record_of(
                "response",
                "r1",
                &uri("<http://a.example/>", &(to("q1") + digest)),
                &page,
            ),
            ask("q2", "GET", "Referer: http://a.example/\r\n"),
            record_of(
                "response",
                "r2",
                &uri("http://a.example/a.js", &to("q2")),
                &script,
            ),
            ask("q3", "HEAD", ""),
            record_of(
                "response",
                "r3",
                &uri("http://a.example/b", &to("q3")),
                again,
            ),
            ask("q4", "POST", ""),
            record_of(
                "response",
                "r4",
                &uri("http://a.example/", &to("q4")),
                again,
            ),
            record_of(
                "revisit",
                "r5",
                &uri("http://a.example/again", digest),
                again,
            ),
            record_of(
                "revisit",
                "r6",
                &uri("http://a.example/other", "WARC-Payload-Digest: sha1:B\r\n"),
                again,
            ),
            record_of(
                "response",
                "r7",
                "Content-Type: text/dns\r\nWARC-Target-URI: dns:a.example\r\n",
                b"x",
            ),
            record_of(
                "resource",
                "r8",
                "Content-Type: image/png\r\nWARC-Target-URI: http://a.example/p.png\r\n",
                b"png",
            ),
        ]
        .concat()
    }

    #[test]
    fn pairs_chunks_encodings_and_revisits() {
        let found = read(&by_hand()).expect("sound").all;
        let said: Vec<(&str, &str, bool)> = found
            .iter()
            .map(|e| {
                (
                    e.url.as_str(),
                    std::str::from_utf8(&e.body).expect("text"),
                    e.page.is_some(),
                )
            })
            .collect();
        assert_eq!(
            said,
            [
                ("http://a.example/", "hello, page", true),
                ("http://a.example/a.js", "let a = 1;", false),
                ("http://a.example/again", "hello, page", true),
                ("http://a.example/p.png", "png", false),
                // C4: after the answer to GET.
                ("http://a.example/", "", true),
            ]
        );
        assert_eq!(
            (found[1].kind.as_str(), found[1].status),
            ("text/javascript", 200)
        );
    }

    #[test]
    fn every_encoding_that_is_named_is_read() {
        let text = b"as it was".to_vec();
        assert_eq!(
            decoded(gzip(&gzip(&text)), "gzip, gzip").expect("both"),
            text
        );
        let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        zlib.write_all(&text).expect("room");
        assert_eq!(
            decoded(zlib.finish().expect("room"), "deflate").expect("zlib"),
            text
        );
        let mut bare = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
        bare.write_all(&text).expect("room");
        assert_eq!(
            decoded(bare.finish().expect("room"), "deflate").expect("bare"),
            text
        );
        let zstd = zstd::stream::encode_all(text.as_slice(), 1).expect("room");
        assert_eq!(decoded(zstd, "zstd").expect("zstd"), text);
        // By hand after RFC 7932, from the lowest bit: window of 2^16 (0); a block that is not the last (0), its length in
        // four digits of 4 bits (00), less one (8), as it is (1), to the byte's end; nine bytes; the last block, empty (11).
        let br = [&[0x80, 0x00, 0x10][..], &text, &[3]].concat();
        assert_eq!(decoded(br, "br").expect("br"), text);
        let error = decoded(text.clone(), "lzw").expect_err("unknown");
        assert!(error.to_string().contains("lzw"), "{error}");
        assert_eq!(decoded(text.clone(), "identity").expect("as it is"), text);
        let cut = gzip(&text);
        let error = decoded(cut[..cut.len() - 9].to_vec(), "gzip").expect_err("cut");
        assert!(error.to_string().contains("cut off"), "{error}");
    }

    #[test]
    fn what_is_malformed_or_cut_is_told_with_its_byte() {
        let first = record_of("warcinfo", "i", "", b"x");
        let at = first.len();
        let with = |more: &[u8]| [first.as_slice(), more].concat();
        let sound = record_of(
            "response",
            "r",
            &format!("{HTTP}WARC-Target-URI: http://a.example/\r\n"),
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
        );
        for (file, word) in [
            (
                with(b"garbage\r\n"),
                "no WARC record begins here: \"garbage\"",
            ),
            (with(b"garbage"), "no WARC record begins here"),
            (with(b"WARC/1.0\r\nWARC-Type: resp"), "head is cut off"),
            (with(b"WARC/1.0\r\nno header\r\n\r\n"), "no header"),
            (with(b"WARC/1.0\r\nContent-Length: -1\r\n\r\n"), "\"-1\""),
            (
                with(b"WARC/1.0\r\nContent-Length: 99\r\n\r\nabc"),
                "it says 99 bytes, and 3 are left",
            ),
            (with(&sound), "its chunks are cut off after 3 bytes"),
            (
                with(&record_of("response", "r", HTTP, b"HTTP/1.1 200")),
                "answer's head is cut off",
            ),
            (
                with(&record_of("response", "r", HTTP, b"nonsense\r\n\r\n")),
                "answer's head",
            ),
            (
                with(&record_of("request", "r", "", b"GET")),
                "request's head is cut off",
            ),
        ] {
            let error = format!("{:#}", read(&file).expect_err(word));
            let place = format!("record 2 (byte {at})");
            assert!(
                error.contains(word) && error.contains(&place),
                "{word}: {error}"
            );
        }
        // Cut anywhere, the result is an error or a shorter recording, never a panic.
        for end in 0..sound.len() {
            let _ = read(&with(&sound[..end]));
        }
    }
}
