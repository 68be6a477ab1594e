//! Sizes that one reader can hold: the fields of a struct, and the lines of a function.
//!
//! `larger.txt` lists what is larger today. The list may only shrink: an entry that is no longer true fails, and so does a larger
//! number. Code under `#[cfg(test)]` does not count.

use std::path::Path;

use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, Fields, ImplItemFn, Item, ItemFn, ItemStruct};

use super::circles::is_for_tests;

/// A struct or a function with its size.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Sized {
    pub(crate) name: String,
    pub(crate) size: usize,
}

/// The sizes in one file.
#[derive(Default)]
pub(crate) struct Sizes {
    /// Structs with the number of their fields.
    pub(crate) structs: Vec<Sized>,
    /// Functions with the number of their lines, signature and braces included. Attributes and comments above it are not.
    pub(crate) functions: Vec<Sized>,
    within: Vec<String>,
}

impl Sizes {
    /// Reads the sizes in the text of a file.
    pub(crate) fn of(path: &Path, text: &str) -> Self {
        let file = syn::parse_file(text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let mut sizes = Self::default();
        sizes.visit_file(&file);
        sizes
    }

    fn function(&mut self, name: String, first: usize, last: usize) {
        let name = self.within.last().map_or_else(|| name.clone(), |within| format!("{within}::{name}"));
        self.functions.push(Sized { name, size: last - first + 1 });
    }
}

/// An item that is larger than its limit today: its file, its name, and its size.
pub(crate) type Larger<'a> = (&'a str, &'a str, usize);

/// Reads the entries of a kind from `larger.txt`: `KIND FILE NAME SIZE`.
pub(crate) fn larger<'a>(text: &'a str, kind: &str) -> Vec<Larger<'a>> {
    let entry = |line: &'a str| match line.split(' ').collect::<Vec<_>>()[..] {
        [of, file, name, size] => (of == kind).then(|| (file, name, size.parse().expect("a size is a number"))),
        _ => panic!("larger.txt: {line:?} is not KIND FILE NAME SIZE"),
    };
    text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).filter_map(entry).collect()
}

/// Compares sizes with a limit and with the list of those that are larger today. Returns a line for each difference.
pub(crate) fn judge(found: &[(String, Sized)], limit: usize, larger: &[Larger<'_>]) -> Vec<String> {
    let known = |path: &str, name: &str| larger.iter().find(|(file, item, _)| *file == path && *item == name);
    let mut faults = Vec::new();
    for (path, Sized { name, size }) in found.iter().filter(|(_, item)| item.size > limit) {
        match known(path, name) {
            None => faults.push(format!("{path}: {name} has {size}, and {limit} is the limit")),
            Some((.., most)) if size > most => faults.push(format!("{path}: {name} has grown from {most} to {size}")),
            Some((.., most)) if size < most => {
                faults.push(format!("{path}: {name} has {size}: lower its entry of {most}"))
            }
            Some(_) => {}
        }
    }
    for (path, name, _) in larger {
        if !found.iter().any(|(file, item)| file == path && item.name == *name && item.size > limit) {
            faults.push(format!("{path}: {name} is within the limit or gone: remove its entry"));
        }
    }
    faults
}

impl<'ast> Visit<'ast> for Sizes {
    fn visit_item(&mut self, item: &'ast Item) {
        let (attributes, name): (&[Attribute], _) = match item {
            Item::Fn(item) => (&item.attrs, None),
            Item::Mod(item) => (&item.attrs, None),
            Item::Struct(item) => (&item.attrs, None),
            Item::Trait(item) => (&item.attrs, Some(item.ident.to_string())),
            Item::Impl(item) => (&item.attrs, of_type(&item.self_ty)),
            _ => (&[], None),
        };
        if is_for_tests(attributes) {
            return;
        }
        let is_within = name.is_some();
        self.within.extend(name);
        visit::visit_item(self, item);
        if is_within {
            self.within.pop();
        }
    }

    fn visit_item_struct(&mut self, item: &'ast ItemStruct) {
        if let Fields::Named(fields) = &item.fields {
            let size = fields.named.iter().filter(|field| !is_for_tests(&field.attrs)).count();
            self.structs.push(Sized { name: item.ident.to_string(), size });
        }
    }

    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        let last = item.block.brace_token.span.close().end().line;
        self.function(item.sig.ident.to_string(), item.sig.span().start().line, last);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        if is_for_tests(&item.attrs) {
            return;
        }
        let last = item.block.brace_token.span.close().end().line;
        self.function(item.sig.ident.to_string(), item.sig.span().start().line, last);
        visit::visit_impl_item_fn(self, item);
    }
}

fn of_type(of: &syn::Type) -> Option<String> {
    match of {
        syn::Type::Path(path) => path.path.segments.last().map(|segment| segment.ident.to_string()),
        _ => None,
    }
}

#[test]
fn sizes_are_counted_without_tests_and_comments_above() {
    let text = "struct A { a: u8, #[cfg(test)] b: u8, c: u8 }\n/// One.\n#[inline]\nfn one() {\n}\nimpl A {\n    fn two(\n        &self,\n    ) {\n    }\n}\n#[cfg(test)]\nmod tests { fn three() {} struct B { a: u8 } }\n";
    let sizes = Sizes::of(Path::new("a.rs"), text);
    let of = |name: &str, size| Sized { name: name.to_owned(), size };
    assert_eq!(sizes.structs, [of("A", 2)]);
    assert_eq!(sizes.functions, [of("one", 2), of("A::two", 4)]);
}

#[test]
fn a_list_of_larger_items_only_shrinks() {
    let of = |name: &str, size| ("f.rs".to_owned(), Sized { name: name.to_owned(), size });
    let found = [of("fits", 3), of("new", 4), of("same", 5), of("grown", 6), of("smaller", 4), of("done", 2)];
    let larger =
        [("f.rs", "same", 5), ("f.rs", "grown", 5), ("f.rs", "smaller", 5), ("f.rs", "done", 5), ("f.rs", "gone", 5)];
    assert_eq!(
        judge(&found, 3, &larger),
        [
            "f.rs: new has 4, and 3 is the limit",
            "f.rs: grown has grown from 5 to 6",
            "f.rs: smaller has 4: lower its entry of 5",
            "f.rs: done is within the limit or gone: remove its entry",
            "f.rs: gone is within the limit or gone: remove its entry",
        ]
    );
}
