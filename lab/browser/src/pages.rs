//! The plan's pages on a server of their own, for one run.
//!
//! ```text
//!   plan.pages ─┬─ names of the corpus ─► corpus.rs (fetched, by hash) ─► mounts ─┐
//!               ├─ programs (.js) ──────► a page around it; to the JavaScript host the file itself ─────┤
//!               ├─ a recording ─────────► recording.rs────────────────────────────┼─► Site, a port of this run's
//!               └─ addresses ───────────────────────────────────────────────────► targets
//! ```
//!
//! V1  Each run has a server of its own, on a port of its own: neither what a browser keeps by origin nor the
//!     compressed files that the server keeps go from one run to the next, and requests to the outside are counted by
//!     run.
//! V2  A page that is named but missing is an error before anything is started.
//!
//! Not here: serving (site.rs), which runs there are (series.rs).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};

use crate::corpus::{self, Page};
use crate::drive::Target;
use crate::plan::Plan;
use crate::recording;
use crate::request::Request;
use crate::site::{Mount, Site};
use crate::start::Browser;

/// The programs of the plan `programs`, by name: a tree of records, built in ten turns (bench/gc/js).
const OBJECTS: (&str, &str) = ("objects", include_str!("../pages/tab.js"));

/// Pages that are served, until it is dropped.
pub struct Served {
    /// Our own programs, as files for the JavaScript host.
    _programs: tempfile::TempDir,
    /// The server.
    pub site: Arc<Site>,
    /// The pages, in order.
    pub targets: Vec<Target>,
    /// The benchmark's page, if the plan runs it.
    pub octane: Option<Target>,
}

/// Fetches what is missing and serves the pages (V1).
///
/// # Errors
/// If pages cannot be fetched or served.
pub fn serve(request: &Request, browser: Browser) -> Result<Served> {
    let site = Arc::new(Site::start()?);
    let programs = tempfile::tempdir().context("no folder for programs")?;
    let targets = if browser == Browser::Js {
        scripts(request, programs.path())?
    } else {
        targets(request, &site)?
    };
    let octane = if request.plan.benchmark {
        Some(octane(request, &site)?)
    } else {
        None
    };
    Ok(Served {
        _programs: programs,
        site,
        targets,
        octane,
    })
}

/// Returns the programs of the plan, as files that the JavaScript host opens.
fn scripts(request: &Request, folder: &Path) -> Result<Vec<Target>> {
    let plan = &request.plan;
    if plan.benchmark || !request.replay.is_empty() {
        bail!(
            "--browser js: runs programs, no benchmark of pages and no recording; take --plan programs"
        );
    }
    let mut targets = Vec::new();
    for page in chosen(plan)? {
        let Chosen::Program { name, text, file } = page else {
            bail!(
                "--browser js: runs programs, and the plan {} has pages; take --plan programs, or --pages FILE.js",
                plan.name
            );
        };
        let file = match file {
            Some(file) => file,
            None => {
                let file = folder.join(format!("{name}.js"));
                std::fs::write(&file, text).with_context(|| format!("{}", file.display()))?;
                file
            }
        };
        targets.push(Target {
            url: file.display().to_string(),
            host: name,
            ready: None,
        });
    }
    Ok(targets)
}

/// Builds a page around a program, with what it finds in the host, and no more. It is ready when its last timer has
/// run.
fn around(name: &str, text: &str) -> String {
    let shim = include_str!("../pages/program.html");
    // The end tag of a script element, wherever it stands in the text, would end the element.
    let text = text.replace("</script", "<\\/script");
    shim.replace("NAME", name).replacen("// PROGRAM", &text, 1)
}

/// Returns the pages of the plan, on the server.
fn targets(request: &Request, site: &Arc<Site>) -> Result<Vec<Target>> {
    if !request.replay.is_empty() {
        return replayed(request, site);
    }
    let mut targets = Vec::new();
    for page in chosen(&request.plan)? {
        match page {
            Chosen::Address(url) => {
                let host = url.split('/').nth(2).unwrap_or("").to_owned();
                targets.push(Target {
                    url,
                    host,
                    ready: None,
                });
            }
            Chosen::Page(page) => targets.push(mounted(&page, request, site)?),
            Chosen::Program { name, text, .. } => {
                site.mount(
                    &name,
                    Mount {
                        folder: PathBuf::new(),
                        own: Some(around(&name, &text).into()),
                    },
                );
                let path = corpus::OWN_PATH;
                let url = if request.plan.one_origin {
                    site.address("one", &format!("{name}/{path}"))
                } else {
                    site.address(&name, path)
                };
                targets.push(Target {
                    url,
                    host: name,
                    ready: Some("window.skinflintRests === true".into()),
                });
            }
        }
    }
    if targets.is_empty() {
        bail!("the plan {} has no pages", request.plan.name);
    }
    Ok(targets)
}

enum Chosen {
    Page(Box<Page>),
    Address(String),
    /// A program; `file` is absent if it is one of our own.
    Program {
        name: String,
        text: String,
        file: Option<PathBuf>,
    },
}

impl Chosen {
    /// Reports whether two programs would be served from one host.
    fn collides(&self, other: &Chosen) -> bool {
        match (self, other) {
            (
                Chosen::Program { name, text, .. },
                Chosen::Program {
                    name: n, text: t, ..
                },
            ) => name == n && text != t,
            _ => false,
        }
    }
}

/// Finds a program by name or file; its name becomes a host's.
fn program(named: &str) -> Result<Chosen> {
    if named == OBJECTS.0 {
        return Ok(Chosen::Program {
            name: OBJECTS.0.into(),
            text: OBJECTS.1.into(),
            file: None,
        });
    }
    let file = std::path::absolute(named)?;
    let text = std::fs::read_to_string(&file)
        .with_context(|| format!("pages: {named}: not readable; name a JavaScript file"))?;
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let plain = stem.chars().filter(char::is_ascii_alphanumeric);
    let name: String = plain.collect::<String>().to_ascii_lowercase();
    if name.is_empty() {
        bail!("pages: {named}: its name has no letter or digit, and is to be a host's");
    }
    Ok(Chosen::Program {
        name,
        text,
        file: Some(file),
    })
}

fn chosen(plan: &Plan) -> Result<Vec<Chosen>> {
    let all = corpus::pages()?;
    let mut chosen = Vec::new();
    for name in &plan.pages {
        let of = |what: fn(&Page) -> bool| all.iter().filter(move |page| what(page));
        let mut some: Vec<&Page> = match name.as_str() {
            "corpus" => of(|page| page.cycle).collect(),
            "light" => of(|page| page.light).collect(),
            "shared" => of(|page| page.shared).collect(),
            name if name.starts_with("http://") || name.starts_with("https://") => {
                chosen.push(Chosen::Address(name.into()));
                continue;
            }
            name if name == OBJECTS.0 || name.ends_with(".js") => {
                let one = program(name)?;
                if chosen.iter().any(|other| one.collides(other)) {
                    bail!(
                        "pages: {name}: another program has this name, and names are hosts; rename one"
                    );
                }
                chosen.push(one);
                continue;
            }
            name => all.iter().filter(|page| page.name == name).collect(),
        };
        if some.is_empty() {
            let names: Vec<&str> = all
                .iter()
                .filter(|page| page.cycle)
                .map(|page| page.name.as_str())
                .collect();
            bail!(
                "pages: no page {name:?}; corpus, light, shared, objects, a .js file, an http address, or one of {} …",
                names.join(", ")
            );
        }
        if plan.one_origin && some.iter().any(|page| !page.shared) {
            bail!(
                "pages: {name:?} has pages that cannot be served below a common origin (one_origin); take \"shared\""
            );
        }
        chosen.extend(
            some.drain(..)
                .map(|page| Chosen::Page(Box::new(page.clone()))),
        );
    }
    if plan.page_count > 0 {
        chosen.truncate(plan.page_count as usize);
    }
    Ok(chosen)
}

/// Returns the packages that a plan's pages come from, each once; also Octane's if the plan runs it.
///
/// # Errors
/// If the plan names a page that does not exist.
pub fn packages(plan: &Plan) -> Result<Vec<corpus::Package>> {
    let mut packages: Vec<corpus::Package> = Vec::new();
    let mut pages: Vec<Page> = Vec::new();
    for one in chosen(plan)? {
        if let Chosen::Page(page) = one {
            pages.push(*page);
        }
    }
    if plan.benchmark {
        pages.push(corpus::octane()?);
    }
    for page in pages {
        if !packages.iter().any(|known| known.name == page.package.name) {
            packages.push(page.package);
        }
    }
    Ok(packages)
}

/// Fetches a page's files and serves them.
fn mounted(page: &Page, request: &Request, site: &Arc<Site>) -> Result<Target> {
    let folder = corpus::fetch(&page.package, &request.cache)?;
    let mount = Mount {
        folder: folder.join(&page.root),
        own: page.own.map(Into::into),
    };
    let file = mount.folder.join(&page.entry);
    if page.own.is_none() && !file.is_file() {
        bail!(
            "corpus.toml: {}: no {} in {}",
            page.name,
            page.entry,
            mount.folder.display()
        );
    }
    site.mount(&page.name, mount);
    let url = if request.plan.one_origin {
        site.address("one", &format!("{}/{}", page.name, page.entry))
    } else {
        site.address(&page.name, &page.entry)
    };
    Ok(Target {
        url,
        host: page.name.clone(),
        ready: page.ready.clone(),
    })
}

fn octane(request: &Request, site: &Arc<Site>) -> Result<Target> {
    mounted(&corpus::octane()?, request, site).map(|target| Target {
        url: site.address("octane", corpus::OWN_PATH),
        ..target
    })
}

fn replayed(request: &Request, site: &Arc<Site>) -> Result<Vec<Target>> {
    let [file] = request.replay.as_slice() else {
        bail!(
            "--replay: one recording at a time; several pages are recorded into one with --record"
        );
    };
    let recorded = recording::read(file, site.port())?;
    let starts = recorded.starts.clone();
    site.replay(recorded);
    Ok(starts
        .into_iter()
        .map(|start| Target {
            url: site.address(&start.host, start.path.trim_start_matches('/')),
            host: start.host,
            ready: None,
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_pages_with_names_of_hosts() {
        let folder = tempfile::tempdir().expect("room");
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("room");
            std::fs::write(&path, text).expect("room");
            path.to_str().expect("plain").to_owned()
        };
        let with = |pages: &[String]| Plan {
            pages: pages.to_vec(),
            page_count: 0,
            ..Plan::default()
        };
        let (a, b) = (file("My-App.js", "1;"), file("other/my_app.js", "2;"));
        let found = chosen(&with(&["objects".into(), a.clone(), a.clone()])).expect("there");
        let names: Vec<&str> = found
            .iter()
            .map(|one| match one {
                Chosen::Program { name, .. } => name.as_str(),
                _ => "page",
            })
            .collect();
        assert_eq!(names, ["objects", "myapp", "myapp"]);
        let said = |pages: &[String]| format!("{:#}", chosen(&with(pages)).err().expect("wrong"));
        assert!(said(&[a, b]).contains("rename one"));
        assert!(said(&[file("--.js", "1;")]).contains("no letter"));
        assert!(said(&["/none.js".into()]).contains("/none.js: not readable"));
    }

    #[test]
    fn a_page_around_a_program_ends_where_it_should() {
        let page = around("app", "print('</script>'); // PROGRAM");
        assert_eq!(page.matches("</script>").count(), 2);
        assert!(
            page.contains("<title>app</title>")
                && page.contains("print('<\\/script>'); // PROGRAM")
        );
    }
}
