//! A checked request to run a command: a valid argument vector with a program, and a directory.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use belay_protocol::{Approved, ToolFailure, Variable};
use belay_text::is_unclear;
use globset::{Glob, GlobSet, GlobSetBuilder};

use super::environment;
use super::program::{CommandPaths, Program};
use super::sealed::{SCRIPT_VARIABLE, digest_of, seal};
use crate::config::CommandsConfig;
use crate::digest;
use crate::error::ToolsError;
use crate::workspace::Workspace;
use belay_exec::{Launch, SealedProgram, Stdin};

/// Most arguments, including the program.
pub(super) const MAX_ARGUMENTS: usize = 512;
/// Most bytes of all arguments together. 16 KiB: a person has to read them.
pub(super) const MAX_ARGV_BYTES: usize = 16 * 1024;
/// Most files among the arguments that an approval is bound to.
const MAX_BOUND_FILES: usize = 64;

/// Checks calls and builds the processes that they start.
#[derive(Debug)]
pub(super) struct CommandRequests {
    pub(super) paths: CommandPaths,
    allow: GlobSet,
    deny: GlobSet,
    env: Vec<(OsString, OsString)>,
}

/// A checked command, ready to run.
#[derive(Debug)]
pub(super) struct CommandRequest {
    /// The arguments as given; the program is the first.
    pub(super) argv: Vec<String>,
    pub(super) program: Program,
    /// The working directory, relative to the root of the workspace; `.` is the root.
    pub(super) directory: String,
    /// The working directory as an absolute path.
    real_directory: PathBuf,
}

impl CommandRequests {
    /// # Errors
    /// A directory of programs lies in the workspace, where the model could write programs.
    pub(super) fn new(
        workspace: Arc<Workspace>,
        config: &CommandsConfig,
        view: Option<&Path>,
    ) -> Result<Self, ToolsError> {
        for path in &config.path {
            let real = std::fs::canonicalize(path).unwrap_or_else(|_| path.clone());
            if real.starts_with(workspace.path()) {
                return Err(ToolsError::ProgramsInWorkspace { path: path.clone() });
            }
        }
        let view = view.unwrap_or(workspace.path()).to_owned();
        let env = environment::of(config);
        let paths = CommandPaths { workspace, path: config.path.clone(), view };
        Ok(Self { paths, allow: globs("allow", &config.allow)?, deny: globs("deny", &config.deny)?, env })
    }

    /// Checks a call. Reads directories; call it on the blocking pool.
    ///
    /// # Errors
    /// The problem with the call, for the model.
    pub(super) fn read(&self, argv: Vec<String>, directory: Option<&str>) -> Result<CommandRequest, ToolFailure> {
        check(&argv)?;
        let real_directory = self.paths.workspace.directory(directory.unwrap_or("."))?;
        let below = real_directory.strip_prefix(self.paths.workspace.path()).ok().and_then(Path::to_str);
        let Some(below) = below else {
            return Err(ToolFailure::failed("The workspace has moved, or the directory's name is not UTF-8."));
        };
        let directory = if below.is_empty() { ".".to_owned() } else { below.to_owned() };
        let program = self.paths.program(&argv[0], &directory)?;
        self.permit(&program)?;
        Ok(CommandRequest { argv, program, directory, real_directory })
    }

    /// Applies the operator's lists of allowed and denied programs.
    fn permit(&self, program: &Program) -> Result<(), ToolFailure> {
        let path = program.path();
        let listed = |globs: &GlobSet| globs.is_match(path) || program.names().iter().any(|name| globs.is_match(name));
        let name = path.display();
        if listed(&self.deny) {
            return Err(ToolFailure::Denied(format!("The operator does not allow {name} (tools.commands.deny).")));
        }
        if !listed(&self.allow) {
            return Err(ToolFailure::Denied(format!(
                "{name} is not among the programs that the operator allows (tools.commands.allow)."
            )));
        }
        Ok(())
    }

    /// The approved copy of the program, if the program lies in the workspace and a person was asked. Blocks.
    ///
    /// # Errors
    /// The program has changed since the approval, or it cannot be protected against changes.
    pub(super) fn sealed(
        &self,
        request: &CommandRequest,
        approved: Option<&Approved>,
    ) -> Result<Option<SealedProgram>, ToolFailure> {
        match (&request.program, approved) {
            (Program::Inside(path), Some(approved)) => seal(&self.paths.workspace, path, approved).map(Some),
            _ => Ok(None),
        }
    }

    /// Describes the process to start, with these additional variables. `sealed` replaces the program's file.
    pub(super) fn launch(
        &self,
        request: &CommandRequest,
        stdin: Stdin,
        variables: &[Variable],
        sealed: Option<SealedProgram>,
    ) -> Launch {
        let program = match &request.program {
            // The path of the program as the command sees it.
            Program::Inside(path) => self.paths.view.join(path),
            other => other.path().to_owned(),
        };
        let mut env = environment::with(&self.env, variables);
        if sealed.is_some() {
            env.retain(|(name, _)| name != SCRIPT_VARIABLE);
            env.push((SCRIPT_VARIABLE.into(), program.clone().into()));
        }
        Launch {
            program: program.into(),
            args: request.argv[1..].iter().map(OsString::from).collect(),
            env,
            directory: request.real_directory.clone(),
            stdin,
            isolated: false,
            sealed,
        }
    }

    /// A digest of the environment.
    pub(super) fn environment_digest(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        for (name, value) in &self.env {
            for part in [name, value] {
                hasher.update(part.as_encoded_bytes());
                hasher.update(&[0]);
            }
        }
        hasher.finalize().to_hex().to_string()
    }

    /// The workspace files among the program and its arguments, each with a digest that identifies its content. A
    /// script is one of them.
    ///
    /// # Errors
    /// Why an approval cannot be bound to all of them, as the end of a sentence. An approval that is bound to only some
    /// of them would allow any later content of the others.
    pub(super) fn files(&self, request: &CommandRequest) -> Result<Vec<(String, String)>, String> {
        let named = request.argv[1..].iter().flat_map(|word| {
            let value = word.split_once('=').map(|(_, value)| value);
            std::iter::once(word.as_str()).chain(value)
        });
        let inside = named.filter_map(|path| self.paths.inside(path, &request.directory));
        let mut files: Vec<(String, String)> = Vec::new();
        if let Program::Inside(path) = &request.program {
            files.push((path.clone(), digest_of(&self.paths.workspace, path)?));
        }
        for path in inside {
            if files.iter().any(|(known, _)| *known == path) {
                continue;
            }
            let found = self.paths.workspace.fingerprint(&path).map_err(|failure| match failure {
                ToolFailure::Failed(text) => text.trim_end_matches('.').to_owned(),
                _ => format!("{path:?} could not be looked at"),
            })?;
            let Some(digest) = found else { continue };
            if files.len() == MAX_BOUND_FILES {
                return Err(format!(
                    "it names more than {MAX_BOUND_FILES} files of the workspace, which is more than an approval can \
                     cover; name fewer at a time, or their directory"
                ));
            }
            files.push((path, digest));
        }
        Ok(files)
    }
}

/// Refuses arguments that no program accepts, and characters that hide which program is meant.
fn check(argv: &[String]) -> Result<(), ToolFailure> {
    let failed = |text: String| Err(ToolFailure::failed(text));
    let Some(program) = argv.first().filter(|program| !program.is_empty()) else {
        return failed("argv is empty. Its first element is the program, such as [\"ls\", \"-l\"].".to_owned());
    };
    let bytes: usize = argv.iter().map(|word| word.len() + 1).sum();
    if argv.len() > MAX_ARGUMENTS || bytes > MAX_ARGV_BYTES {
        return failed(format!(
            "argv has {} elements and {bytes} bytes; at most {MAX_ARGUMENTS} and {MAX_ARGV_BYTES} are allowed. Put long \
             texts into a file or into stdin.",
            argv.len()
        ));
    }
    if argv.iter().any(|word| word.contains('\0')) {
        return failed("An argument cannot contain a zero byte.".to_owned());
    }
    if program.starts_with('-') {
        return failed(format!("{program:?} is an option, not a program. The first element of argv is the program."));
    }
    if program.chars().any(is_unclear) {
        return failed("The program's name has characters that cannot be seen.".to_owned());
    }
    if program.contains(char::is_whitespace) && argv.len() == 1 {
        return failed(format!(
            "{program:?} looks like a whole command line. No shell reads argv: give each word as an element of its own, \
             such as [\"ls\", \"-l\"]."
        ));
    }
    Ok(())
}

fn globs(key: &'static str, globs: &[String]) -> Result<GlobSet, ToolsError> {
    let failed = |source| ToolsError::Globs { key, source };
    let mut set = GlobSetBuilder::new();
    for glob in globs {
        set.add(Glob::new(glob).map_err(failed)?);
    }
    set.build().map_err(failed)
}

/// The standard input of a command, as a person sees it and as the approval is bound to it.
pub(super) fn input_shown(stdin: Option<&str>) -> String {
    match stdin {
        None => "nothing".to_owned(),
        // Shown in full, because the input of a program may be a program.
        Some(text) => format!("{text} ({})", digest::of_bytes(text.as_bytes())),
    }
}
