//! What a process is labelled with, so that its profile is found among those of a fleet.
//!
//! ```text
//!   /proc/PID/cgroup ─► cgroup, unit, container, pod_uid        stat ─► process        environ ─► OTEL_SERVICE_NAME
//!   /proc/PID/root/etc/podinfo/* ─► pod_NAME, and pod_label_… of files of NAME="VALUE" lines (the downward API)
//! ```
//!
//! L1  A name consists of letters, digits and _; a value has at most [`VALUE`] bytes and no control characters; a process has
//!     at most [`MOST`] labels. What is beyond that is left out, by name order.
//! L2  `service` is always there: what OTEL_SERVICE_NAME says, else the unit, else the program.
//! L3  Files of a process are read as its own root shows them, as plain files, with a bound.
//!
//! Not here: which processes there are (`watch`).

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use skinflint_procfs::process;

/// The most bytes of a value.
const VALUE: usize = 200;
/// The most labels of a process.
const MOST: usize = 40;
/// The most files of a pod that are read, and the bytes of each.
const FILES: usize = 16;
const FILE: u64 = 64 << 10;

/// Labels by name.
pub type Labels = BTreeMap<String, String>;

/// Returns the labels of a process; `podinfo`: the folder of the downward API's files, as the process sees it.
pub fn of(pid: u32, podinfo: &Path, given: &Labels) -> Labels {
    let mut labels = Labels::new();
    let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    of_groups(&groups, &mut labels);
    let inside = podinfo.strip_prefix("/").unwrap_or(podinfo);
    of_pod(
        &Path::new(&format!("/proc/{pid}/root")).join(inside),
        &mut labels,
    );
    let exe = process::link(pid, "exe");
    let exe = exe
        .trim_end_matches(" (deleted)")
        .rsplit('/')
        .next()
        .unwrap_or_default();
    put(&mut labels, "process", exe);
    let unit = labels
        .get("unit")
        .and_then(|unit| unit.strip_suffix(".service"));
    let service = service_of(&process::environment(pid).unwrap_or_default());
    let service = service
        .or_else(|| unit.map(str::to_owned))
        .unwrap_or_else(|| exe.to_owned());
    put(&mut labels, "service", &service);
    for (name, value) in given {
        put(&mut labels, name, value);
    }
    while labels.len() >= MOST {
        labels.pop_last();
    }
    put(&mut labels, "pid", &pid.to_string());
    labels
}

/// Adds a label (L1). An empty value is none.
fn put(labels: &mut Labels, name: &str, value: &str) {
    let name = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' });
    let mut plain: String = value.chars().filter(|c| !c.is_control()).collect();
    while plain.len() > VALUE {
        plain.pop();
    }
    if !plain.is_empty() {
        labels.insert(name.collect(), plain);
    }
}

fn service_of(environment: &[u8]) -> Option<String> {
    let mut entries = environment.split(|byte| *byte == 0);
    let value = entries.find_map(|entry| entry.strip_prefix(b"OTEL_SERVICE_NAME="))?;
    let value = String::from_utf8_lossy(value).into_owned();
    (!value.is_empty()).then_some(value)
}

/// Adds what the path of a control group says: of the second version, else of systemd's own hierarchy.
fn of_groups(text: &str, labels: &mut Labels) {
    let of = |controllers: &str| {
        text.lines().find_map(|line| {
            let (_, rest) = line.split_once(':')?;
            let (found, path) = rest.split_once(':')?;
            (found == controllers && path != "/").then_some(path)
        })
    };
    let path = of("")
        .or_else(|| of("name=systemd"))
        .or_else(|| of("memory"));
    let Some(path) = path else { return };
    put(labels, "cgroup", path);
    for part in path.split('/') {
        if part.ends_with(".service") || part.ends_with(".scope") {
            put(labels, "unit", part);
        }
        let (_, id) = part
            .trim_end_matches(".scope")
            .rsplit_once('-')
            .unwrap_or(("", part));
        if id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            put(labels, "container", id);
        }
        // kubepods-burstable-pod0a1b_….slice, or pod0a1b-…
        let name = part.trim_end_matches(".slice");
        let uid = name
            .rsplit_once("pod")
            .map_or("", |(_, uid)| uid)
            .replace('_', "-");
        let is_uid = |byte: u8| byte.is_ascii_hexdigit() || byte == b'-';
        if uid.len() >= 32 && uid.bytes().all(is_uid) {
            put(labels, "pod_uid", &uid);
        }
    }
}

/// Adds what the files of a pod say.
fn of_pod(folder: &Path, labels: &mut Labels) {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten().take(FILES) {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        // The kubelet's own links begin with two dots.
        if name.starts_with("..") || !path.is_file() {
            continue;
        }
        let mut text = String::new();
        let read = std::fs::File::open(&path).map(|file| file.take(FILE).read_to_string(&mut text));
        if !matches!(read, Ok(Ok(_))) {
            continue;
        }
        let pairs: Option<Vec<(&str, String)>> = text.lines().map(pair).collect();
        match pairs {
            Some(pairs) if name == "labels" || !pairs.is_empty() => {
                let what = if name == "annotations" {
                    "annotation"
                } else {
                    "label"
                };
                for (key, value) in pairs {
                    put(labels, &format!("pod_{what}_{key}"), &value);
                }
            }
            _ => put(labels, &format!("pod_{name}"), text.trim()),
        }
    }
}

/// Returns name and value of a line `NAME="VALUE"`, whose value is escaped as Go does it.
fn pair(line: &str) -> Option<(&str, String)> {
    let (name, quoted) = line.split_once("=\"")?;
    let quoted = quoted.strip_suffix('"')?;
    let mut value = String::new();
    let mut escaped = false;
    for c in quoted.chars() {
        match (escaped, c) {
            (false, '\\') => escaped = true,
            (true, 'n' | 't' | 'r') => (value.push(' '), escaped = false).1,
            (_, c) => (value.push(c), escaped = false).1,
        }
    }
    Some((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(text: &str) -> Labels {
        let mut labels = Labels::new();
        of_groups(text, &mut labels);
        labels
    }

    #[test]
    fn control_groups_of_services_sessions_and_pods() {
        let labels = groups("0::/system.slice/nginx.service\n");
        assert_eq!(labels["unit"], "nginx.service");
        assert_eq!(labels["cgroup"], "/system.slice/nginx.service");
        let labels =
            groups("9:memory:/x\n1:name=systemd:/user.slice/user-1.slice/session-2.scope\n");
        assert_eq!(labels["unit"], "session-2.scope");
        let id = "0123456789abcdef".repeat(4);
        let pod = "0a1b2c3d_0000_1111_2222_333344445555";
        let text = format!(
            "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{pod}.slice/cri-containerd-{id}.scope\n"
        );
        let labels = groups(&text);
        assert_eq!(labels["container"], id);
        assert_eq!(labels["pod_uid"], pod.replace('_', "-"));
        let labels = groups(&format!("4:memory:/docker/{id}\n"));
        assert_eq!(
            (labels["container"].as_str(), labels.get("pod_uid")),
            (&*id, None)
        );
        assert!(groups("0::/\n").is_empty());
    }

    #[test]
    fn files_of_a_pod() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| {
            std::fs::write(folder.path().join(name), text).expect("written")
        };
        write(
            "labels",
            "app=\"web \\\"one\\\"\"\napp.kubernetes.io/name=\"shop\"",
        );
        write("annotations", "why=\"because\"\n");
        write("namespace", "prod\n");
        write("long", &"x".repeat(1_000));
        std::fs::create_dir(folder.path().join("..data")).expect("made");
        let mut labels = Labels::new();
        of_pod(folder.path(), &mut labels);
        let wanted = [
            ("pod_annotation_why", "because"),
            ("pod_label_app", "web \"one\""),
            ("pod_label_app_kubernetes_io_name", "shop"),
            ("pod_long", &"x".repeat(VALUE)),
            ("pod_namespace", "prod"),
        ];
        let wanted = wanted.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(labels, BTreeMap::from(wanted));
    }

    #[test]
    fn this_process_has_a_service_and_a_number() {
        let pid = std::process::id();
        let given = Labels::from([("zone".into(), "a\n1".into())]);
        let labels = of(pid, Path::new("/etc/podinfo"), &given);
        assert_eq!(
            (&*labels["pid"], &*labels["zone"]),
            (&*pid.to_string(), "a1")
        );
        assert!(!labels["service"].is_empty() && !labels["process"].is_empty());
        assert_eq!(
            service_of(b"A=1\0OTEL_SERVICE_NAME=shop\0"),
            Some("shop".into())
        );
    }
}
