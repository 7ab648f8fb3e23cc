//! Debug files by build id: from folders and from servers that the user names.
//!
//! ```text
//!   --debuginfod FOLDER ─► looked into           --debuginfod URL ─ curl ─► URL/buildid/ID/debuginfo ─► cache
//! ```
//!
//! F1  No network is asked that the caller did not name: `env` names DEBUGINFOD_URLS.
//! F2  A file is asked for once. If every server answered and has none, that is remembered for a day. A server that
//!     cannot be reached or is in trouble is named and not asked again by this call, and nothing about it is
//!     remembered. The cache is the user's ($XDG_CACHE_HOME/skinflint/debuginfo), laid out as a debuginfod client's.
//! F3  A fetched file is used only if it holds the build id that was recorded (locate.rs, locate.L1).
//!
//! Not here: reading what was fetched (module.rs).

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use skinflint_trace::Module;

use crate::error::SourceError;

/// The longest that one file may take.
const FETCH_SECONDS: &str = "120";
/// How long we remember that a server does not have a file.
const MEMORY: Duration = Duration::from_secs(24 * 3600);

/// Returns the folders that were named, and that of what servers have, after fetching what is missing. `trouble` is
/// told of a server that does not answer.
///
/// # Errors
/// If what was named is neither a folder nor an address, `env` has no variable, or there is no curl.
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

/// Interprets the exit status of curl and the status of HTTP.
fn answer(curl: Option<i32>, http: &str) -> Answer {
    match (curl, http) {
        (Some(0), _) => Answer::File,
        // 22: the server answered, and not with the file. Gone and not found are answers to the question.
        (Some(22), "404" | "410") => Answer::HasNone,
        (Some(22), http) => Answer::No(format!("it answered {http}")),
        (Some(code), _) => Answer::No(format!("not reached (curl {code})")),
        (None, _) => Answer::No("curl was ended".into()),
    }
}

/// Asks for a file, which is written to `part` if there is one.
fn ask(url: &str, part: &Path) -> Result<Answer, SourceError> {
    let output = Command::new("curl")
        .args([
            "--silent",
            "--fail",
            "--location",
            "--proto",
            "=http,https",
            "--max-time",
            FETCH_SECONDS,
            "--write-out",
            "%{http_code}",
        ])
        .arg("--output")
        .arg(part)
        .arg("--")
        .arg(url)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .env_remove("LD_PRELOAD")
        .output()
        .map_err(SourceError::of(
            "--debuginfod: curl cannot be started, which asks servers (apt-get install curl)",
        ))?;
    Ok(answer(
        output.status.code(),
        &String::from_utf8_lossy(&output.stdout),
    ))
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
        match ask(&url, &part)? {
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
        assert_eq!(answer(Some(0), "200"), Answer::File);
        assert_eq!(answer(Some(22), "404"), Answer::HasNone);
        assert_eq!(answer(Some(22), "410"), Answer::HasNone);
        assert_eq!(
            answer(Some(22), "503"),
            Answer::No("it answered 503".into())
        );
        assert_eq!(
            answer(Some(7), "000"),
            Answer::No("not reached (curl 7)".into())
        );
        assert_eq!(answer(None, ""), Answer::No("curl was ended".into()));
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
        fetch(&mut servers, cache.path(), &module, |_| {}).expect("curl");
        assert!(servers[0].is_out);
        assert!(!cache.path().join("abcd/none").exists());
    }
}
