//! The live page: a process's memory in a browser, on loopback, for every browser that has its address.
//!
//! ```text
//!   GET /?token ─► page.html      /page.js, /page.css      GET /measure ─► trees      GET /save ─► file
//!                                       /save?blocks=1 ─► the file with the addresses that each line has measured
//!   POST /load, /diff (a file) ─► trees      POST /minimize, /gc, /cc ─► what came of it
//! ```
//!
//! L1  It listens on 127.0.0.1 only, and only if the user asked for it.
//! L2  Every request has the token, 128 random bits, in its query: without it the answer is 403, whatever is asked.
//! L3  `Host` must be the address itself, so that no foreign host name leads here; an `Origin`, if there is one, must
//!     be the page's; a request that changes something is a POST. Nothing allows another origin to read an answer.
//! L4  The page loads nothing but its own parts (its policy says so), and text of the program reaches it by
//!     `textContent`.
//! L5  Requests are answered one after the other; a file that is sent has a largest size.
//!
//! Not here: what is measured (the backend).

use std::io::{self, Read};
use std::net::SocketAddr;

use tiny_http::{Header, Method, Request, Response, Server};

use crate::diff::{Diff, Side};
use crate::entry::Entry;
use crate::registry::Action;
use crate::store::Store;
use crate::tree::{Builder, Presence, Process, trees};
use crate::{file, json};

/// The largest file that may be loaded, in bytes.
const LARGEST: u64 = 1 << 30;

const PAGE: &str = include_str!("live_page/page.html");
const SCRIPT: &str = include_str!("live_page/page.js");
const STYLE: &str = include_str!("live_page/page.css");

/// Lines, and the notes beside them.
#[derive(Default)]
pub struct Shown {
    /// The lines; each has its process.
    pub lines: Store,
    /// Notes for the user, such as which reporters were left out.
    pub notes: Vec<String>,
}

/// The source of the page's figures, and the actions behind its buttons.
pub trait Backend {
    /// Measures; with `with_blocks`, also the blocks that each line has measured.
    ///
    /// # Errors
    /// The reason, in words for the user.
    fn measure(&mut self, with_blocks: bool) -> Result<Shown, String>;

    /// Has an action done, and returns its result in words.
    ///
    /// # Errors
    /// The reason, in words for the user.
    fn act(&mut self, action: Action) -> Result<String, String>;
}

/// A page that is being served.
pub struct LivePage<B> {
    server: Server,
    token: String,
    address: SocketAddr,
    backend: B,
    last: Shown,
}

type Answer = Result<(Vec<u8>, &'static str), (u16, String)>;

impl<B: Backend> LivePage<B> {
    /// Begins to listen on a port; 0 is any port.
    ///
    /// # Errors
    /// If the port is taken, or there are no random numbers.
    pub fn open(port: u16, backend: B) -> io::Result<LivePage<B>> {
        let server = Server::http(("127.0.0.1", port)).map_err(io::Error::other)?;
        let address = server.server_addr().to_ip();
        let address = address.ok_or_else(|| io::Error::other("no address"))?;
        let mut random = [0u8; 16];
        std::fs::File::open("/dev/urandom")?.read_exact(&mut random)?;
        let token = random.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(LivePage {
            server,
            token,
            address,
            backend,
            last: Shown::default(),
        })
    }

    /// Returns the page's address with its token.
    pub fn url(&self) -> String {
        format!("http://{}/?token={}", self.address, self.token)
    }

    /// Answers one request.
    ///
    /// # Errors
    /// If no request can come any more. A client that hangs up is no error.
    pub fn serve_one(&mut self) -> io::Result<()> {
        let mut request = self.server.recv()?;
        let answer = match self.refusal(&request) {
            Some(refused) => Err(refused),
            None => self.answer(&mut request),
        };
        let (status, body, kind) = match answer {
            Ok((body, kind)) => (200, body, kind),
            Err((status, said)) => (status, said.into_bytes(), "text/plain; charset=utf-8"),
        };
        respond(request, status, kind, body);
        Ok(())
    }

    /// Returns the status and words of a refusal, if the request breaks L2 or L3.
    fn refusal(&self, request: &Request) -> Option<(u16, String)> {
        let header = |name| header_of(request, name);
        let host_is_ours = |host: &str| is_ours(self.address, host);
        if !header("Host").is_some_and(host_is_ours) {
            return Some((403, "another host's name leads here".into()));
        }
        let ours = |origin: &str| origin.strip_prefix("http://").is_some_and(host_is_ours);
        if header("Origin").is_some_and(|origin| !ours(origin)) {
            return Some((403, "another page asks".into()));
        }
        let query = request.url().split_once('?').map_or("", |(_, query)| query);
        let mut given = query
            .split('&')
            .filter_map(|part| part.strip_prefix("token="));
        // Every byte is compared, whatever the ones before it are: the time does not depend on the token.
        let same = |given: &str| {
            let differing = given.bytes().zip(self.token.bytes());
            given.len() == self.token.len() && differing.fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
        };
        match given.any(same) {
            true => None,
            false => Some((
                403,
                "the address is not whole: its token is missing or old".into(),
            )),
        }
    }

    fn answer(&mut self, request: &mut Request) -> Answer {
        let path = request.url().split('?').next().unwrap_or("").to_owned();
        let json = "application/json";
        match (request.method(), path.as_str()) {
            (Method::Get, "/") => {
                let page = PAGE.replace("TOKEN", &self.token);
                Ok((page.into_bytes(), "text/html; charset=utf-8"))
            }
            (Method::Get, "/page.js") => Ok((SCRIPT.into(), "text/javascript; charset=utf-8")),
            (Method::Get, "/page.css") => Ok((STYLE.into(), "text/css; charset=utf-8")),
            (Method::Get, "/measure") => {
                self.last = self.backend.measure(false).map_err(|said| (502, said))?;
                let processes = trees(self.last.lines.iter());
                Ok((text_of(&processes, &self.last.notes), json))
            }
            (Method::Get, "/save") => {
                let with_blocks = request.url().contains("blocks=1");
                let is_fresh = with_blocks || request.url().contains("fresh=1");
                if self.last.lines.is_empty() || is_fresh {
                    self.last = self
                        .backend
                        .measure(with_blocks)
                        .map_err(|said| (502, said))?;
                }
                let lines = self.last.lines.iter_with_blocks();
                let lines = lines.map(|(line, blocks)| (line, Presence::Both, blocks));
                let bytes = file::write_with_blocks(Vec::new(), "(no process)", lines);
                Ok((bytes.map_err(|error| (500, error.to_string()))?, json))
            }
            (Method::Post, "/load") => {
                let mut builder = Builder::new();
                read(request, |entry, presence| builder.add(entry, presence))?;
                Ok((text_of(&builder.finish(), &[]), json))
            }
            (Method::Post, "/diff") => {
                let mut diff = Diff::new();
                read(request, |entry, _| diff.add(Side::First, entry))?;
                self.last
                    .lines
                    .iter()
                    .for_each(|entry| diff.add(Side::Second, &entry));
                let mut builder = Builder::new();
                diff.each(|entry, presence| builder.add(entry, presence));
                Ok((text_of(&builder.finish(), &self.last.notes), json))
            }
            (Method::Post, other) => {
                let found = Action::ALL
                    .into_iter()
                    .find(|action| other.strip_prefix('/') == Some(action.name()));
                let action = found.ok_or((404, "there is no such thing here".to_owned()))?;
                let said = self.backend.act(action).map_err(|said| (502, said))?;
                Ok((said.into_bytes(), "text/plain; charset=utf-8"))
            }
            _ => Err((404, "there is no such page".into())),
        }
    }
}

/// Reports whether a host, as `Host` names it, is a server's own address, and no name that leads here.
pub fn is_ours(address: SocketAddr, host: &str) -> bool {
    let port = address.port();
    [format!("127.0.0.1:{port}"), format!("localhost:{port}")]
        .iter()
        .any(|ours| ours == host)
}

/// Answers a request. A client that does not wait for the answer does not need it.
pub fn respond(request: Request, status: u16, kind: &str, body: Vec<u8>) {
    let mut response = Response::from_data(body).with_status_code(status);
    for (name, value) in [
        ("Content-Type", kind),
        ("Cache-Control", "no-store"),
        ("X-Content-Type-Options", "nosniff"),
        ("Referrer-Policy", "no-referrer"),
        ("Cross-Origin-Resource-Policy", "same-origin"),
        (
            "Content-Security-Policy",
            "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
             frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
        ),
    ] {
        if let Ok(header) = Header::from_bytes(name, value) {
            response = response.with_header(header);
        }
    }
    let _ = request.respond(response);
}

/// Returns a header of a request.
pub fn header_of<'a>(request: &'a Request, name: &'static str) -> Option<&'a str> {
    let mut found = request.headers().iter();
    found
        .find(|header| header.field.equiv(name))
        .map(|header| header.value.as_str())
}

fn text_of(processes: &[Process], notes: &[String]) -> Vec<u8> {
    json::render(processes, notes).to_string().into_bytes()
}

fn read(
    request: &mut Request,
    each: impl FnMut(&Entry<'_>, Presence),
) -> Result<(), (u16, String)> {
    let sent = request.as_reader().take(LARGEST);
    file::read(sent, each).map_err(|error| (400, error.to_string()))?;
    Ok(())
}
