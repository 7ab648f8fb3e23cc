//! Starts a browser with a fresh profile, so that it can be driven and asks no outside host for anything.
//!
//! ```text
//!   Subject: chromium | firefox | webkit | CMD   ×   driver   ×   allocator (preloaded; webkit and CMD only)
//!      └► temporary folder (profile, TMPDIR) ─► command line, preferences ─► process ─► where to reach it
//! ```
//!
//! L1  Profile and TMPDIR belong to this run and are removed with it; the user's own are never touched.
//! L2  All outside requests go to the pages' server as a proxy, which answers at once (site.rs).
//! L3  An allocator is preloaded only where it would serve: Chromium and Firefox have their own inside the executable,
//!     which is searched first, so there it is refused rather than ignored.
//!
//! Not here: what is done with it (drive/, run.rs).

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::family;

/// The kinds of browsers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Browser {
    /// Chromium, or a browser that takes its flags.
    Chromium,
    /// Firefox.
    Firefox,
    /// WebKitGTK's MiniBrowser.
    Webkit,
    /// The JavaScript host of this repository: programs take the place of pages.
    Js,
    /// Any program with a web view: its command gets the address of a page that opens windows by itself.
    Other,
}

/// The ways to drive a browser.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Driver {
    /// Chrome's protocol, by puppeteer-core.
    Cdp,
    /// WebDriver BiDi, by puppeteer-core.
    Bidi,
    /// Firefox's own protocol: two messages for a load, nothing subscribed to.
    Marionette,
    /// W3C WebDriver, classic.
    Webdriver,
    /// No driver: a page opens and closes windows.
    Page,
    /// Lines of JSON through its pipes; for our JavaScript host.
    Host,
}

/// The subject of a measurement: a browser, how it is driven, on which allocator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    /// Name in tables and files.
    pub label: String,
    /// Which browser.
    pub browser: Browser,
    /// How it is driven.
    pub driver: Driver,
    /// The program, or the command line of `Other` with `{url}` for the address.
    pub program: Vec<String>,
    /// Name and library of the allocator.
    pub allocator: Option<(String, PathBuf)>,
    /// Whether `Malloc=1` sends WebKit's own heap to malloc.
    pub system_malloc: bool,
    /// Additional variables, for the run that counts (proof.rs).
    #[serde(skip)]
    pub environment: Vec<(String, String)>,
}

impl Subject {
    /// Parses a browser by name: `chromium`, `firefox`, `webkit`, with `/DRIVER`; or `NAME=COMMAND {url}`.
    ///
    /// # Errors
    /// If there is no such browser, or it cannot be driven in this way.
    pub fn parse(text: &str) -> Result<Subject> {
        if let Some((name, command)) = text.split_once('=') {
            let program: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
            if !command.contains("{url}") || program.len() < 2 {
                bail!(
                    "--browser {text}: a command needs {{url}} where the address of the page goes"
                );
            }
            check_label(name, text)?;
            return Ok(Subject::new(name, Browser::Other, Driver::Page, program));
        }
        let (name, driver) = text
            .split_once('/')
            .map_or((text, None), |(n, d)| (n, Some(d)));
        let (browser, able): (Browser, &[(&str, Driver)]) = match name {
            "chromium" => (
                Browser::Chromium,
                &[("cdp", Driver::Cdp), ("page", Driver::Page)],
            ),
            "firefox" => (
                Browser::Firefox,
                &[
                    ("marionette", Driver::Marionette),
                    ("bidi", Driver::Bidi),
                    ("page", Driver::Page),
                ],
            ),
            "webkit" => (Browser::Webkit, &[("webdriver", Driver::Webdriver)]),
            _ => bail!(
                "--browser {text}: chromium, firefox, webkit, one of them with /DRIVER, or NAME=COMMAND {{url}}"
            ),
        };
        let found = match driver {
            None => able.first(),
            Some(driver) => able.iter().find(|(known, _)| *known == driver),
        };
        let Some((_, driver)) = found else {
            let names: Vec<&str> = able.iter().map(|(name, _)| *name).collect();
            bail!("--browser {text}: {name} is driven by {}", names.join(", "));
        };
        let label = text.replace('/', "-");
        let program = find_browser(browser).with_context(|| format!("--browser {text}"))?;
        Ok(Subject::new(&label, browser, *driver, vec![program]))
    }

    fn new(label: &str, browser: Browser, driver: Driver, program: Vec<String>) -> Subject {
        Subject {
            label: label.into(),
            browser,
            driver,
            program,
            allocator: None,
            system_malloc: false,
            environment: Vec::new(),
        }
    }

    /// Returns the JavaScript host as a subject: its program with its options, labelled by what is under it.
    pub fn host(label: &str, program: Vec<String>) -> Subject {
        Subject::new(label, Browser::Js, Driver::Host, program)
    }

    /// Returns the same subject on an allocator (L3). `own` is WebKit's own heap; other names go through `Malloc=1`.
    ///
    /// # Errors
    /// If a preload would have no effect.
    pub fn on(&self, name: &str, library: Option<PathBuf>) -> Result<Subject> {
        if matches!(self.browser, Browser::Chromium | Browser::Firefox) {
            bail!(
                "--with on {}: its executable has an allocator of its own, which is found before any preload; \
                 only webkit and commands can be run on another one",
                self.label
            );
        }
        Ok(Subject {
            label: format!("{}-{name}", self.label),
            allocator: library.map(|library| (name.to_owned(), library)),
            system_malloc: name != "own" && self.browser != Browser::Js,
            ..self.clone()
        })
    }

    /// Reports whether it is driven through node.
    pub fn wants_node(&self) -> bool {
        matches!(self.driver, Driver::Cdp | Driver::Bidi)
    }

    /// Returns the version that the program reports.
    pub fn version(&self) -> String {
        use std::os::unix::process::CommandExt;
        if self.browser == Browser::Js {
            // It reports its version itself (drive/host.rs).
            return String::new();
        }
        let program = self.program.first().map_or("", String::as_str);
        // It has a group of its own: another run's end reaps orphans, and must not take this process as one
        // (family.rs).
        let done = Command::new(program)
            .arg("--version")
            .process_group(0)
            .stderr(Stdio::null())
            .output();
        let said = done.map(|done| String::from_utf8_lossy(&done.stdout).trim().to_owned());
        let said = said.unwrap_or_default();
        said.lines().next().unwrap_or("").to_owned()
    }
}

fn check_label(name: &str, text: &str) -> Result<()> {
    if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
        bail!(
            "--browser {text}: the name before = is letters, digits and - only, for it names files"
        );
    }
    Ok(())
}

/// Finds the program of a browser.
fn find_browser(browser: Browser) -> Result<String> {
    let names: &[&str] = match browser {
        Browser::Chromium => &["chromium", "google-chrome", "chrome"],
        Browser::Firefox => &["firefox-esr", "firefox"],
        Browser::Webkit => &[
            "/usr/lib/x86_64-linux-gnu/webkit2gtk-4.1/MiniBrowser",
            "/usr/lib/aarch64-linux-gnu/webkit2gtk-4.1/MiniBrowser",
            "/usr/libexec/webkit2gtk-4.1/MiniBrowser",
        ],
        Browser::Js | Browser::Other => &[],
    };
    let found = names.iter().find_map(|name| find_program(name));
    found.with_context(|| {
        format!(
            "none of {} is installed; `make tabs-deps` installs it",
            names.join(", ")
        )
    })
}

/// Finds a program by name in `PATH`, or by path.
pub fn find_program(name: &str) -> Option<String> {
    if name.contains('/') {
        return Path::new(name).exists().then(|| name.to_owned());
    }
    let path = std::env::var_os("PATH")?;
    let found = std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())?;
    Some(found.to_string_lossy().into_owned())
}

/// A running browser.
pub struct Running {
    /// Its first process, or the WebDriver that has started it.
    pub child: Child,
    /// The endpoint to reach it: a WebSocket, a port.
    pub endpoint: String,
    /// Its profile and TMPDIR.
    pub folder: tempfile::TempDir,
    /// Its own display, if it has one.
    pub display: Option<Child>,
    /// The arguments with which it was started.
    pub command: Vec<String>,
}

/// Starts it. `proxy` is the port of the pages' server, 0 for the open network; `url` is what a driverless browser
/// opens.
///
/// # Errors
/// If it does not start, or cannot be reached in a minute.
pub fn start(
    subject: &Subject,
    proxy: u16,
    url: &str,
    headful: bool,
    token: &str,
    log: &Path,
) -> Result<Running> {
    let folder = tempfile::Builder::new()
        .prefix("skinflint-tabs-")
        .tempdir()
        .context("no folder for the profile")?;
    for name in ["profile", "tmp", "runtime"] {
        fs::create_dir(folder.path().join(name))?;
    }
    let display = (headful || matches!(subject.browser, Browser::Webkit | Browser::Other))
        .then(|| display(token));
    let (display, number) = match display.transpose()? {
        Some((child, number)) => (Some(child), Some(number)),
        None => (None, None),
    };
    let mut command = command(subject, folder.path(), proxy, url, number.is_none())?;
    if let Some(number) = &number {
        command
            .env("DISPLAY", number)
            .env("GDK_BACKEND", "x11")
            .env("LIBGL_ALWAYS_SOFTWARE", "1");
        command.env_remove("WAYLAND_DISPLAY");
    }
    command
        .env("TMPDIR", folder.path().join("tmp"))
        .env("XDG_RUNTIME_DIR", folder.path().join("runtime"));
    command
        .env("NO_AT_BRIDGE", "1")
        .env("MOZ_CRASHREPORTER_DISABLE", "1");
    let said =
        fs::File::create(log).with_context(|| format!("{}: cannot be made", log.display()))?;
    if subject.driver == Driver::Host {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
    } else {
        command.stdin(Stdio::null()).stdout(said.try_clone()?);
    }
    command.stderr(said);
    let words: Vec<String> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let port = words
        .iter()
        .find_map(|word| word.strip_prefix("--port="))
        .map(str::to_owned);
    let child = match family::start(&mut command, token) {
        Ok(child) => child,
        Err(error) => {
            end_display(display);
            return Err(error);
        }
    };
    let mut running = Running {
        child,
        endpoint: String::new(),
        folder,
        display,
        command: words,
    };
    match reach(subject, &mut running, port.as_deref()) {
        Ok(endpoint) => {
            running.endpoint = endpoint;
            Ok(running)
        }
        Err(error) => {
            let mut tree = crate::tree::Tree::new(running.child.id(), token, &[]);
            family::end(&mut running.child, &mut tree, Duration::from_secs(1));
            end_display(running.display);
            family::sweep(token);
            Err(error.context(format!(
                "{}: what it said is in {}",
                subject.label,
                log.display()
            )))
        }
    }
}

/// Ends a display server.
pub fn end_display(display: Option<Child>) {
    if let Some(mut display) = display {
        let _ = display.kill();
        let _ = display.wait();
    }
}

/// Starts an X server without a screen. It prints its number when it is ready.
fn display(token: &str) -> Result<(Child, String)> {
    use std::io::BufRead;
    let mut command = Command::new("Xvfb");
    command.args([
        "-displayfd",
        "1",
        "-screen",
        "0",
        "1280x1024x24",
        "-nolisten",
        "tcp",
    ]);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child =
        family::start(&mut command, token).context("no display; `make tabs-deps` installs Xvfb")?;
    let mut line = String::new();
    if let Some(out) = child.stdout.take() {
        let _ = std::io::BufReader::new(out).read_line(&mut line);
    }
    if line.trim().is_empty() {
        end_display(Some(child));
        bail!("Xvfb ended before it was ready");
    }
    Ok((child, format!(":{}", line.trim())))
}

fn command(
    subject: &Subject,
    folder: &Path,
    proxy: u16,
    url: &str,
    headless: bool,
) -> Result<Command> {
    let program = subject.program.first().context("no program")?;
    let mut command = Command::new(program);
    let profile = folder.join("profile");
    match subject.browser {
        Browser::Chromium => {
            chromium(&mut command, &profile, proxy, headless);
            command.arg(if subject.driver == Driver::Page {
                url
            } else {
                "about:blank"
            });
        }
        Browser::Firefox => {
            fs::write(profile.join("user.js"), firefox_preferences(proxy))
                .context("the profile")?;
            command.arg("--profile").arg(&profile).arg("--no-remote");
            if headless {
                command.arg("--headless");
            }
            match subject.driver {
                Driver::Bidi => command.arg("--remote-debugging-port=0"),
                Driver::Marionette => {
                    command.args(["--marionette", "--remote-allow-system-access"])
                }
                _ => &mut command,
            };
            command.arg(if subject.driver == Driver::Page {
                url
            } else {
                "about:blank"
            });
        }
        Browser::Webkit => {
            command = Command::new("WebKitWebDriver");
            command
                .arg(format!("--port={}", free_port()?))
                .arg("--host=127.0.0.1");
            preload(&mut command, subject);
        }
        Browser::Js => {
            command.args(&subject.program[1..]);
            preload(&mut command, subject);
        }
        Browser::Other => {
            command.args(
                subject.program[1..]
                    .iter()
                    .map(|word| word.replace("{url}", url)),
            );
            command
                .env("http_proxy", format!("http://127.0.0.1:{proxy}"))
                .env("no_proxy", "localhost,.localhost");
            command.env("HOME", &profile);
            preload(&mut command, subject);
        }
    }
    Ok(command)
}

fn preload(command: &mut Command, subject: &Subject) {
    command.envs(subject.environment.iter().cloned());
    if subject.system_malloc {
        command.env("Malloc", "1");
    }
    if let Some((_, library)) = &subject.allocator {
        command.env("LD_PRELOAD", library);
    }
}

fn chromium(command: &mut Command, profile: &Path, proxy: u16, headless: bool) {
    if headless {
        command.arg("--headless=new");
    }
    // SAFETY: no arguments, no memory.
    if unsafe { libc::geteuid() } == 0 {
        // Chromium's sandbox refuses to run for root.
        command.arg("--no-sandbox");
    }
    command.arg(format!("--user-data-dir={}", profile.display()));
    if proxy != 0 {
        command.arg(format!("--proxy-server=http://127.0.0.1:{proxy}"));
    }
    command.args([
        "--proxy-bypass-list=<-loopback>;*.localhost;localhost;127.0.0.1",
        "--remote-debugging-port=0",
        "--no-first-run",
        "--no-default-browser-check",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--disable-popup-blocking",
        "--enable-unsafe-swiftshader",
        "--password-store=basic",
        "--window-size=1280,900",
    ]);
}

fn firefox_preferences(proxy: u16) -> String {
    let on = [
        "browser.aboutConfig.showWarning",
        "browser.shell.checkDefaultBrowser",
        "browser.newtabpage.enabled",
        "browser.safebrowsing.malware.enabled",
        "browser.safebrowsing.phishing.enabled",
        "browser.safebrowsing.downloads.remote.enabled",
        "datareporting.policy.dataSubmissionEnabled",
        "datareporting.healthreport.uploadEnabled",
        "toolkit.telemetry.enabled",
        "app.normandy.enabled",
        "app.update.auto",
        "extensions.update.enabled",
        "network.captive-portal-service.enabled",
        "network.connectivity-service.enabled",
        "dom.disable_open_during_load",
        "signon.rememberSignons",
        "browser.sessionstore.resume_from_crash",
        "browser.tabs.warnOnClose",
        "browser.warnOnQuit",
        "network.proxy.allow_hijacking_localhost",
        // Otherwise tabs are unloaded without our knowledge on a busy, hidden or small machine.
        "browser.tabs.unloadOnLowMemory",
    ];
    let mut text: String = on
        .iter()
        .map(|name| format!("user_pref({name:?}, false);\n"))
        .collect();
    text += &format!(
        "user_pref(\"network.proxy.type\", 1);\n\
         user_pref(\"network.proxy.http\", \"127.0.0.1\");\nuser_pref(\"network.proxy.http_port\", {proxy});\n\
         user_pref(\"network.proxy.ssl\", \"127.0.0.1\");\nuser_pref(\"network.proxy.ssl_port\", {proxy});\n\
         user_pref(\"network.proxy.no_proxies_on\", \"localhost, .localhost, 127.0.0.1\");\n\
         user_pref(\"marionette.port\", 0);\n\
         user_pref(\"dom.popup_maximum\", 100000);\n\
         user_pref(\"dom.ipc.reportProcessHangs\", false);\n\
         user_pref(\"browser.startup.homepage_override.mstone\", \"ignore\");\n\
         user_pref(\"services.settings.server\", \"http://settings.invalid/\");\n"
    );
    text
}

/// Returns a port that was free a moment ago; for programs that do not choose one by themselves.
fn free_port() -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").context("127.0.0.1: no free port")?;
    Ok(listener.local_addr()?.port())
}

/// Waits until the browser can be reached, and returns its endpoint.
fn reach(subject: &Subject, running: &mut Running, port: Option<&str>) -> Result<String> {
    let profile = running.folder.path().join("profile");
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let read = |name: &str| fs::read_to_string(profile.join(name)).unwrap_or_default();
        let found = match (subject.browser, subject.driver) {
            (_, Driver::Page | Driver::Host) => Some(String::new()),
            (Browser::Chromium, _) => {
                let text = read("DevToolsActivePort");
                text.split_once('\n')
                    .map(|(port, path)| format!("ws://127.0.0.1:{port}{}", path.trim()))
            }
            (Browser::Firefox, Driver::Bidi) => {
                let text: serde_json::Value =
                    serde_json::from_str(&read("WebDriverBiDiServer.json")).unwrap_or_default();
                text["ws_port"]
                    .as_u64()
                    .map(|port| format!("ws://127.0.0.1:{port}/session"))
            }
            (Browser::Firefox, _) => {
                let text = read("MarionetteActivePort");
                text.trim()
                    .parse::<u16>()
                    .ok()
                    .map(|port| format!("127.0.0.1:{port}"))
            }
            _ => port
                .filter(|port| std::net::TcpStream::connect(format!("127.0.0.1:{port}")).is_ok())
                .map(|port| format!("http://127.0.0.1:{port}")),
        };
        if let Some(found) = found {
            return Ok(found);
        }
        if let Some(how) = family::ended(&mut running.child) {
            bail!("the browser {how} before it could be driven");
        }
        if family::is_interrupted() {
            bail!("interrupted");
        }
        if Instant::now() > until {
            bail!("the browser could not be reached for a minute");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_by_name() {
        let other = Subject::parse("mine=./app --open {url}").expect("a command");
        assert_eq!(
            (other.browser, other.driver),
            (Browser::Other, Driver::Page)
        );
        assert_eq!(other.program, ["./app", "--open", "{url}"]);
        for (text, word) in [
            ("opera", "chromium, firefox, webkit"),
            ("mine=./app", "{url}"),
            ("../x=app {url}", "names files"),
            ("chromium/bidi", "driven by cdp, page"),
        ] {
            let error = format!("{:#}", Subject::parse(text).expect_err(text));
            assert!(error.contains(word) && error.contains(text), "{error}");
        }
    }

    #[test]
    fn a_preload_without_effect_is_refused() {
        let own = |browser| Subject::new("b", browser, Driver::Page, vec!["b".into()]);
        let error = own(Browser::Firefox)
            .on("jemalloc", None)
            .expect_err("no effect");
        assert!(error.to_string().contains("allocator of its own"));
        let webkit = own(Browser::Webkit).on("own", None).expect("can");
        assert_eq!(
            (webkit.label.as_str(), webkit.system_malloc),
            ("b-own", false)
        );
        assert!(
            own(Browser::Webkit)
                .on("glibc", None)
                .expect("can")
                .system_malloc
        );
    }
}
