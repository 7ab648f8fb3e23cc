//! Parts of closed pages that are still alive, by the browser's own report and by process.
//!
//! ```text
//!   Firefox   memory report ─► ghost windows, window-objects of pages (active, cached, detached) that are not open
//!   Chromium  memory-infra  ─► blink_objects: documents, frames, nodes, detached script states; per process
//!   our JavaScript host ─► objects of closed tabs that live, and bytes of each open one (on our heap; stock tells nothing)
//!   all       processes for pages ─► more than tabs are open?
//! ```
//!
//! Z1  A browser keeps processes and pages on purpose (spare renderers, preallocated and cached processes, the
//!     back-forward cache): a count above that of the open tabs is reported as a count, not called a leak. Ghost windows
//!     are what Firefox itself calls leaked.
//! Z2  What a report does not have is absent, not 0.
//!
//! Not here: getting the reports (run.rs).

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The parts of closed pages that are still alive.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Zombies {
    /// Tabs that the plan left open.
    pub tabs_open: u32,
    /// Living processes for pages, by process id, with their PSS in bytes.
    pub content_processes: Vec<(u32, u64)>,
    /// Firefox: windows that it calls ghosts, over all processes.
    pub ghost_windows: Option<u64>,
    /// Firefox: bytes of windows of pages by host: kind (`active`, `cached`, `detached`), bytes.
    pub windows: BTreeMap<String, BTreeMap<String, u64>>,
    /// Firefox: windows that are in no tab any more, by address (`chrome://browser/content/browser.xhtml` is a closed window
    /// of the browser itself).
    #[serde(default)]
    pub detached: BTreeMap<String, Detached>,
    /// Chromium: objects of pages by kind (`Document`, `Node`, …), over all processes.
    pub objects: BTreeMap<String, u64>,
    /// What the browser itself counts as its memory, bytes by name.
    pub own_figures: BTreeMap<String, u64>,
}

/// Windows that have no top window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Detached {
    /// The least number of such windows.
    pub windows: u64,
    /// The bytes that they hold.
    pub bytes: u64,
}

/// Reads a memory report of Firefox.
///
/// # Errors
/// If the file is not a memory report.
pub fn firefox(file: &Path, into: &mut Zombies) -> Result<()> {
    let bytes = std::fs::read(file).with_context(|| format!("{}: not readable", file.display()))?;
    let mut text = Vec::new();
    if bytes.starts_with(&[0x1f, 0x8b]) {
        let decoder = flate2::read::GzDecoder::new(bytes.as_slice());
        // A report has some megabytes; a longer file is none.
        decoder
            .take(1 << 30)
            .read_to_end(&mut text)
            .with_context(|| format!("{}: cut off", file.display()))?;
    } else {
        text = bytes;
    }
    let report: Value =
        serde_json::from_slice(&text).with_context(|| format!("{}: not JSON", file.display()))?;
    let reports = report["reports"]
        .as_array()
        .with_context(|| format!("{}: no \"reports\"", file.display()))?;
    let mut ghosts = None;
    // A window has each of its lines once: the line that comes most often counts the windows.
    let mut lines: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for one in reports {
        let (Some(path), Some(amount)) = (one["path"].as_str(), one["amount"].as_i64()) else {
            continue;
        };
        let amount = u64::try_from(amount).unwrap_or(0);
        let main = one["process"]
            .as_str()
            .is_some_and(|name| name.starts_with("Main Process"));
        match path {
            "ghost-windows" => *ghosts.get_or_insert(0) += amount,
            "resident" if main => drop(into.own_figures.insert("main resident".into(), amount)),
            "resident-unique" if !main => {
                *into
                    .own_figures
                    .entry("other resident-unique".into())
                    .or_default() += amount
            }
            "heap-allocated" => {
                *into.own_figures.entry("heap-allocated".into()).or_default() += amount
            }
            _ => {}
        }
        if let Some(address) = detached(path) {
            into.detached.entry(address).or_default().bytes += amount;
            let process = one["process"].as_str().unwrap_or_default();
            *lines.entry((process, path)).or_default() += 1;
        }
        if let Some((host, kind)) = window_of(path) {
            *into
                .windows
                .entry(host)
                .or_default()
                .entry(kind)
                .or_default() += amount;
        }
    }
    into.ghost_windows = ghosts;
    let mut most: BTreeMap<(&str, String), u64> = BTreeMap::new();
    for ((process, path), count) in lines {
        let most = most
            .entry((process, detached(path).unwrap_or_default()))
            .or_default();
        *most = count.max(*most);
    }
    for ((_, address), count) in most {
        into.detached.entry(address).or_default().windows += count;
    }
    Ok(())
}

/// Returns the address of `explicit/window-objects/top(none)/detached/window(ADDRESS)/…`.
fn detached(path: &str) -> Option<String> {
    let rest = path.strip_prefix("explicit/window-objects/top(none)/detached/window(")?;
    let (address, _) = rest.split_once(")/")?;
    Some(address.replace('\\', "/"))
}

/// Returns host and kind of `explicit/window-objects/top(http:\\NAME.localhost:PORT\…, id=N)/KIND/…`.
fn window_of(path: &str) -> Option<(String, String)> {
    let rest = path.strip_prefix("explicit/window-objects/top(")?;
    let (name, rest) = rest.split_once(")/")?;
    let host = name.split("\\\\").nth(1)?.split(['\\', ',']).next()?;
    let host = host.split(".localhost").next()?.to_owned();
    let kind = rest.split(['/', '(']).next()?.to_owned();
    (!host.is_empty() && ["active", "cached", "detached"].contains(&kind.as_str()))
        .then_some((host, kind))
}

/// Reads the events of a memory-infra dump.
pub fn chromium(events: &Value, into: &mut Zombies) {
    for event in events.as_array().into_iter().flatten() {
        let dumps = &event["args"]["dumps"];
        let footprint = &dumps["process_totals"]["private_footprint_bytes"];
        if let Some(bytes) = hex(footprint) {
            *into
                .own_figures
                .entry("private_footprint".into())
                .or_default() += bytes;
        }
        for (name, node) in dumps["allocators"].as_object().into_iter().flatten() {
            if let Some(kind) = name
                .strip_prefix("blink_objects/")
                .filter(|kind| !kind.contains('/'))
            {
                let count = hex(&node["attrs"]["object_count"]["value"]);
                *into.objects.entry(kind.to_owned()).or_default() += count.unwrap_or(0);
            }
            if ["malloc", "partition_alloc", "v8", "blink_gc"].contains(&name.as_str()) {
                let bytes = hex(&node["attrs"]["effective_size"]["value"])
                    .or_else(|| hex(&node["attrs"]["size"]["value"]));
                *into
                    .own_figures
                    .entry(format!("{name} effective_size"))
                    .or_default() += bytes.unwrap_or(0);
            }
        }
    }
}

/// Reads what the JavaScript host reports about its heap.
pub fn host(said: &Value, into: &mut Zombies) {
    let sum = |list: &str, keys: &[&str]| {
        let rows = said[list].as_array()?;
        let of = |row: &Value| {
            keys.iter()
                .filter_map(|key| row[*key].as_u64())
                .sum::<u64>()
        };
        Some(rows.iter().map(of).sum::<u64>())
    };
    if let Some(objects) = sum("left", &["objects"]) {
        into.objects.insert("left of closed tabs".into(), objects);
    }
    let bytes = [
        ("left of closed tabs", sum("left", &["bytes"])),
        ("open tabs", sum("tenants", &["system_bytes", "user_bytes"])),
    ];
    for (name, bytes) in bytes {
        into.own_figures
            .extend(bytes.map(|bytes| (name.to_owned(), bytes)));
    }
}

/// Parses a number in hexadecimal, as memory-infra writes all of them.
fn hex(value: &Value) -> Option<u64> {
    u64::from_str_radix(value.as_str()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::io::Write;

    #[test]
    fn a_report_of_firefox() {
        let report = |process: &str, path: &str, amount: i64| json!({"process": process, "path": path, "kind": 2, "units": 0, "amount": amount, "description": ""});
        let text = json!({"version": 1, "reports": [
            report("Main Process (pid 1)", "ghost-windows", 0),
            report("webIsolated=http://ace.localhost (pid 2)", "ghost-windows", 2),
            report("Main Process (pid 1)", "resident", 500),
            report("web (pid 2)", "resident-unique", 70),
            report("web (pid 3)", "resident-unique", 30),
            report("web (pid 2)", "explicit/window-objects/top(http:\\\\ace.localhost:80\\editor.html, id=5)/detached/window(x)/dom", 11),
            report("web (pid 2)", "explicit/window-objects/top(http:\\\\ace.localhost:80\\editor.html, id=5)/detached/window(x)/layout", 4),
            report("web (pid 2)", "explicit/window-objects/top(none)/detached/x", 9),
            report("Main Process (pid 1)", "explicit/window-objects/top(none)/detached/window(chrome:\\\\b\\c.xhtml)/dom/nodes", 5),
            report("Main Process (pid 1)", "explicit/window-objects/top(none)/detached/window(chrome:\\\\b\\c.xhtml)/dom/nodes", 6),
            report("Main Process (pid 1)", "explicit/window-objects/top(none)/detached/window(chrome:\\\\b\\c.xhtml)/style", 7),
            report("web (pid 2)", "explicit/window-objects/top(none)/detached/window(chrome:\\\\b\\c.xhtml)/style", 1),
        ]});
        let folder = tempfile::tempdir().expect("room");
        let file = folder.path().join("r.json.gz");
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gz.write_all(text.to_string().as_bytes()).expect("room");
        let bytes = gz.finish().expect("room");
        std::fs::write(&file, &bytes).expect("room");
        let mut found = Zombies::default();
        firefox(&file, &mut found).expect("sound");
        assert_eq!(found.ghost_windows, Some(2));
        assert_eq!(found.own_figures["main resident"], 500);
        assert_eq!(found.own_figures["other resident-unique"], 100);
        assert_eq!(found.windows["ace"]["detached"], 15);
        assert_eq!(found.windows.len(), 1);
        let closed = Detached {
            windows: 3,
            bytes: 19,
        };
        assert_eq!(
            found.detached,
            BTreeMap::from([("chrome://b/c.xhtml".into(), closed)])
        );
        std::fs::write(&file, &bytes[..bytes.len() / 2]).expect("room");
        assert!(
            format!("{:#}", firefox(&file, &mut found).expect_err("cut")).contains("r.json.gz")
        );
    }

    #[test]
    fn what_our_host_says() {
        let said = json!({"heap": "skinflint", "tabs": 1,
            "tenants": [{"name": "tab 3", "system_bytes": 10, "user_bytes": 5, "objects": 2, "chunks": 1, "collections": 0}],
            "left": [{"name": "tab 1", "objects": 3, "bytes": 40}, {"name": "tab 2", "objects": 1, "bytes": 2}]});
        let mut found = Zombies::default();
        host(&said, &mut found);
        assert_eq!(found.objects["left of closed tabs"], 4);
        assert_eq!(found.own_figures["left of closed tabs"], 42);
        assert_eq!(found.own_figures["open tabs"], 15);
        // The stock heap reports nothing: absent, not 0 (Z2).
        let mut found = Zombies::default();
        host(
            &json!({"heap": "stock", "tenants": null, "left": null}),
            &mut found,
        );
        assert_eq!(found, Zombies::default());
    }

    #[test]
    fn a_dump_of_chromium() {
        let node =
            |name: &str, key: &str, value: &str| json!({name: {"attrs": {key: {"value": value}}}});
        let events = json!([
            {"args": {"dumps": {"process_totals": {"private_footprint_bytes": "100"}}}},
            {"args": {"dumps": {"allocators": node("blink_objects/Document", "object_count", "a")}}},
            {"args": {"dumps": {"allocators": node("blink_objects/Document", "object_count", "1")}}},
            {"args": {"dumps": {"allocators": node("malloc", "effective_size", "20")}}},
            {"args": {"dumps": {"allocators": node("malloc/x", "effective_size", "20")}}},
        ]);
        let mut found = Zombies::default();
        chromium(&events, &mut found);
        assert_eq!(found.objects["Document"], 11);
        assert_eq!(found.own_figures["private_footprint"], 256);
        assert_eq!(found.own_figures["malloc effective_size"], 32);
        assert_eq!(found.ghost_windows, None);
    }
}
