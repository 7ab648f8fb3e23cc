//! OpenMetrics over HTTP, on loopback, for a collector of Prometheus on this machine.
//!
//! ```text
//!   GET /metrics ─► measure ─► Series::render ─► 200          measuring failed ─► 503, in words
//! ```
//!
//! Q1  It listens on 127.0.0.1 only, and only if the user asked for it. Every user of the machine may read it, as with
//!     other exporters: names of rows and amounts, no contents.
//! Q2  `Host` must be the address itself and a request has no `Origin`: no web page can read it, by whatever name.
//! Q3  Requests are answered one after the other; the number of series has a bound (openmetrics.O5).
//!
//! Not here: what is measured, the page with buttons (live_page.rs).

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tiny_http::{Method, Request, Server};

use crate::live_page::{header_of, is_ours, respond};
use crate::openmetrics::Series;
use crate::tree::Process;

/// The type of the text, as a collector wants it said.
const KIND: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A server of measurements.
pub struct MetricsPage {
    server: Server,
    address: SocketAddr,
    series: Series,
}

impl MetricsPage {
    /// Begins to listen on a port; 0 is any port.
    ///
    /// # Errors
    /// If the port is taken.
    pub fn open(port: u16, series: Series) -> io::Result<MetricsPage> {
        let server = Server::http(("127.0.0.1", port)).map_err(io::Error::other)?;
        let address = server.server_addr().to_ip();
        let address = address.ok_or_else(|| io::Error::other("no address"))?;
        Ok(MetricsPage {
            server,
            address,
            series,
        })
    }

    /// Returns the address to be asked.
    pub fn url(&self) -> String {
        format!("http://{}/metrics", self.address)
    }

    /// Answers one request, if one comes within a time. Returns what kept it from being measured, in words, which was
    /// answered as well.
    ///
    /// # Errors
    /// If no request can come any more. A client that hangs up is no error.
    pub fn serve_one<E>(
        &mut self,
        within: Duration,
        measure: impl FnOnce() -> Result<Vec<Process>, E>,
        words: impl FnOnce(&E) -> String,
    ) -> io::Result<Option<E>> {
        let Some(request) = self.server.recv_timeout(within)? else {
            return Ok(None);
        };
        let (status, text, failed) = match self.refusal(&request) {
            Some((status, said)) => (status, said.to_owned(), None),
            None => match measure() {
                Ok(processes) => (200, self.series.render(&processes), None),
                Err(error) => (503, words(&error), Some(error)),
            },
        };
        let kind = if status == 200 {
            KIND
        } else {
            "text/plain; charset=utf-8"
        };
        respond(request, status, kind, text.into_bytes());
        Ok(failed)
    }

    /// Returns the status and words of a refusal (Q2).
    fn refusal(&self, request: &Request) -> Option<(u16, &'static str)> {
        let is_ours = |host: &str| is_ours(self.address, host);
        if !header_of(request, "Host").is_some_and(is_ours)
            || header_of(request, "Origin").is_some()
        {
            return Some((
                403,
                "this is for a collector on this machine, by its address",
            ));
        }
        let path = request.url().split('?').next().unwrap_or("");
        match (request.method(), path) {
            (Method::Get, "/metrics") => None,
            (Method::Get, _) => Some((404, "there is /metrics only")),
            _ => Some((405, "there is nothing to change here")),
        }
    }
}
