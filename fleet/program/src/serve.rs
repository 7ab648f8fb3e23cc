//! The fleet's page, served: to every browser that has its address.
//!
//! ```text
//!   GET /?token=…&day=…&service=…&from=…&to=… ─► page.rs, with the tables as they are now
//! ```
//!
//! H1  Every request has the token, 128 random bits, in its query: without it the answer is 403, whatever is asked.
//! H2  It listens on loopback unless the user names another address. `Host` must be the address itself, so that no foreign
//!     host name leads here.
//! H3  The page loads nothing and runs nothing (its policy says so), and no answer may be kept or read by another origin.
//! H4  Requests are answered one after the other, and only GET is.
//!
//! Not here: what is shown (page.rs).

use std::fs::File;
use std::io::Read;
use std::net::SocketAddr;

use anyhow::{Context, Result, anyhow};
use tiny_http::{Header, Method, Request, Response, Server};

use crate::engine::Engine;
use crate::page::{self, Wanted};

/// A page that is served.
pub struct Serving {
    server: Server,
    address: SocketAddr,
    token: String,
}

type Answer = Result<String, (u16, String)>;

impl Serving {
    /// Begins to listen; port 0 is any that is free.
    ///
    /// # Errors
    /// If the address is taken or not this machine's, or there are no random numbers.
    pub fn open(listen: SocketAddr) -> Result<Serving> {
        let server =
            Server::http(listen).map_err(|error| anyhow!("cannot listen on {listen}: {error}"))?;
        let address = server.server_addr().to_ip().context("no address")?;
        let mut random = [0_u8; 16];
        File::open("/dev/urandom")?.read_exact(&mut random)?;
        Ok(Serving {
            server,
            address,
            token: random.iter().map(|byte| format!("{byte:02x}")).collect(),
        })
    }

    /// Returns the page's address with its token.
    pub fn url(&self) -> String {
        format!("http://{}/?token={}", self.address, self.token)
    }

    /// Answers one request; `open` opens the engine, anew for each page: tables change.
    ///
    /// # Errors
    /// If no request can come any more. A client that hangs up is no error.
    pub fn serve_one(&self, open: &dyn Fn() -> Result<Box<dyn Engine>>) -> Result<()> {
        let request = self.server.recv()?;
        let answer = self.answer(&request, open);
        respond(request, answer);
        Ok(())
    }

    fn answer(&self, request: &Request, open: &dyn Fn() -> Result<Box<dyn Engine>>) -> Answer {
        let refused = |said: &str| Err((403, said.to_owned()));
        let mut headers = request.headers().iter();
        let host = headers.find(|header| header.field.equiv("Host"));
        if !host.is_some_and(|host| self.is_ours(host.value.as_str())) {
            return refused("another host's name leads here");
        }
        let (path, query) = request.url().split_once('?').unwrap_or((request.url(), ""));
        let wanted = Wanted::read(query);
        if !same(&wanted.token, &self.token) {
            return refused("the address is not whole: its token is missing or old");
        }
        if (request.method(), path) != (&Method::Get, "/") {
            return Err((404, "there is no such page".to_owned()));
        }
        let made = open().and_then(|engine| page::render(&*engine, &wanted));
        made.map_err(|error| (500, format!("{error:#}")))
    }

    /// Reports whether a host, as `Host` names it, is this server's own address (H2).
    fn is_ours(&self, host: &str) -> bool {
        let local =
            self.address.ip().is_loopback() && host == format!("localhost:{}", self.address.port());
        // A server that listens on all addresses is reached by each of them, written as a number.
        let any = self.address.ip().is_unspecified()
            && host
                .parse::<SocketAddr>()
                .is_ok_and(|host| host.port() == self.address.port());
        local || any || host == self.address.to_string()
    }
}

/// Compares every byte, whatever the ones before it are: the time does not depend on the token.
fn same(given: &str, token: &str) -> bool {
    let differing = given.bytes().zip(token.bytes());
    given.len() == token.len() && differing.fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
}

/// Answers a request. A client that does not wait for the answer does not need it.
fn respond(request: Request, answer: Answer) {
    let (status, kind, body) = match answer {
        Ok(page) => (200, "text/html; charset=utf-8", page),
        Err((status, said)) => (status, "text/plain; charset=utf-8", said + "\n"),
    };
    let mut response = Response::from_data(body).with_status_code(status);
    for (name, value) in [
        ("Content-Type", kind),
        ("Cache-Control", "no-store"),
        ("X-Content-Type-Options", "nosniff"),
        ("Referrer-Policy", "no-referrer"),
        ("Cross-Origin-Resource-Policy", "same-origin"),
        ("Content-Security-Policy", page::POLICY),
    ] {
        if let Ok(header) = Header::from_bytes(name, value) {
            response.add_header(header);
        }
    }
    let _ = request.respond(response);
}
