//! The page as a picture, and pages as recordings: short uses of a browser beside the measured runs.
//!
//! ```text
//!   index.html ─► chromium --screenshot, or firefox --screenshot ─► index.png
//!   addresses  ─► chromium, driven ─► HAR
//! ```
//!
//! I1  Any installed browser draws: none is needed beside those that were measured.
//! I2  Drawing is bounded, and ended as a measured browser is (family.rs).
//!
//! Not here: what is drawn (report_page.rs).

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::drive::node::Node;
use crate::family;
use crate::run::write_whole;
use crate::start::{self, Driver, Subject};
use crate::tree::Tree;

const LIMIT: Duration = Duration::from_secs(90);
const LOAD: Duration = Duration::from_secs(60);

/// Draws a page of ours.
///
/// # Errors
/// If there is no browser, or it draws nothing.
pub fn draw(page: &Path, png: &Path) -> Result<()> {
    family::prepare();
    let page = page
        .canonicalize()
        .with_context(|| format!("{}: not there", page.display()))?;
    let folder = tempfile::tempdir()?;
    let profile = folder.path().join("profile");
    std::fs::create_dir(&profile)?;
    let shot = folder.path().join("shot.png");
    let mut command = if let Some(chromium) = start::find_program("chromium") {
        let mut command = Command::new(chromium);
        command.args([
            "--headless=new",
            "--no-sandbox",
            "--hide-scrollbars",
            "--window-size=1280,1000",
            "--no-first-run",
        ]);
        command.arg(format!("--user-data-dir={}", profile.display()));
        command.arg(format!("--screenshot={}", shot.display()));
        command
    } else if let Some(firefox) = start::find_program("firefox-esr") {
        let mut command = Command::new(firefox);
        command
            .args([
                "--headless",
                "--no-remote",
                "--window-size=1280,1000",
                "--profile",
            ])
            .arg(&profile);
        command.arg("--screenshot").arg(&shot);
        command
    } else {
        bail!("no browser to draw with: `make tabs-deps` installs one");
    };
    command.arg(format!("file://{}", page.display()));
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let token = family::token();
    let mut child = family::start(&mut command, &token)?;
    let mut tree = Tree::new(child.id(), &token, &[]);
    let until = Instant::now() + LIMIT;
    while Instant::now() < until && !family::is_interrupted() {
        tree.members();
        if family::ended(&mut child).is_some() {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    family::end(&mut child, &mut tree, Duration::from_secs(2));
    family::sweep(&token);
    let bytes = std::fs::read(&shot)
        .with_context(|| format!("{}: the browser drew nothing", png.display()))?;
    write_whole(png, &bytes)
}

/// Records pages of the web with Chromium. Returns how many requests had not ended when a page was left.
///
/// # Errors
/// If a page does not load, or the file cannot be written.
pub fn record(urls: &[String], file: &Path, cache: &Path) -> Result<u64> {
    family::prepare();
    let subject = Subject::parse("chromium")?;
    let token = family::token();
    let folder = tempfile::tempdir()?;
    let log = folder.path().join("browser.log");
    let mut running = start::start(&subject, 0, "about:blank", false, &token, &log)?;
    let mut tree = Tree::new(running.child.id(), &token, &[]);
    let recorded =
        Node::connect(cache, Driver::Cdp, &running.endpoint, &token, &log).and_then(|mut node| {
            tree.members();
            node.record(urls, LOAD)
        });
    family::end(&mut running.child, &mut tree, Duration::from_secs(5));
    family::sweep(&token);
    let (har, unfinished) = recorded?;
    write_whole(file, &serde_json::to_vec(&har)?)?;
    Ok(unfinished)
}
