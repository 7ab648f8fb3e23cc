//! A heap profile, fetched by HTTP.
//!
//! ```text
//!   http://HOST:PORT[/path] ─ one GET, bounded in time and bytes ─► bytes ─► unzipped, bounded again
//! ```
//!
//! F1  No TLS: a profile is asked of a program on this machine, or through a tunnel that ends on it.
//! F2  Each reason that there is no profile is a sentence with what to do; that nothing listens yet is told apart, since a
//!     program that was just started does not.
//!
//! By the client that the agent has already. Not here: what is in it (profile.rs).

use std::io::{ErrorKind, Read};
use std::time::Duration;

use flate2::read::GzDecoder;

use super::Profile;

/// The most bytes of an answer, and unzipped.
const MOST_BYTES: u64 = 64 << 20;
/// Where Go's `net/http/pprof` and others serve it.
const USUAL: &str = "/debug/pprof/heap";

/// Where a program serves its heap profile.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProfileUrl(String);

/// Why there is no profile.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Trouble {
    /// Nothing listens there (F2).
    Silent(String),
    /// An answer that is none.
    Wrong(String),
}

impl Trouble {
    /// Returns the reason in words.
    pub(crate) fn words(&self) -> &str {
        let (Trouble::Silent(words) | Trouble::Wrong(words)) = self;
        words
    }
}

impl ProfileUrl {
    /// Reads an address; without a path it is that of Go's `net/http/pprof`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<ProfileUrl, String> {
        if text.starts_with("https://") {
            return Err(
                "https: no TLS is spoken here; name a port of this machine by http://".into(),
            );
        }
        let rest = text.strip_prefix("http://");
        let (host, path) =
            match rest.map(|rest| rest.split_at(rest.find('/').unwrap_or(rest.len()))) {
                Some((host, path)) if !host.is_empty() => (host, path),
                _ => return Err("no address; as in http://localhost:6060".into()),
            };
        let path = if matches!(path, "" | "/") {
            USUAL
        } else {
            path
        };
        Ok(ProfileUrl(format!("http://{host}{path}")))
    }

    /// Returns the whole address.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Asks once whether there is a profile.
    ///
    /// # Errors
    /// Why there is none, in words.
    pub fn ask(&self) -> Result<(), String> {
        const PATIENCE: Duration = Duration::from_secs(5);
        let fetched = self.fetch(PATIENCE);
        fetched.map(drop).map_err(|trouble| trouble.words().into())
    }

    /// Fetches the profile. Takes no longer than `patience`.
    pub(crate) fn fetch(&self, patience: Duration) -> Result<Profile, Trouble> {
        let config = ureq::Agent::config_builder()
            .proxy(None)
            .max_redirects(0)
            .http_status_as_error(false)
            .timeout_global(Some(patience))
            .build();
        let agent = ureq::Agent::new_with_config(config);
        let failed = |error| failed(&error, patience);
        let mut answer = agent.get(&self.0).call().map_err(failed)?;
        let status = answer.status().as_u16();
        if status != 200 {
            return Err(Trouble::Wrong(format!(
                "it answers with status {status}; is {USUAL} served there?"
            )));
        }
        let body = answer.body_mut().with_config().limit(MOST_BYTES);
        let body = body.read_to_vec().map_err(failed)?;
        read(&body).map_err(Trouble::Wrong)
    }
}

fn failed(error: &ureq::Error, patience: Duration) -> Trouble {
    match error {
        ureq::Error::Timeout(_) => {
            Trouble::Wrong(format!("no whole answer came within {patience:?}"))
        }
        ureq::Error::BodyExceedsLimit(_) => too_large(),
        ureq::Error::HostNotFound => Trouble::Wrong("there is no such host".into()),
        ureq::Error::Io(error) if error.kind() == ErrorKind::ConnectionRefused => {
            Trouble::Silent("nothing listens there (connection refused)".into())
        }
        other => Trouble::Wrong(other.to_string()),
    }
}

fn too_large() -> Trouble {
    Trouble::Wrong(format!(
        "the profile has more than {} MiB",
        MOST_BYTES >> 20
    ))
}

/// Reads a profile, zipped or not.
fn read(body: &[u8]) -> Result<Profile, String> {
    const ZIPPED: [u8; 2] = [0x1f, 0x8b];
    if body.starts_with(b"heap profile:") {
        return Err("it is a profile as text; leave debug=1 out of the address".into());
    }
    if !body.starts_with(&ZIPPED) {
        return Profile::read(body);
    }
    let mut bytes = Vec::new();
    let unzipped = GzDecoder::new(body)
        .take(MOST_BYTES + 1)
        .read_to_end(&mut bytes);
    match unzipped {
        Err(_) => Err("its compression is broken: the answer was cut off, or is no profile".into()),
        Ok(_) if bytes.len() as u64 > MOST_BYTES => Err(too_large().words().into()),
        Ok(_) => Profile::read(&bytes),
    }
}

#[cfg(test)]
#[path = "fetch_tests.rs"]
mod tests;
