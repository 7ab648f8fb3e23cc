//! Circles of files inside a crate: a file that is reached again by following what it names.
//!
//! ```text
//!   src/**/*.rs ─► modules (children, items, aliases) ─► every path token, resolved ─► file ─► file ─► circles
//! ```
//!
//! R1  An arrow leads from a file to the file in which a named thing is defined, through re-exports: a façade that only
//!     declares and re-exports modules is in no circle.
//! R2  Every path counts, in `use` lines, in code and in macro calls; what only tests compile does not.
//! R4  Where a crate's folders are floors ([`FLOORS`]), no file names one of a floor above its own.
//!
//! Not here: methods, which no path names; arrows between crates (edges.rs).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use quote::ToTokens;
use syn::{Attribute, Item, UseTree};

use crate::floors;

use super::Fault;

const RULE: &str = "circle";
/// Crates whose folders are floors, from the lowest up.
const FLOORS: &[(&str, &[&str])] = &[("alloc", &["mechanism", "heaps", "services"])];

/// A path of Rust, by its segments.
type Names = Vec<String>;

/// A module of a crate: a file, or a part of one.
#[derive(Default)]
struct Module {
    file: String,
    children: BTreeSet<String>,
    items: BTreeSet<String>,
    aliases: BTreeMap<String, Names>,
    globs: Vec<Names>,
    /// Paths that the module's code names, without those of re-exports.
    named: BTreeSet<Names>,
}

/// Which file names which others of its crate, each with a path by which it does.
type Arrows = BTreeMap<String, BTreeMap<String, String>>;

/// The modules of a crate by their paths.
struct Modules(BTreeMap<Names, Module>);

/// Finds circles in every crate; `read` gives a file's text.
pub fn check(files: &[String], read: &dyn Fn(&str) -> Option<String>) -> Vec<Fault> {
    let mut crates: BTreeMap<&str, Vec<&String>> = BTreeMap::new();
    for file in files.iter().filter(|file| file.ends_with(".rs")) {
        if let Some((name, path)) = floors::any_crate_of(file)
            && path.starts_with("src/")
        {
            crates.entry(name).or_default().push(file);
        }
    }
    let mut faults = Vec::new();
    for (name, files) in crates {
        let Some(root) = files.iter().find(|file| {
            file.ends_with(&format!("{name}/src/lib.rs"))
                || file.ends_with(&format!("{name}/src/main.rs"))
        }) else {
            continue;
        };
        let arrows = arrows(root, read);
        faults.extend(upward(name, &arrows));
        let circles = circles(&arrows);
        for circle in circles {
            let first = circle.iter().next().cloned().unwrap_or_default();
            faults.push(Fault::new(&first, 0, RULE, said(&circle, &arrows)));
        }
    }
    faults
}

/// Finds arrows from a floor of a crate to one above it (R4).
fn upward(name: &str, arrows: &Arrows) -> Vec<Fault> {
    let Some((_, floors)) = FLOORS.iter().find(|(of, _)| *of == name) else {
        return Vec::new();
    };
    let floor = |file: &str| {
        let (_, path) = file.rsplit_once("/src/")?;
        floors
            .iter()
            .position(|it| path.split('/').next() == Some(it))
    };
    let up = |from: &str, to: &str| matches!((floor(from), floor(to)), (Some(from), Some(to)) if to > from);
    let mut faults = Vec::new();
    for (from, named) in arrows {
        for (to, path) in named.iter().filter(|(to, _)| up(from, to)) {
            let what = format!("`{path}` is in {to}, a floor above this file's");
            faults.push(Fault::new(from, 0, RULE, what));
        }
    }
    faults
}

/// Says what a circle is made of: each file, and by which path it names which others.
fn said(circle: &BTreeSet<String>, arrows: &Arrows) -> String {
    let short = |file: &str| file.rsplit_once("/src/").map_or(file, |it| it.1).to_owned();
    let of_file = |file: &String| {
        let within = arrows.get(file).into_iter().flatten();
        let within = within.filter(|(to, _)| circle.contains(*to));
        let named: Vec<String> = within
            .map(|(to, path)| format!("{} ({path})", short(to)))
            .collect();
        format!("{} names {}", short(file), named.join(", "))
    };
    let files: Vec<String> = circle.iter().map(of_file).collect();
    format!(
        "{} files name each other in a circle: {}",
        files.len(),
        files.join("; ")
    )
}

/// Returns which file names which others of its crate, from the crate's root file.
fn arrows(root: &str, read: &dyn Fn(&str) -> Option<String>) -> Arrows {
    let mut modules = Modules(BTreeMap::new());
    modules.read_file(&[], root, read);
    let mut arrows = Arrows::new();
    for (path, module) in &modules.0 {
        for named in &module.named {
            if let Some(target) = modules.resolve(path, named, 0)
                && target != module.file
            {
                let of_file = arrows.entry(module.file.clone()).or_default();
                of_file.entry(target).or_insert_with(|| named.join("::"));
            }
        }
    }
    arrows
}

impl Modules {
    fn read_file(&mut self, path: &[String], file: &str, read: &dyn Fn(&str) -> Option<String>) {
        let Some(parsed) = read(file).and_then(|text| syn::parse_file(&text).ok()) else {
            return;
        };
        self.read_items(path, file, parsed.items, read);
    }

    fn read_items(
        &mut self,
        path: &[String],
        file: &str,
        items: Vec<Item>,
        read: &dyn Fn(&str) -> Option<String>,
    ) {
        let mut module = Module {
            file: file.to_owned(),
            ..Module::default()
        };
        let mut below = Vec::new();
        for item in items {
            if only_tests(attributes(&item)) {
                continue;
            }
            module.items.extend(name_of(&item));
            match item {
                Item::Use(one) => {
                    let exported = !matches!(one.vis, syn::Visibility::Inherited);
                    module.take(&one.tree, &mut Vec::new(), exported);
                }
                Item::Mod(one) => {
                    module.children.insert(one.ident.to_string());
                    below.push(one);
                }
                other => module.paths(other.to_token_stream()),
            }
        }
        self.0.insert(path.to_vec(), module);
        for one in below {
            let name = one.ident.to_string();
            let inner = [path, std::slice::from_ref(&name)].concat();
            match one.content {
                Some((_, items)) => self.read_items(&inner, file, items, read),
                None => {
                    let of = file_of(file, path, &name, &one.attrs);
                    if let Some(found) = of.into_iter().find(|file| read(file).is_some()) {
                        self.read_file(&inner, &found, read);
                    }
                }
            }
        }
    }

    /// Returns the file in which what `named` names, seen from the module `from`, is defined.
    fn resolve(&self, from: &[String], named: &[String], depth: usize) -> Option<String> {
        // Aliases and globs that lead to each other.
        if depth > 12 {
            return None;
        }
        let mut at: Names = from.to_vec();
        let mut rest = named;
        let mut anchored = false;
        while let Some((first, behind)) = rest.split_first() {
            match first.as_str() {
                "crate" => at = Vec::new(),
                "self" => {}
                "super" => {
                    at.pop()?;
                }
                _ => break,
            }
            anchored = true;
            rest = behind;
        }
        let Some((first, behind)) = rest.split_first() else {
            return anchored.then(|| self.0.get(&at).map(|module| module.file.clone()))?;
        };
        let module = self.0.get(&at)?;
        if module.children.contains(first) {
            at.push(first.clone());
            if behind.is_empty() {
                return self.0.get(&at).map(|module| module.file.clone());
            }
            let inside = [&["self".to_owned()], behind].concat();
            return self.resolve(&at, &inside, depth + 1);
        }
        if module.items.contains(first) {
            return Some(module.file.clone());
        }
        if let Some(alias) = module.aliases.get(first) {
            let whole = [&alias[..], behind].concat();
            return (whole != named).then(|| self.resolve(&at, &whole, depth + 1))?;
        }
        module.globs.iter().find_map(|glob| {
            let whole = [&glob[..], rest].concat();
            self.resolve(&at, &whole, depth + 1)
        })
    }
}

impl Module {
    /// Takes in a `use`: what its names stand for, and, where nothing is re-exported, what it names.
    fn take(&mut self, tree: &UseTree, before: &mut Names, exported: bool) {
        match tree {
            UseTree::Path(one) => {
                before.push(one.ident.to_string());
                self.take(&one.tree, before, exported);
                before.pop();
            }
            UseTree::Name(one) => self.alias(
                &one.ident.to_string(),
                &one.ident.to_string(),
                before,
                exported,
            ),
            UseTree::Rename(one) => self.alias(
                &one.rename.to_string(),
                &one.ident.to_string(),
                before,
                exported,
            ),
            UseTree::Glob(_) => self.globs.push(before.clone()),
            UseTree::Group(group) => {
                for one in &group.items {
                    self.take(one, before, exported);
                }
            }
        }
    }

    fn alias(&mut self, alias: &str, name: &str, before: &[String], exported: bool) {
        let mut path = before.to_vec();
        let mut alias = alias.to_owned();
        if name == "self" {
            if alias == "self" {
                alias = before.last().cloned().unwrap_or_default();
            }
        } else {
            path.push(name.to_owned());
        }
        if !exported {
            self.named.insert(path.clone());
        }
        self.aliases.insert(alias, path);
    }

    /// Takes in every path of some code; `use` lines within functions, too.
    fn paths(&mut self, code: TokenStream) {
        let tokens: Vec<TokenTree> = code.into_iter().collect();
        let mut next = 0;
        while next < tokens.len() {
            match &tokens[next] {
                TokenTree::Group(group) => self.paths(group.stream()),
                TokenTree::Punct(punct)
                    if punct.as_char() == '#' && is_for_tests(tokens.get(next + 1)) =>
                {
                    let end = tokens[next + 2..].iter().position(ends_item);
                    next = end.map_or(tokens.len(), |end| next + 2 + end);
                }
                TokenTree::Ident(ident) if ident == "use" => {
                    let end = tokens[next..].iter().position(|token| is_punct(token, ';'));
                    if let Some(end) = end {
                        let line: TokenStream = tokens[next..=next + end].iter().cloned().collect();
                        if let Ok(one) = syn::parse2::<syn::ItemUse>(line) {
                            self.take(&one.tree, &mut Vec::new(), false);
                            next += end;
                        }
                    }
                }
                TokenTree::Ident(_) => {
                    let is_member = next > 0 && is_punct(&tokens[next - 1], '.');
                    let (path, last) = path_at(&tokens, next);
                    // A module's name alone is a variable's; `super` and `crate` alone say who sees a thing.
                    if !is_member
                        && (path.len() > 1
                            || !(self.children.contains(&path[0])
                                || ["super", "crate"].contains(&path[0].as_str())))
                    {
                        self.named.insert(path);
                    }
                    next = last;
                }
                _ => {}
            }
            next += 1;
        }
    }
}

fn is_punct(token: &TokenTree, sign: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == sign)
}

fn is_for_tests(token: Option<&TokenTree>) -> bool {
    matches!(token, Some(TokenTree::Group(group)) if group.stream().to_string().replace(' ', "") == "cfg(test)")
}

/// Tells whether an item is at its end with this token: a body in braces, or a semicolon.
fn ends_item(token: &TokenTree) -> bool {
    match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        token => is_punct(token, ';'),
    }
}

/// Returns the path that begins at a token, and the index of its last one.
fn path_at(tokens: &[TokenTree], from: usize) -> (Names, usize) {
    let mut path = vec![tokens[from].to_string()];
    let mut last = from;
    let is_colon = |index: usize| tokens.get(index).is_some_and(|token| is_punct(token, ':'));
    while is_colon(last + 1)
        && is_colon(last + 2)
        && let Some(TokenTree::Ident(ident)) = tokens.get(last + 3)
    {
        path.push(ident.to_string());
        last += 3;
    }
    (path, last)
}

/// Returns where a module's file may be, from the file and the path of its parent.
fn file_of(parent: &str, path: &[String], name: &str, attributes: &[Attribute]) -> Vec<String> {
    let folder = Path::new(parent).parent().unwrap_or(Path::new(""));
    for one in attributes.iter().filter(|one| one.path().is_ident("path")) {
        if let syn::Meta::NameValue(value) = &one.meta {
            let said = value.value.to_token_stream().to_string();
            return vec![
                folder
                    .join(said.trim_matches('"'))
                    .to_string_lossy()
                    .into_owned(),
            ];
        }
    }
    let stem = Path::new(parent)
        .file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let is_root = path.is_empty() || stem == "mod";
    let folder = if is_root {
        folder.to_path_buf()
    } else {
        folder.join(stem)
    };
    [format!("{name}.rs"), format!("{name}/mod.rs")]
        .iter()
        .map(|end| folder.join(end).to_string_lossy().into_owned())
        .collect()
}

fn only_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|one| {
        let said = one.meta.to_token_stream().to_string().replace(' ', "");
        said == "cfg(test)" || said == "test" || said.starts_with("cfg(all(test,")
    })
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(one) => &one.attrs,
        Item::Enum(one) => &one.attrs,
        Item::Fn(one) => &one.attrs,
        Item::Impl(one) => &one.attrs,
        Item::Macro(one) => &one.attrs,
        Item::Mod(one) => &one.attrs,
        Item::Static(one) => &one.attrs,
        Item::Struct(one) => &one.attrs,
        Item::Trait(one) => &one.attrs,
        Item::Type(one) => &one.attrs,
        Item::Use(one) => &one.attrs,
        _ => &[],
    }
}

fn name_of(item: &Item) -> Option<String> {
    let ident = match item {
        Item::Const(one) => &one.ident,
        Item::Enum(one) => &one.ident,
        Item::Fn(one) => &one.sig.ident,
        Item::Macro(one) => one.ident.as_ref()?,
        Item::Static(one) => &one.ident,
        Item::Struct(one) => &one.ident,
        Item::Trait(one) => &one.ident,
        Item::Type(one) => &one.ident,
        Item::Union(one) => &one.ident,
        _ => return None,
    };
    Some(ident.to_string())
}

/// Returns the sets of files that reach each other, by following arrows.
fn circles(arrows: &Arrows) -> Vec<BTreeSet<String>> {
    let reach = |from: &String| {
        let mut seen: BTreeSet<&String> = BTreeSet::new();
        let mut todo = vec![from];
        while let Some(at) = todo.pop() {
            for next in arrows.get(at).into_iter().flat_map(BTreeMap::keys) {
                if seen.insert(next) {
                    todo.push(next);
                }
            }
        }
        seen
    };
    let reached: BTreeMap<&String, BTreeSet<&String>> =
        arrows.keys().map(|file| (file, reach(file))).collect();
    let mut found: Vec<BTreeSet<String>> = Vec::new();
    for (file, seen) in &reached {
        if !seen.contains(file) || found.iter().any(|circle| circle.contains(*file)) {
            continue;
        }
        let together = seen
            .iter()
            .filter(|other| reached.get(**other).is_some_and(|back| back.contains(file)));
        found.push(together.map(|other| (*other).clone()).collect());
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The circles of crate `a` on the ground, whose files are given.
    fn faults(files: &[(&str, &str)]) -> Vec<String> {
        let name = |path: &str| format!("ground/a/src/{path}");
        let listed: Vec<String> = files.iter().map(|(path, _)| name(path)).collect();
        let read = |wanted: &str| {
            let found = files.iter().find(|(path, _)| name(path) == wanted);
            found.map(|(_, text)| (*text).to_owned())
        };
        check(&listed, &read)
            .into_iter()
            .map(|fault| fault.what)
            .collect()
    }

    const ROOT: (&str, &str) = ("lib.rs", "mod b; mod c; pub use b::B; pub use c::C;");

    #[test]
    fn arrows_one_way_are_silent() {
        let b = ("b.rs", "pub struct B;");
        assert_eq!(
            faults(&[ROOT, b, ("c.rs", "use crate::B; pub struct C(B);")]),
            [""; 0]
        );
        // A parent that only declares and re-exports is no part of a circle, though children name it.
        assert_eq!(
            faults(&[ROOT, b, ("c.rs", "pub struct C(super::B);")]),
            [""; 0]
        );
    }

    #[test]
    fn a_circle_of_uses_fires() {
        let b = ("b.rs", "use crate::c::C; pub struct B(C);");
        let said = faults(&[ROOT, b, ("c.rs", "use super::b; pub struct C(Box<b::B>);")]);
        assert_eq!(
            said,
            ["2 files name each other in a circle: b.rs names c.rs (C); c.rs names b.rs (b::B)"]
        );
    }

    #[test]
    fn a_path_in_code_or_in_a_macro_counts_and_one_of_tests_does_not() {
        let c = ("c.rs", "use crate::b::B; pub struct C(B);");
        let with = |b: &'static str| faults(&[ROOT, ("b.rs", b), c]).len();
        assert_eq!(
            with("pub struct B; fn f() { let _ = crate::c::C::new(); }"),
            1
        );
        assert_eq!(
            with("pub struct B; fn f() { assert!(crate::C::new()); }"),
            1
        );
        assert_eq!(with("pub struct B; fn f() { use crate::c; c::f(); }"), 1);
        assert_eq!(with("use super::*; pub struct B(C);"), 1);
        assert_eq!(
            with("pub struct B; #[cfg(test)] mod tests { use crate::C; }"),
            0
        );
        assert_eq!(
            with("pub struct B; impl B { #[cfg(test)] fn f(c: crate::C) {} fn g() {} }"),
            0
        );
        assert_eq!(with("pub struct B; impl B { pub(super) fn f() {} }"), 0);
        assert_eq!(with("pub struct B; fn f(c: u8) -> u8 { c.C() }"), 0);
    }

    #[test]
    fn a_parent_with_code_and_its_child_are_a_circle() {
        let root = ("lib.rs", "mod b;");
        let child = ("b/c.rs", "pub fn f() { super::g() }");
        assert_eq!(
            faults(&[root, ("b.rs", "mod c; pub fn g() { c::f() }"), child]).len(),
            1
        );
        assert_eq!(
            faults(&[root, ("b.rs", "mod c; pub use c::f; pub fn g() {}"), child]).len(),
            0
        );
    }

    #[test]
    fn an_arrow_to_a_floor_above_fires() {
        let said = |heaps: &'static str| {
            let read = move |file: &str| {
                let text = match file.strip_prefix("engines/alloc/src/")? {
                    "lib.rs" => "mod heaps; mod services;",
                    "heaps/mod.rs" => "pub mod free;",
                    "heaps/free.rs" => heaps,
                    "services/mod.rs" => "pub mod purger;",
                    "services/purger.rs" => "use crate::heaps::free::F; pub struct P;",
                    _ => return None,
                };
                Some(text.to_owned())
            };
            check(&["engines/alloc/src/lib.rs".to_owned()], &read)
        };
        assert!(said("pub struct F;").is_empty());
        let up = said("pub struct F; fn f() { let _ = crate::services::purger::P; }");
        assert!(up[0].what.contains("a floor above"), "{}", up[0].what);
    }
}
