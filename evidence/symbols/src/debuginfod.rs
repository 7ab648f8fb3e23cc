//! Debug files by build id: from folders and from servers that the user names.
//!
//! ```text
//!   --debuginfod FOLDER ─► looked into           --debuginfod URL ──────► URL/buildid/ID/debuginfo ─► cache
//! ```
//!
//! F1  No network is asked that the caller did not name: `env` names DEBUGINFOD_URLS.
//! F2  A file is asked for once. If every server answered and has none, that is remembered for a day. A server that
//!     cannot be reached or is in trouble is named and not asked again by this call, and nothing about it is
//!     remembered. The cache is the user's ($XDG_CACHE_HOME/skinflint/debuginfo), laid out as a debuginfod client's.
//! F3  A fetched file is used only if it holds the build id that was recorded (locate.rs, locate.L1).
//! F4  `https://` is asked by rustls, which trusts whom the machine trusts (its store of certificates, or SSL_CERT_FILE). A
//!     build without the feature `tls` says that it cannot.
//!
//! Not here: reading what was fetched (module.rs).

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use skinflint_trace::Module;

use crate::error::SourceError;

/// The longest that one file may take.
const FETCH: Duration = Duration::from_secs(120);
/// How long we remember that a server does not have a file.
const MEMORY: Duration = Duration::from_secs(24 * 3600);

/// Returns the folders that were named, and that of what servers have, after fetching what is missing. `trouble` is
/// told of a server that does not answer.
///
/// # Errors
/// If what was named is neither a folder nor an address, `env` has no variable, or https is to be asked by a build that cannot.
pub(crate) fn folders(
    named: &[String],
    modules: &[Module],
    trouble: fn(&str),
) -> Result<Vec<PathBuf>, SourceError> {
    let mut folders = Vec::new();
    let mut servers = Vec::new();
    for named in named {
        if named == "env" {
            let urls = std::env::var("DEBUGINFOD_URLS").unwrap_or_default();
            let before = servers.len();
            servers.extend(urls.split_whitespace().map(Server::new));
            if servers.len() == before {
                return Err(SourceError::new(
                    "--debuginfod env: DEBUGINFOD_URLS is not set; give a folder or a URL",
                ));
            }
        } else if named.starts_with("http://") || named.starts_with("https://") {
            servers.push(Server::new(named));
        } else if Path::new(named).is_dir() {
            folders.push(PathBuf::from(named));
        } else {
            return Err(SourceError::new(format!(
                "--debuginfod {named}: neither a folder nor a URL (http://, https://)"
            )));
        }
    }
    if !servers.is_empty() {
        let cache = cache()?;
        for module in modules.iter().filter(|module| is_id(&module.build_id)) {
            fetch(&mut servers, &cache, module, trouble)?;
        }
        folders.push(cache);
    }
    Ok(folders)
}

fn is_id(build_id: &str) -> bool {
    build_id.len() >= 4 && build_id.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn cache() -> Result<PathBuf, SourceError> {
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let base = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(home);
    let cache = base
        .ok_or_else(|| {
            SourceError::new("--debuginfod: no folder for what is fetched; set XDG_CACHE_HOME")
        })?
        .join("skinflint/debuginfo");
    std::fs::create_dir_all(&cache).map_err(SourceError::of(format!(
        "{}: cannot be made; set XDG_CACHE_HOME",
        cache.display()
    )))?;
    Ok(cache)
}

/// A server that may have debug files.
struct Server {
    url: String,
    /// Whether it could not be reached, or did not answer the question.
    is_out: bool,
}

impl Server {
    fn new(url: &str) -> Server {
        Server {
            url: url.trim_end_matches('/').to_owned(),
            is_out: false,
        }
    }
}

/// The answer of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Answer {
    File,
    HasNone,
    /// Why there is no answer.
    No(String),
}

/// Interprets a status of HTTP that is no success.
fn refused(status: u16) -> Answer {
    match status {
        // Gone and not found are answers to the question.
        404 | 410 => Answer::HasNone,
        status => Answer::No(format!("it answered {status}")),
    }
}

/// Asks for a file, which is written to `part` if there is one.
fn ask(url: &str, part: &Path) -> Answer {
    match fetched(url, part) {
        Ok(()) => Answer::File,
        Err(ureq::Error::StatusCode(status)) => refused(status),
        Err(error) => Answer::No(format!("not reached ({error})")),
    }
}

fn fetched(url: &str, part: &Path) -> Result<(), ureq::Error> {
    let config = ureq::Agent::config_builder().timeout_global(Some(FETCH));
    #[cfg(feature = "tls")]
    let config = config.tls_config(
        ureq::tls::TlsConfig::builder()
            .root_certs(ureq::tls::RootCerts::PlatformVerifier)
            .build(),
    );
    let answer = ureq::Agent::new_with_config(config.build())
        .get(url)
        .call()?;
    let mut body = answer
        .into_body()
        .into_with_config()
        .limit(u64::MAX)
        .reader();
    let mut file = std::fs::File::create(part)?;
    std::io::copy(&mut body, &mut file)?;
    Ok(())
}

/// Fetches the debug file of a module, if it is missing and a server has it.
fn fetch(
    servers: &mut [Server],
    cache: &Path,
    module: &Module,
    trouble: fn(&str),
) -> Result<(), SourceError> {
    let folder = cache.join(&module.build_id);
    let (file, none) = (folder.join("debuginfo"), folder.join("none"));
    let asked = std::fs::metadata(&none).and_then(|about| about.modified());
    let lately = asked.is_ok_and(|at| {
        SystemTime::now()
            .duration_since(at)
            .is_ok_and(|age| age < MEMORY)
    });
    if file.exists() || lately {
        return Ok(());
    }
    std::fs::create_dir_all(&folder).map_err(SourceError::of(format!(
        "{}: cannot be made",
        folder.display()
    )))?;
    let part = folder.join(format!("part.{}", std::process::id()));
    let mut all_answered = true;
    for server in servers {
        if server.is_out {
            all_answered = false;
            continue;
        }
        let url = format!("{}/buildid/{}/debuginfo", server.url, module.build_id);
        match ask(&url, &part) {
            Answer::File => {
                return std::fs::rename(&part, &file).map_err(SourceError::of(format!(
                    "{}: cannot be written",
                    file.display()
                )));
            }
            Answer::HasNone => {}
            Answer::No(why) => {
                trouble(&format!(
                    "{}: {why}; names come from what is here",
                    server.url
                ));
                server.is_out = true;
                all_answered = false;
            }
        }
        let _ = std::fs::remove_file(&part);
    }
    if all_answered {
        let _ = std::fs::write(&none, b"");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_answer_to_the_question_is_remembered() {
        assert_eq!(refused(404), Answer::HasNone);
        assert_eq!(refused(410), Answer::HasNone);
        assert_eq!(refused(503), Answer::No("it answered 503".into()));
    }

    /// Answers one request with this, and returns what was asked.
    fn served(answer: &'static [u8]) -> (String, std::thread::JoinHandle<String>) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("a port"));
        let asked = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            let mut asked = [0; 4096];
            let len = std::io::Read::read(&mut stream, &mut asked).expect("a request");
            std::io::Write::write_all(&mut stream, answer).expect("sent");
            String::from_utf8_lossy(&asked[..len]).into_owned()
        });
        (url, asked)
    }

    #[test]
    fn an_answer_of_http_is_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let part = folder.path().join("part");
        let (url, asked) =
            served(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\n\x7fELF!");
        assert_eq!(
            ask(&format!("{url}/buildid/ab/debuginfo"), &part),
            Answer::File
        );
        assert_eq!(std::fs::read(&part).expect("fetched"), b"\x7fELF!");
        assert!(
            asked
                .join()
                .expect("it answers")
                .starts_with("GET /buildid/ab/debuginfo HTTP/1.1\r\n")
        );
        for (answer, expected) in [
            (
                &b"HTTP/1.1 404 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"[..],
                Answer::HasNone,
            ),
            (
                b"HTTP/1.1 503 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
                Answer::No("it answered 503".into()),
            ),
        ] {
            let (url, asked) = served(answer);
            assert_eq!(ask(&url, &part), expected);
            asked.join().expect("it answers");
        }
        // A file that is cut short is no file.
        let (url, asked) =
            served(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\nConnection: close\r\n\r\nELF");
        assert!(matches!(ask(&url, &part), Answer::No(_)));
        asked.join().expect("it answers");
    }

    #[test]
    fn a_server_that_is_not_reached_is_not_remembered() {
        // A port of loopback on which no program listens any more.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("a port").port();
        drop(listener);
        let cache = tempfile::tempdir().expect("a folder");
        let module = Module {
            start: 0,
            end: 1,
            bias: 0,
            path: "/x".into(),
            build_id: "abcd".into(),
            first_node: 0,
        };
        let mut servers = [Server::new(&format!("http://127.0.0.1:{port}/"))];
        fetch(&mut servers, cache.path(), &module, |_| {}).expect("it is said");
        assert!(servers[0].is_out);
        assert!(!cache.path().join("abcd/none").exists());
    }
}
