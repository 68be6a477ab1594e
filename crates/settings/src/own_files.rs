//! Checks that the model's tools cannot reach Belay's own files.
//!
//! File tools and commands may change everything in the workspace. A settings file, a token file or the program of a
//! hook in it would be a way out of the sandbox. So such a configuration is refused before anything starts. Paths are
//! compared after resolving links, and by device and inode, so links, bind mounts and hard links are detected. A path
//! counts even if nothing exists there yet.

mod command_line;
mod routes;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use belay_program::environment::Environment;
use belay_program::exit::Failure;
use belay_program::paths::Paths;
use belay_store::StoreUrl;
use belay_tools::mcp::McpServerConfig;

use self::command_line::{LOADING, Start, mentions};
use self::routes::{Area, Route};
use crate::places::{OUTPUTS, sandbox_config, secret_files, store_place, workspace_of};
use crate::settings::{Problem, Settings, expand, refused};

/// A file or directory of Belay's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Own {
    /// Its name with an article: `the data directory`.
    what: String,
    path: PathBuf,
    /// Whether commands may not even read it.
    private: bool,
    /// What to do, apart from choosing another workspace.
    remedy: &'static str,
}

/// The directories of the kernel. A file there is a process, a device or a setting of the machine.
const KERNEL_DIRECTORIES: [&str; 3] = ["/proc", "/sys", "/dev"];

/// The directory below `/dev` for files of programs, in memory.
const SHARED_MEMORY: &str = "/dev/shm";

/// Refuses a workspace, or a directory shown to commands, that contains files of Belay's own.
///
/// # Errors
/// Each of them by its path, with what to do (78).
pub fn refuse_own_files(settings: &Settings, env: &Environment, paths: &Paths) -> Result<(), Failure> {
    let problems = own_files_problems(settings, env, paths);
    if problems.is_empty() { Ok(()) } else { Err(refused(&problems)) }
}

/// The problems of [`refuse_own_files`]. Reads directories; of the workspace only if one of Belay's files has several hard
/// links.
pub fn own_files_problems(settings: &Settings, env: &Environment, paths: &Paths) -> Vec<Problem> {
    let workspace = Area::of(&workspace_of(settings, env, paths));
    let is_for_files = workspace.path().starts_with(SHARED_MEMORY);
    let in_kernel = |kernel: &&&str| workspace.path().starts_with(**kernel) && !is_for_files;
    if let Some(kernel) = KERNEL_DIRECTORIES.iter().find(in_kernel) {
        let said =
            format!("{} is in {kernel}, where the kernel shows itself and its devices", workspace.path().display());
        let advice = "set tools.workspace to a directory for files".to_owned();
        return vec![Problem::new("tools.workspace", said).hint(Some(advice))];
    }
    let own = own(settings, env, paths, &workspace);
    let in_workspace = own.iter().filter(|own| workspace.reaches(&Route::of(&own.path))).map(|own| {
        let (what, path) = (&own.what, own.path.display());
        let said = format!(
            "{} contains {what}, {path}: file tools and commands could read or change it",
            workspace.path().display()
        );
        let advice = format!(
            "set tools.workspace to a directory that holds nothing of Belay's (a subdirectory, for example), or {}",
            own.remedy
        );
        Problem::new("tools.workspace", said).hint(Some(advice))
    });
    in_workspace.chain(shown(settings, env, paths, &own, &workspace)).collect()
}

/// The directories of `tools.sandbox.show` that would show commands private files of Belay.
fn shown(settings: &Settings, env: &Environment, paths: &Paths, own: &[Own], workspace: &Area) -> Vec<Problem> {
    let hide: Vec<Route> = sandbox_config(settings, env, paths).hide.iter().map(|path| Route::of(path)).collect();
    let data = Route::of(&paths.data);
    let mut problems = Vec::new();
    for place in &settings.tools.sandbox.show {
        let area = Area::of(place);
        let route = Route::of(place);
        let is_shown = |own: &&Own| {
            let private = Route::of(&own.path);
            // If a path is both hidden and shown, the deeper rule decides; for the same path, hiding wins.
            let hidden = |hide: &Route| private.end().starts_with(hide.end()) && hide.end().starts_with(area.path());
            own.private && area.reaches(&private) && !hide.iter().any(hidden)
        };
        let of_data = route.end() != data.end() && route.end().starts_with(data.end()) && !workspace.reaches(&route);
        let what = match own.iter().find(is_shown) {
            Some(own) => format!("{}, {}", own.what, own.path.display()),
            None if of_data => format!("a part of the data directory, {}", paths.data.display()),
            None => continue,
        };
        let said = format!("{} shows commands {what}", place.display());
        problems.push(Problem::new("tools.sandbox.show", said).hint(Some("leave it out of the list".to_owned())));
    }
    problems
}

/// All of Belay's own files: those that a start reads, runs or writes without a sandbox.
fn own(settings: &Settings, env: &Environment, paths: &Paths, workspace: &Area) -> Vec<Own> {
    let remedy = "move the file out of it; settings can be in ~/.config/belay/belay.toml";
    let private = |what: &str, path: PathBuf| Own { what: what.to_owned(), path, private: true, remedy };
    let public = |what: String, path: PathBuf| Own { what, path, private: false, remedy };
    let mut own = vec![
        private("the data directory", paths.data.clone()),
        private("the key of the vault", paths.data.join("secret.key")),
        private("kept outputs", paths.data.join(OUTPUTS)),
        private("the control socket", paths.control_socket.clone()),
    ];
    if let Ok(StoreUrl::Sqlite(path)) = store_place(settings, paths, env) {
        own.push(private("the database", path));
    }
    own.extend(paths.settings.iter().chain(&paths.named).map(|file| private("a settings file", file.clone())));
    own.extend(env.directory("CREDENTIALS_DIRECTORY").map(|dir| private("the credentials of the service", dir)));
    own.extend(secret_files(settings, env).into_iter().map(|(key, file)| private(&format!("the file of {key}"), file)));
    own.extend(std::env::current_exe().ok().map(|program| public("the program of Belay".to_owned(), program)));
    own.extend(settings.tools.sandbox.bwrap.clone().map(|program| public("tools.sandbox.bwrap".to_owned(), program)));
    let audits = settings.hooks.0.iter().filter_map(|hook| Some((&hook.name, hook.audit.as_ref()?)));
    own.extend(
        audits.map(|(name, audit)| public(format!("the audit file of the hook {name:?}"), expand(&audit.file, env))),
    );
    own.extend(searched(env));
    own.extend(of_hooks(settings, env, workspace));
    own.extend(of_servers(settings, env, paths, workspace));
    own
}

/// The directories of PATH, in which the daemon finds programs that it runs itself: bubblewrap, container engines,
/// hooks.
fn searched(env: &Environment) -> Vec<Own> {
    let directories = env.raw("PATH").map(std::env::split_paths).into_iter().flatten();
    let remedy = "leave that directory out of the PATH that Belay is started with";
    let own = |path: PathBuf| Own { what: "a directory of PATH".to_owned(), path: here(&path), private: false, remedy };
    directories.map(own).collect()
}

/// A path relative to the daemon's working directory.
fn here(path: &Path) -> PathBuf {
    let current = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    current.join(path)
}

/// The files that the commands of hooks name, and their working directory.
fn of_hooks(settings: &Settings, env: &Environment, workspace: &Area) -> Vec<Own> {
    let start = Start { directory: here(Path::new("")), in_workspace: false, home: env.directory("HOME") };
    let mut own = Vec::new();
    for hook in settings.hooks.0.iter().filter(|hook| !hook.command.is_empty()) {
        let outside = format!("the hook {:?}, which runs outside the sandbox", hook.name);
        own.push(Own {
            what: format!("the directory that Belay was started in and that is the working directory of {outside}"),
            path: start.directory.clone(),
            private: false,
            remedy: "start Belay in another directory (WorkingDirectory= of a unit)",
        });
        let values =
            hook.env.iter().filter(|(name, _)| LOADING.contains(&name.as_str())).map(|(_, value)| value.clone());
        own.extend(named(&hook.command, values, &start, workspace, &format!("something that is named by {outside}")));
    }
    own
}

/// The files that the commands of MCP servers outside the sandbox name. These servers start in the workspace.
fn of_servers(settings: &Settings, env: &Environment, paths: &Paths, workspace: &Area) -> Vec<Own> {
    let start =
        Start { directory: workspace_of(settings, env, paths), in_workspace: true, home: env.directory("HOME") };
    let servers = settings.tools.mcp.iter().filter(|(_, server)| server.enabled && !server.sandbox);
    let of_server = |(name, server): (&String, &McpServerConfig)| {
        let what = format!("something that is named by the MCP server {name:?}, which runs outside the sandbox");
        let given =
            server.env.iter().filter(|(name, _)| LOADING.contains(&name.as_str())).map(|(_, value)| value.clone());
        let taken = server.env_from.iter().filter(|name| LOADING.contains(&name.as_str()));
        let taken = taken.filter_map(|name| env.text(name).map(ToOwned::to_owned));
        named(&server.command, given.chain(taken), &start, workspace, &what)
    };
    servers.flat_map(of_server).collect()
}

/// The paths in the workspace that a command line and values of variables name.
fn named(
    command: &[String],
    values: impl Iterator<Item = String>,
    start: &Start,
    workspace: &Area,
    what: &str,
) -> Vec<Own> {
    // A program without a slash is searched in PATH, which is checked separately.
    let program = command.first().filter(|program| program.contains('/')).map(|program| start.directory.join(program));
    let words: Vec<String> = command.iter().skip(1).cloned().chain(values).collect();
    let paths = program.into_iter().chain(words.iter().flat_map(|word| start.paths_in(word)));
    let mut paths: BTreeSet<PathBuf> = paths.filter(|path| workspace.reaches(&Route::of(path))).collect();
    if paths.is_empty() && words.iter().any(|word| mentions(word, workspace.path())) {
        paths.insert(workspace.path().to_owned());
    }
    let remedy = "move it out of the workspace and change the command";
    paths.into_iter().map(|path| Own { what: what.to_owned(), path, private: false, remedy }).collect()
}

#[cfg(test)]
mod tests;
