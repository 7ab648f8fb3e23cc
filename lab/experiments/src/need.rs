//! What an experiment needs: whether it is there, in which version, and how to get it.
//!
//! ```text
//!   Need { program │ file │ writable │ host │ root } ─► there, with its version │ Missing { name, get }
//! ```
//!
//! N1  Nothing is installed or built here: what is missing is named with the line that gets it.
//!
//! Not here: which experiment needs what (table/*.toml).

use std::collections::BTreeMap;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};
use skinflint_launch::installed;

use crate::experiment::{Experiment, Need, Table};

/// Something that is not there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// Its name.
    pub name: String,
    /// How to get it.
    pub get: String,
}

/// Returns what an experiment needs and is not there. `fill` replaces placeholders of paths.
pub fn missing(
    table: &Table,
    experiment: &Experiment,
    fill: &dyn Fn(&str) -> String,
) -> Vec<Missing> {
    let all = needs(table, experiment);
    let absent = all.filter(|need| !is_there(need, fill));
    absent
        .map(|need| Missing {
            name: need.name.clone(),
            get: need.get.clone(),
        })
        .collect()
}

/// Returns the versions of what an experiment needs, as the programs say them.
pub fn versions(table: &Table, experiment: &Experiment) -> BTreeMap<String, String> {
    let all = needs(table, experiment).filter(|need| !need.version.is_empty());
    all.filter_map(|need| Some((need.name.clone(), version(need)?)))
        .collect()
}

fn needs<'a>(table: &'a Table, experiment: &'a Experiment) -> impl Iterator<Item = &'a Need> {
    let named = |name: &String| table.needs.iter().find(move |need| need.name == *name);
    experiment.needs.iter().filter_map(named)
}

fn is_there(need: &Need, fill: &dyn Fn(&str) -> String) -> bool {
    let program = need.program.is_empty() || find(&need.program).is_some();
    let file = need.file.is_empty() || Path::new(&fill(&need.file)).exists();
    let writable = need.writable.is_empty() || may_write(Path::new(&fill(&need.writable)));
    let host = need.host.is_empty() || installed::js_host(&need.host).is_ok();
    // SAFETY: it takes nothing and cannot fail.
    let root = !need.root || unsafe { libc::geteuid() } == 0;
    program && file && writable && host && root
}

fn may_write(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else {
        return false;
    };
    // SAFETY: the path ends with a zero byte and outlives the call.
    unsafe { libc::access(path.as_ptr(), libc::W_OK) == 0 }
}

fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let all = std::env::split_paths(&path).map(|folder| folder.join(program));
    all.into_iter().find(|file| file.is_file())
}

/// Asks a program for its version: the first line that it says.
fn version(need: &Need) -> Option<String> {
    let mut command = Command::new(find(&need.program)?);
    command.args(need.version.split(' ')).stdin(Stdio::null());
    let done = command.output().ok()?;
    let said = [done.stdout, done.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let line = said.iter().flat_map(|text| text.lines()).map(str::trim);
    line.into_iter()
        .find(|line| !line.is_empty())
        .map(|line| line.chars().take(80).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_need_can_be_there_and_missing() {
        let fill = |text: &str| text.replace("{root}", env!("CARGO_MANIFEST_DIR"));
        let of = |change: &dyn Fn(&mut Need)| {
            let mut need = Need::default();
            change(&mut need);
            is_there(&need, &fill)
        };
        assert!(of(&|need| need.program = "sh".into()));
        assert!(!of(&|need| need.program = "no-such-program".into()));
        assert!(of(&|need| need.file = "{root}/Cargo.toml".into()));
        assert!(!of(&|need| need.file = "{root}/absent".into()));
        assert!(of(&|need| need.writable = "/dev/null".into()));
        assert!(!of(&|need| need.writable = "{root}/absent".into()));
        assert!(!of(&|need| need.host = "no-such-host".into()));
    }
}
