//! Circles among the top-level modules of a crate: `a` imports `b`, and `b` imports `a`, directly or over others.
//!
//! A module that is part of a circle cannot be read, tested or moved without the others. The imports are read from the syntax:
//! `use` items, paths in code, and paths inside macros. Code under `#[cfg(test)]` does not count, nor do re-exports of the crate's
//! root, through which every module may be reached: there the module that defines the name counts.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, File, Item, UseTree, Visibility};

/// The root file of a crate as a module of its own: for code that stands in it.
const ROOT: &str = "lib";

/// Where one module names another for the first time: file and line.
type Place = String;

/// For each top-level module, the modules that it imports.
#[derive(Default)]
pub(crate) struct Imports {
    arrows: BTreeMap<String, BTreeMap<String, Place>>,
}

impl Imports {
    /// Reads a crate from the directory of its sources.
    pub(crate) fn of_crate(src: &Path) -> Self {
        let root = ["lib.rs", "main.rs"].map(|name| src.join(name)).into_iter().find(|path| path.exists());
        let root = root.expect("a crate has lib.rs or main.rs");
        let file = parse(&root);
        let names = Names::of_root(&file);
        let mut imports = Self::default();
        imports.read(&file, &root, src, &[], &names);
        imports
    }

    #[cfg(test)]
    fn of_arrows(arrows: &[(&str, &str)]) -> Self {
        let mut imports = Self::default();
        for (from, to) in arrows {
            imports.add(from, to, &format!("{from}.rs:1"));
        }
        imports
    }

    fn add(&mut self, from: &str, to: &str, place: &str) {
        if from != to {
            let targets = self.arrows.entry(from.to_owned()).or_default();
            targets.entry(to.to_owned()).or_insert_with(|| place.to_owned());
        }
    }

    fn read(&mut self, file: &File, path: &Path, directory: &Path, module: &[String], names: &Names) {
        let mut reader = Reader { module: module.to_vec(), names, found: Vec::new(), files: Vec::new() };
        reader.visit_file(file);
        let from = module.first().map_or(ROOT, String::as_str);
        for (to, line) in std::mem::take(&mut reader.found) {
            let short =
                path.ancestors().find(|above| above.ends_with("src")).and_then(|src| path.strip_prefix(src).ok());
            self.add(from, &to, &format!("{}:{line}", short.unwrap_or(path).display()));
        }
        for inner in reader.files {
            let stem = inner[module.len()..].iter().fold(directory.to_owned(), |at, name| at.join(name));
            let path = [stem.with_extension("rs"), stem.join("mod.rs")].into_iter().find(|path| path.exists());
            let path = path.unwrap_or_else(|| panic!("no file for the module {}", inner.join("::")));
            self.read(&parse(&path), &path, &stem, &inner, names);
        }
    }

    /// The modules that can be reached from one.
    fn reached(&self, from: &str) -> BTreeSet<&str> {
        let mut reached = BTreeSet::new();
        let mut open = vec![from];
        while let Some(at) = open.pop() {
            for to in self.arrows.get(at).into_iter().flatten().map(|(to, _)| to.as_str()) {
                if reached.insert(to) {
                    open.push(to);
                }
            }
        }
        reached
    }

    /// The sets of modules that reach one another, the largest first.
    pub(crate) fn circles(&self) -> Vec<BTreeSet<&str>> {
        let reach: BTreeMap<&str, BTreeSet<&str>> =
            self.arrows.keys().map(|module| (module.as_str(), self.reached(module))).collect();
        let mut circles: Vec<BTreeSet<&str>> = Vec::new();
        for (module, reached) in &reach {
            if !reached.contains(module) || circles.iter().any(|circle| circle.contains(module)) {
                continue;
            }
            let back = |other: &&str| reach.get(other).is_some_and(|reached| reached.contains(module));
            circles.push(reached.iter().copied().filter(|other| back(other)).collect());
        }
        circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
        circles
    }

    /// The shortest way around a circle, one arrow a line, with the place of each import.
    pub(crate) fn shortest_way_around(&self, circle: &BTreeSet<&str>) -> Vec<String> {
        let ways = circle.iter().filter_map(|start| self.way_back(start, circle));
        let shortest = ways.min_by_key(Vec::len).unwrap_or_default();
        let arrows = shortest.windows(2).map(|arrow| (arrow[0], arrow[1]));
        arrows.map(|(from, to)| format!("{from} -> {to} ({})", self.arrows[from][to])).collect()
    }

    fn way_back<'a>(&'a self, start: &'a str, circle: &BTreeSet<&str>) -> Option<Vec<&'a str>> {
        let mut open = VecDeque::from([vec![start]]);
        let mut seen = BTreeSet::new();
        while let Some(way) = open.pop_front() {
            let at = *way.last()?;
            for to in self.arrows.get(at)?.keys().filter(|to| circle.contains(to.as_str())) {
                let further = [way.clone(), vec![to.as_str()]].concat();
                if to == start {
                    return Some(further);
                }
                if seen.insert(to.as_str()) {
                    open.push_back(further);
                }
            }
        }
        None
    }
}

fn parse(path: &PathBuf) -> File {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// What a path that begins at the root of the crate leads to.
struct Names {
    modules: BTreeSet<String>,
    /// Names that the root re-exports, and the modules that define them.
    exported: BTreeMap<String, String>,
}

impl Names {
    fn of_root(file: &File) -> Self {
        let mut names = Self { modules: BTreeSet::new(), exported: BTreeMap::new() };
        for item in &file.items {
            match item {
                Item::Mod(module) => {
                    names.modules.insert(module.ident.to_string());
                }
                Item::Use(item) if is_re_export(&item.vis) => {
                    for (path, name) in leaves(&item.tree) {
                        let module = path.iter().find(|part| !matches!(part.as_str(), "crate" | "self"));
                        names.exported.extend(module.map(|module| (name, module.clone())));
                    }
                }
                _ => {}
            }
        }
        names
    }

    /// The top-level module of a path whose first part stands at the root of the crate.
    fn top_level(&self, path: &[String]) -> Option<String> {
        let first = path.first()?;
        if self.modules.contains(first) {
            return Some(first.clone());
        }
        Some(self.exported.get(first).cloned().unwrap_or_else(|| ROOT.to_owned()))
    }
}

fn is_re_export(visibility: &Visibility) -> bool {
    !matches!(visibility, Visibility::Inherited)
}

/// The paths of a `use` item, each with the name that it brings.
fn leaves(tree: &UseTree) -> Vec<(Vec<String>, String)> {
    let under = |name: &syn::Ident, below: Vec<(Vec<String>, String)>| {
        let name = name.to_string();
        below.into_iter().map(|(path, leaf)| ([vec![name.clone()], path].concat(), leaf)).collect()
    };
    match tree {
        UseTree::Path(path) => under(&path.ident, leaves(&path.tree)),
        UseTree::Name(name) => vec![(vec![name.ident.to_string()], name.ident.to_string())],
        UseTree::Rename(name) => vec![(vec![name.ident.to_string()], name.rename.to_string())],
        UseTree::Glob(_) => vec![(vec!["*".to_owned()], "*".to_owned())],
        UseTree::Group(group) => group.items.iter().flat_map(leaves).collect(),
    }
}

pub(crate) fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let list = attribute.meta.require_list().ok();
        list.is_some_and(|list| list.path.is_ident("cfg") && list.tokens.to_string() == "test")
    })
}

/// Collects what one file imports, and which files belong to it.
struct Reader<'a> {
    module: Vec<String>,
    names: &'a Names,
    /// Top-level modules with the line.
    found: Vec<(String, usize)>,
    /// Paths of the modules that stand in files of their own.
    files: Vec<Vec<String>>,
}

impl Reader<'_> {
    fn name(&mut self, path: &[String], line: usize) {
        let Some(first) = path.first() else { return };
        let from_root = match first.as_str() {
            "crate" => path[1..].to_vec(),
            "super" => {
                let up = path.iter().take_while(|part| *part == "super").count();
                let kept = self.module.len().saturating_sub(up);
                [&self.module[..kept], &path[up..]].concat()
            }
            // Names without a root lead to other crates, or to what stands in this module.
            _ => return,
        };
        if let Some(module) = self.names.top_level(&from_root) {
            self.found.push((module, line));
        }
    }

    fn tokens(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while at < tokens.len() {
            match &tokens[at] {
                TokenTree::Group(group) => self.tokens(group.stream()),
                TokenTree::Ident(ident) if ident == "crate" || ident == "super" => {
                    let line = ident.span().start().line;
                    let mut path = vec![ident.to_string()];
                    while let Some(TokenTree::Ident(next)) = tokens.get(at + 3)
                        && matches!(&tokens[at + 1], TokenTree::Punct(colon) if colon.as_char() == ':')
                        && matches!(&tokens[at + 2], TokenTree::Punct(colon) if colon.as_char() == ':')
                    {
                        path.push(next.to_string());
                        at += 3;
                    }
                    self.name(&path, line);
                }
                _ => {}
            }
            at += 1;
        }
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        let attributes = match item {
            Item::Const(item) => &item.attrs,
            Item::Enum(item) => &item.attrs,
            Item::Fn(item) => &item.attrs,
            Item::Impl(item) => &item.attrs,
            Item::Mod(item) => &item.attrs,
            Item::Static(item) => &item.attrs,
            Item::Struct(item) => &item.attrs,
            Item::Trait(item) => &item.attrs,
            Item::Type(item) => &item.attrs,
            Item::Use(item) => &item.attrs,
            _ => return visit::visit_item(self, item),
        };
        if !is_for_tests(attributes) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_for_tests(&item.attrs) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        self.module.push(item.ident.to_string());
        match &item.content {
            Some(_) => visit::visit_item_mod(self, item),
            None => self.files.push(self.module.clone()),
        }
        self.module.pop();
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if self.module.is_empty() && is_re_export(&item.vis) {
            return;
        }
        let line = item.use_token.span.start().line;
        for (path, _) in leaves(&item.tree) {
            self.name(&path, line);
        }
    }

    fn visit_vis_restricted(&mut self, _: &'ast syn::VisRestricted) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let parts: Vec<String> = path.segments.iter().map(|part| part.ident.to_string()).collect();
        let line = path.segments.first().map_or(0, |part| part.ident.span().start().line);
        self.name(&parts, line);
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        self.tokens(called.tokens.clone());
        visit::visit_macro(self, called);
    }
}

#[test]
fn a_circle_is_found_with_the_arrows_that_make_it() {
    let imports = Imports::of_arrows(&[("a", "b"), ("b", "c"), ("c", "b"), ("c", "d"), ("e", "a")]);
    let circles = imports.circles();
    assert_eq!(circles, [BTreeSet::from(["b", "c"])]);
    assert_eq!(imports.shortest_way_around(&circles[0]), ["b -> c (b.rs:1)", "c -> b (c.rs:1)"]);
    assert!(Imports::of_arrows(&[("a", "b"), ("b", "c"), ("a", "c")]).circles().is_empty());
}

#[test]
fn imports_are_read_from_uses_paths_and_macros_and_not_from_tests() {
    let root = "pub mod a; mod b; mod c; mod d; pub use c::Thing; use a::Own;";
    let text =
        "use crate::{b::X, Thing}; use super::d; fn f() { m!(crate::Own) } #[cfg(test)] mod tests { use crate::e; }";
    let names = Names::of_root(&syn::parse_file(root).expect("it parses"));
    let mut reader = Reader { module: vec!["a".to_owned()], names: &names, found: Vec::new(), files: Vec::new() };
    reader.visit_file(&syn::parse_file(text).expect("it parses"));
    let found: Vec<&str> = reader.found.iter().map(|(module, _)| module.as_str()).collect();
    assert_eq!(found, ["b", "c", "d", ROOT]);
}
