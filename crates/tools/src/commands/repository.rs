//! Examines the settings of a git repository. They can name programs that git starts by itself, and they are ordinary
//! files, which a model can write and an archive can contain.
//!
//! Known settings that only control storage and display are harmless. Any other setting, and settings that cannot be
//! read, require an approval for each command.

use std::io::Read as _;

use crate::digest;
use crate::workspace::Workspace;

/// Largest settings file that is read, in bytes. Usual files have a few hundred.
const MAX_CONFIG_BYTES: u64 = 64 * 1024;

/// Settings that start no program, by section: the listed keys, or every key if none is listed. Source: git-config(1).
const HARMLESS: [(&str, &[&str]); 12] = [
    (
        "core",
        &[
            "repositoryformatversion",
            "filemode",
            "bare",
            "logallrefupdates",
            "ignorecase",
            "precomposeunicode",
            "symlinks",
            "autocrlf",
            "eol",
            "safecrlf",
            "quotepath",
            "abbrev",
            "compression",
            "sharedrepository",
            "untrackedcache",
        ],
    ),
    ("user", &["name", "email"]),
    ("init", &["defaultbranch"]),
    ("remote", &["url", "pushurl", "fetch", "push", "tagopt", "prune", "mirror"]),
    ("branch", &["remote", "merge", "rebase", "pushremote", "description"]),
    ("push", &["default", "autosetupremote", "followtags"]),
    ("pull", &["rebase", "ff"]),
    ("fetch", &["prune", "prunetags"]),
    ("merge", &["ff", "conflictstyle"]),
    ("rebase", &["autosquash", "autostash"]),
    ("status", &["short", "branch", "showuntrackedfiles"]),
    ("advice", &[]),
];

/// The repository that a command would use.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Repository {
    /// The path of its settings, with a digest that identifies their content.
    pub(super) bound: (String, String),
    /// The reason to ask for each command in this repository, if there is one.
    pub(super) caution: Option<String>,
}

/// Finds the repository of a directory, from this directory up to the root of the workspace; `None` if there is none.
pub(super) fn around(workspace: &Workspace, directory: &str) -> Option<Repository> {
    let start = if directory == "." { "" } else { directory };
    let mut above = Some(start);
    while let Some(directory) = above {
        let git = if directory.is_empty() { ".git".to_owned() } else { format!("{directory}/.git") };
        if let Some(found) = at(workspace, &git) {
            return Some(found);
        }
        above = match directory.rsplit_once('/') {
            Some((parent, _)) => Some(parent),
            None if directory.is_empty() => None,
            None => Some(""),
        };
    }
    None
}

fn at(workspace: &Workspace, git: &str) -> Option<Repository> {
    // A file `.git` refers to a repository elsewhere.
    if let Ok(digest) = workspace.digest(git) {
        let caution = Some(format!("{git} is a file that leads to a repository elsewhere"));
        return Some(Repository { bound: (git.to_owned(), digest), caution });
    }
    workspace.directory(git).ok()?;
    // Source: gitrepository-layout(5), `commondir`: the settings are then those of another directory.
    let common = format!("{git}/commondir");
    if let Ok(digest) = workspace.digest(&common) {
        let caution = Some(format!("{common} is a file that leads to settings elsewhere"));
        return Some(Repository { bound: (common, digest), caution });
    }
    let config = format!("{git}/config");
    let Ok((file, _)) = workspace.file(&config) else {
        return Some(Repository { bound: (config, "does not exist".to_owned()), caution: None });
    };
    let mut text = Vec::new();
    let read = file.take(MAX_CONFIG_BYTES + 1).read_to_end(&mut text);
    let bound = (config, digest::of_bytes(&text));
    let caution = match String::from_utf8(text) {
        Ok(text) if read.is_ok() && text.len() as u64 <= MAX_CONFIG_BYTES => unusual_setting(&text),
        _ => Some("the repository's settings cannot be read".to_owned()),
    };
    Some(Repository { bound, caution })
}

/// The first setting that is not known to be harmless, as a sentence.
fn unusual_setting(text: &str) -> Option<String> {
    let unusual = |section: &str, line: &str| Some(format!("the repository sets {line:?} in its section [{section}]"));
    let mut section = String::new();
    for line in text.lines().map(str::trim) {
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(head) = line.strip_prefix('[') {
            // git also accepts a setting after the bracket. This is unusual and may hide the setting.
            let Some(name) = head.strip_suffix(']') else { return unusual(&section, line) };
            section = name.split([' ', '.', '"']).next().unwrap_or_default().to_ascii_lowercase();
            continue;
        }
        let key = line.split(['=', ' ', '\t']).next().unwrap_or_default().to_ascii_lowercase();
        let is_harmless =
            |(name, keys): &(&str, &[&str])| *name == section && (keys.is_empty() || keys.contains(&key.as_str()));
        // `ext::` and similar prefixes in an address start programs. A line that ends with a backslash continues on the
        // next line.
        if !HARMLESS.iter().any(is_harmless) || line.contains("::") || line.ends_with('\\') {
            return unusual(&section, line);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn settings_that_can_start_programs_are_seen() {
        let usual = "[core]\n\trepositoryformatversion = 0\n\tbare = false\n[remote \"origin\"]\n\turl = https://x.test/a.git\n\
            [branch \"main\"]\n\tremote = origin\n# note\n[user]\n\tname = A B\n";
        assert_eq!(unusual_setting(usual), None);
        for line in [
            "[core]\nfsmonitor = ./evil",
            "[core]\nsshCommand = ./evil",
            "[CORE]\nSSHCOMMAND=./evil",
            "[core]\npager = ./evil",
            "[core]\nhooksPath = evil",
            "[core]\nworktree = /",
            "[core] pager = ./evil",
            "[alias]\nst = !./evil",
            "[filter \"x\"]\nclean = ./evil",
            "[diff \"x\"]\ntextconv = ./evil",
            "[diff]\nexternal = ./evil",
            "[merge \"x\"]\ndriver = ./evil",
            "[include]\npath = ../evil",
            "[includeIf \"gitdir:/\"]\npath = ../evil",
            "[credential]\nhelper = !./evil",
            "[gpg]\nprogram = ./evil",
            "[remote \"origin\"]\nuploadpack = ./evil",
            "[remote \"origin\"]\nurl = ext::./evil",
            "[user]\nname = a \\\n[core",
            "[core",
            "[extensions]\nworktreeConfig = true",
        ] {
            let text = format!("{usual}{line}\n");
            assert!(unusual_setting(&text).is_some(), "{line:?}");
        }
    }

    #[test]
    fn the_nearest_repository_is_examined() {
        let dir = tempfile::tempdir().unwrap();
        let workspace = Workspace::open(dir.path()).unwrap();
        assert_eq!(around(&workspace, "."), None);
        std::fs::create_dir_all(dir.path().join(".git")).unwrap();
        std::fs::create_dir_all(dir.path().join("a/b/.git")).unwrap();
        std::fs::create_dir_all(dir.path().join("a/c")).unwrap();
        std::fs::create_dir_all(dir.path().join("a/d/.git")).unwrap();
        std::fs::write(dir.path().join("a/d/.git/config"), "[core]\n\tbare = false\n").unwrap();
        std::fs::write(dir.path().join("a/d/.git/commondir"), "../b\n").unwrap();
        std::fs::write(dir.path().join("a/b/.git/config"), "[alias]\nx = !y\n").unwrap();
        std::fs::write(dir.path().join("a/c/.git"), "gitdir: ../b/.git\n").unwrap();
        for (directory, place, cautious) in [
            (".", ".git/config", false),
            ("a", ".git/config", false),
            ("a/b", "a/b/.git/config", true),
            ("a/c", "a/c/.git", true),
            ("a/d", "a/d/.git/commondir", true),
        ] {
            let found = around(&workspace, directory).unwrap();
            assert_eq!((found.bound.0.as_str(), found.caution.is_some()), (place, cautious), "{directory}");
        }
    }
}
