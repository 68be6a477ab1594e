//! Finds what the sandbox hides of the command line of a program: the program itself, its interpreter, and files that are
//! named in its arguments.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::mcp::program::Program;

/// Longest first line of a script that is read, in bytes.
///
/// Source: Linux, include/uapi/linux/binfmts.h, `BINPRM_BUF_SIZE`.
const FIRST_LINE: u64 = 256;

/// What the sandbox hides of a command line, as texts for the operator.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Hidden {
    /// The program: it cannot be started.
    pub(super) program: Option<String>,
    /// Something else that it may need.
    pub(super) other: Option<String>,
}

impl Hidden {
    /// `hides`: the hidden path of a file that exists and that the sandbox hides.
    pub(super) fn find(program: &Program, hides: impl Fn(&Path) -> Option<PathBuf>) -> Self {
        let Some((name, arguments)) = program.argv.split_first() else { return Self::default() };
        let file = match seen(program, name, &hides) {
            Ok(file) => file,
            Err(hidden) => return Self { program: Some(text(&hidden)), other: None },
        };
        let interpreter = file.and_then(|file| interpreter(program, &file, &hides));
        let argument = |argument: &String| {
            let value = argument.split_once('=').map_or(argument.as_str(), |(_, value)| value);
            let path = Path::new(value);
            if path.is_absolute() { hides(path) } else { None }
        };
        let other = interpreter.or_else(|| arguments.iter().find_map(argument));
        Self { program: None, other: other.as_deref().map(text) }
    }
}

fn text(path: &Path) -> String {
    let directory = path.parent().unwrap_or(path);
    format!(
        "{} exists, but the sandbox hides it: name {} in tools.sandbox.show, or install it where the sandbox shows it",
        path.display(),
        directory.display()
    )
}

/// The file of a program that can be seen inside; `None`: there is no such file.
///
/// # Errors
/// The first file of that name, if all of them are hidden.
fn seen(program: &Program, name: &str, hides: &impl Fn(&Path) -> Option<PathBuf>) -> Result<Option<PathBuf>, PathBuf> {
    if name.contains('/') {
        let path = program.directory.join(name);
        // The workspace, to which a relative path belongs, is visible at another path.
        let looked_at = if Path::new(name).is_absolute() {
            Some(path.clone())
        } else {
            std::fs::canonicalize(&path).ok().filter(|real| !real.starts_with(&program.directory))
        };
        return looked_at.and_then(|path| hides(&path)).map_or(Ok(Some(path)), Err);
    }
    let path = program.env.iter().find(|(key, _)| key == "PATH").map(|(_, path)| path);
    let files = path.into_iter().flat_map(std::env::split_paths).map(|directory| directory.join(name));
    let files: Vec<PathBuf> = files.filter(|file| file.is_file()).collect();
    match files.iter().find(|file| hides(file).is_none()) {
        Some(file) => Ok(Some(file.clone())),
        None => files.first().and_then(|file| hides(file)).map_or(Ok(None), Err),
    }
}

/// The interpreter of a script, if it is hidden.
fn interpreter(program: &Program, script: &Path, hides: &impl Fn(&Path) -> Option<PathBuf>) -> Option<PathBuf> {
    let mut first = Vec::new();
    File::open(script).ok()?.take(FIRST_LINE).read_to_end(&mut first).ok()?;
    let first = String::from_utf8_lossy(first.strip_prefix(b"#!")?).into_owned();
    let mut words = first.lines().next()?.split_whitespace();
    let interpreter = Path::new(words.next()?);
    if interpreter.ends_with("env") {
        let named = words.find(|word| !word.starts_with('-') && !word.contains('='))?;
        return seen(program, named, hides).err();
    }
    hides(interpreter)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_hidden_program_interpreter_or_argument_is_named() {
        let root = tempfile::tempdir().unwrap();
        let base = std::fs::canonicalize(root.path()).unwrap();
        let write = |path: &str, text: &str| {
            let path = base.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let at = |path: &str| base.join(path).to_str().unwrap().to_owned();
        write("home/bin/npx", "#!/usr/bin/env node");
        write("home/bin/node", "");
        write("bin/tool", "");
        write("home/bin/tool", "");
        write("bin/script", "#!/usr/bin/env -S A=b node --x");
        write("bin/direct", &format!("#! {} -u", at("home/bin/node")));
        write("home/server.js", "");
        write("home/work/server", "");
        let hides = |path: &Path| (path.exists() && path.starts_with(base.join("home"))).then(|| path.to_owned());
        let find = |argv: &[&str]| {
            let path = std::env::join_paths([base.join("home/bin"), base.join("bin")]).unwrap();
            let program = Program {
                argv: argv.iter().map(|word| (*word).to_owned()).collect(),
                env: vec![("PATH".into(), path)],
                directory: base.join("home/work"),
                sandbox: true,
                network: false,
            };
            let hidden = Hidden::find(&program, hides);
            let first = |text: Option<String>| text.map(|text| text.split(" exists").next().unwrap().to_owned());
            (first(hidden.program), first(hidden.other))
        };
        let (node, server) = (at("home/bin/node"), at("home/server.js"));
        assert_eq!(find(&["npx"]), (Some(at("home/bin/npx")), None));
        assert_eq!(find(&[&node]), (Some(node.clone()), None));
        assert_eq!(find(&["tool", "x"]), (None, None));
        assert_eq!(find(&["./server"]), (None, None));
        assert_eq!(find(&["script"]), (None, Some(node.clone())));
        assert_eq!(find(&["direct"]), (None, Some(node)));
        assert_eq!(find(&["tool", "--x", &server]), (None, Some(server.clone())));
        assert_eq!(find(&["tool", &format!("--file={server}")]), (None, Some(server)));
        assert_eq!(find(&["tool", "/nowhere"]), (None, None));
        assert_eq!(find(&["nothing"]), (None, None));
    }
}
