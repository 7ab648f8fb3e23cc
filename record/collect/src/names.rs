//! What a process is called.
//!
//! ```text
//!   comm (15 bytes) ─┬─► as it is          cut, none, or `exe` ─► completed by argv[0] or the file
//! ```
//!
//! N1  The name is the one that was executed (of a link, of a script), not of the file that it led to.

use std::path::Path;

use skinflint_procfs::process::thread_name;

/// Returns the name of a process: `comm`, which is the name that was executed (of a link, of a script),
/// not of the file that it led to.
pub(crate) fn process_name(pid: u32, argv: &[String], exe: &str) -> String {
    // A program that runs itself again by /proc/self/exe is named `exe`; the name of its file says more.
    let comm = thread_name(pid, pid).filter(|name| !name.is_empty() && name != "exe");
    let called = argv.first().map_or("", |first| first.as_str());
    whole_name(comm.as_deref(), called, exe)
}

/// Returns `comm`, completed by the program's first argument or its file where the kernel has cut it: a program writes
/// what it likes over its arguments (`nginx: master process /usr/sbin/nginx -c /etc/nginx.conf`).
fn whole_name(comm: Option<&str>, called: &str, exe: &str) -> String {
    /// The most bytes of a name that the kernel keeps.
    const COMM_BYTES: usize = 15;
    let file = |path: &str| {
        let name = Path::new(path).file_name();
        name.map(|name| name.to_string_lossy().into_owned())
    };
    match comm {
        Some(comm) if comm.len() < COMM_BYTES => comm.into(),
        Some(comm) => [file(called), file(exe)]
            .into_iter()
            .flatten()
            .find(|name| name.starts_with(comm))
            .unwrap_or_else(|| comm.into()),
        None => file(exe)
            .or_else(|| file(called))
            .unwrap_or_else(|| "unknown".into()),
    }
}

/// Returns a zero-terminated text.
pub fn text(bytes: &[u8]) -> String {
    let len = bytes
        .iter()
        .position(|&byte| byte == 0)
        .unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..len]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::whole_name;

    #[test]
    fn a_name_is_completed_only_where_the_kernel_cut_it() {
        let title = "nginx: master process /usr/sbin/nginx -c /etc/nginx.conf";
        assert_eq!(whole_name(Some("nginx"), title, "/usr/sbin/nginx"), "nginx");
        assert_eq!(whole_name(Some("sh"), "-sh", "/usr/bin/shell"), "sh");
        let long = Some("a-program-of-th");
        assert_eq!(
            whole_name(long, "x", "/b/a-program-of-this-name"),
            "a-program-of-this-name"
        );
        assert_eq!(whole_name(long, "x", "/b/y"), "a-program-of-th");
        assert_eq!(whole_name(None, "x", "/b/y"), "y");
    }
}
