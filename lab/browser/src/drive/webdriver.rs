//! WebKitGTK by W3C WebDriver, classic: JSON over HTTP, one session.
//!
//! ```text
//!   this ─ POST /session/ID/… ─► WebKitWebDriver ─► MiniBrowser ─► web processes
//!                                   (helper: not measured)
//! ```
//!
//! W1  With `from_opener` every page is opened by `window.open` of one page, so that WebKit keeps all of them in one
//!     web process (related views); `New Window` would give each a process of its own.
//! W2  The driver starts the browser, so the browser is below it: the driver is left out of what is measured.
//!
//! Source: W3C, WebDriver, Recommendation of 2018.
//!
//! Not here: starting WebKitWebDriver (start.rs).

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::{Drive, Loaded, Target};
use crate::plan::Kind;

const CALL: Duration = Duration::from_secs(60);
const SLACK: Duration = Duration::from_secs(20);

/// A session of WebDriver.
pub struct WebDriver {
    agent: ureq::Agent,
    session: String,
    first: String,
    from_opener: bool,
    driver: u32,
    version: Option<String>,
}

impl WebDriver {
    /// Makes the driver start the browser. `proxy` is the pages' server; `opener` is the page that opens the others.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn connect(
        endpoint: &str,
        browser: &str,
        driver: u32,
        proxy: u16,
        opener: Option<&str>,
    ) -> Result<WebDriver> {
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .build();
        let agent = ureq::Agent::new_with_config(config);
        // The capability `proxy` has no effect in MiniBrowser 2.50; its own options have.
        let at = format!("--proxy=http://127.0.0.1:{proxy}");
        let capabilities = json!({"capabilities": {"alwaysMatch": {
            "pageLoadStrategy": "normal",
            "webkitgtk:browserOptions": {"binary": browser, "args": [
                "--automation", at, "--ignore-host=localhost", "--javascript-can-open-windows-automatically=true", "--enable-page-cache=false"]}}}});
        let mut web = WebDriver {
            agent,
            session: format!("{endpoint}/session"),
            first: String::new(),
            from_opener: opener.is_some(),
            driver,
            version: None,
        };
        let made = web.post("", &capabilities, CALL)?;
        let id = made["sessionId"]
            .as_str()
            .context("the driver gave no session")?;
        web.session = format!("{endpoint}/session/{id}");
        let says = |key: &str| made["capabilities"][key].as_str().unwrap_or("").to_owned();
        web.version = Some(format!(
            "{} {}",
            says("browserName"),
            says("browserVersion")
        ));
        web.first = web
            .get("/window", CALL)?
            .as_str()
            .context("no first window")?
            .to_owned();
        if let Some(opener) = opener {
            web.post("/url", &json!({"url": opener}), CALL)?;
        }
        Ok(web)
    }

    fn post(&self, path: &str, body: &Value, limit: Duration) -> Result<Value> {
        let request = self.agent.post(format!("{}{path}", self.session));
        let request = request.config().timeout_global(Some(limit)).build();
        let sent = request
            .content_type("application/json")
            .send(body.to_string());
        answer(sent, path)
    }

    fn get(&self, path: &str, limit: Duration) -> Result<Value> {
        let request = self.agent.get(format!("{}{path}", self.session));
        answer(
            request.config().timeout_global(Some(limit)).build().call(),
            path,
        )
    }

    fn delete(&self, path: &str, limit: Duration) -> Result<Value> {
        let request = self.agent.delete(format!("{}{path}", self.session));
        answer(
            request.config().timeout_global(Some(limit)).build().call(),
            path,
        )
    }

    fn handles(&self) -> Result<Vec<String>> {
        let handles = self.get("/window/handles", CALL)?;
        let list = handles.as_array().context("no list of windows")?;
        Ok(list
            .iter()
            .filter_map(|one| one.as_str().map(str::to_owned))
            .collect())
    }

    fn switch(&self, handle: &str) -> Result<()> {
        self.post("/window", &json!({"handle": handle}), CALL)
            .map(drop)
    }

    fn script(&self, text: &str, arguments: Value, limit: Duration) -> Result<Value> {
        self.post(
            "/execute/sync",
            &json!({"script": text, "args": arguments}),
            limit,
        )
    }

    /// Opens a new window, empty or on its way to the page (W1).
    fn window(&self, target: &Target, kind: Kind) -> Result<String> {
        self.switch(&self.first)?;
        if !self.from_opener {
            let made = self.post("/window/new", &json!({"type": kind.name()}), CALL)?;
            return Ok(made["handle"].as_str().context("no handle")?.to_owned());
        }
        let before = self.handles()?;
        self.script(
            "window.open(arguments[0], '_blank'); return true;",
            json!([target.url]),
            CALL,
        )?;
        let until = Instant::now() + CALL;
        while Instant::now() < until {
            if let Some(new) = self
                .handles()?
                .into_iter()
                .find(|handle| !before.contains(handle))
            {
                return Ok(new);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        bail!("window.open opened no window")
    }

    fn load(&self, target: &Target, limit: Duration) -> Result<()> {
        let until = Instant::now() + limit;
        if !self.from_opener {
            self.post("/url", &json!({"url": target.url}), limit + SLACK)?;
        }
        let ready = target.ready.as_deref().unwrap_or("true");
        let script = format!(
            "return location.href !== 'about:blank' && document.readyState === 'complete' && Boolean({ready});"
        );
        while Instant::now() < until {
            // Between two documents there is none to ask: that is no failure.
            if self
                .script(&script, json!([]), limit + SLACK)
                .is_ok_and(|answer| answer == true)
            {
                return Ok(());
            }
            if crate::family::is_interrupted() {
                bail!("interrupted");
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        bail!("not ready for {} s", limit.as_secs())
    }
}

fn answer(
    sent: std::result::Result<ureq::http::Response<ureq::Body>, ureq::Error>,
    path: &str,
) -> Result<Value> {
    let mut response = sent.with_context(|| format!("WebDriver {path}: no answer"))?;
    let text = response
        .body_mut()
        .with_config()
        .limit(64 << 20)
        .read_to_string()?;
    let mut value: Value =
        serde_json::from_str(&text).with_context(|| format!("WebDriver {path}: not JSON"))?;
    if let Some(error) = value["value"]["error"].as_str() {
        let said = value["value"]["message"].as_str().unwrap_or("");
        bail!("WebDriver {path}: {error} {said}");
    }
    Ok(value["value"].take())
}

impl Drive for WebDriver {
    fn open(&mut self, target: &Target, kind: Kind, limit: Duration) -> Result<Loaded> {
        let began = Instant::now();
        let tab = self.window(target, kind)?;
        self.switch(&tab)?;
        let failed = self
            .load(target, limit)
            .err()
            .map(|error| format!("{error:#}"));
        if crate::family::is_interrupted() {
            bail!("interrupted");
        }
        if let Some(said) = failed.as_ref().filter(|said| said.contains("no answer")) {
            bail!("{said}");
        }
        Ok(Loaded {
            tab,
            load_ms: began.elapsed().as_millis() as u64,
            failed,
        })
    }

    fn close(&mut self, tab: &str) -> Result<()> {
        self.switch(tab)?;
        self.delete("/window", CALL)?;
        self.switch(&self.first)
    }

    fn helpers(&self) -> Vec<u32> {
        vec![self.driver]
    }

    fn version(&self) -> Option<String> {
        self.version.clone()
    }
}
