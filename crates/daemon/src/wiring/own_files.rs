//! Belay's own files, and that none of them lies where the model's tools reach.
//!
//! File tools and commands may change whatever lies in the workspace. A settings file, a token file or the program of a
//! hook in there would be a way out of the sandbox, so such a configuration is refused before anything starts. Paths
//! are compared without links and by device and inode, so that links, bind mounts and hard links are seen through.

mod places;

use std::path::{Path, PathBuf};

use belay_store::StoreUrl;

use self::places::{Area, Route};
use super::mcp::{walls, workspace_of};
use super::store::Store;
use crate::environment::Environment;
use crate::exit::Failure;
use crate::paths::Paths;
use crate::settings::{Problem, Settings, expand, refused};

/// A file or directory of Belay's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Own {
    /// What it is, with its article: `the data directory`.
    what: String,
    path: PathBuf,
    /// Whether commands may not even read it.
    private: bool,
}

/// Refuses a workspace, or a directory shown to commands, that contains files of Belay's own.
///
/// # Errors
/// Each of them, by its path, with what to do (78).
pub(crate) fn keep_apart(settings: &Settings, env: &Environment, paths: &Paths) -> Result<(), Failure> {
    let problems = shared(settings, env, paths);
    if problems.is_empty() { Ok(()) } else { Err(refused(&problems)) }
}

/// The problems of [`keep_apart`]. Reads directories: of the workspace only where a file of ours has several names.
pub(crate) fn shared(settings: &Settings, env: &Environment, paths: &Paths) -> Vec<Problem> {
    let own = own(settings, env, paths);
    let workspace = Area::of(&workspace_of(settings, env, paths));
    let in_workspace = own.iter().filter(|own| workspace.reaches(&Route::of(&own.path))).map(|own| {
        let (what, path) = (&own.what, own.path.display());
        let said = format!(
            "{} contains {what}, {path}: file tools and commands could read or change it",
            workspace.path().display()
        );
        let advice = "set tools.workspace to a directory that holds nothing of Belay's (a subdirectory, for example), or \
                      move the file out of it; settings can be in ~/.config/belay/belay.toml";
        Problem::new("tools.workspace", said).hint(Some(advice.to_owned()))
    });
    in_workspace.chain(shown(settings, env, paths, &own, &workspace)).collect()
}

/// The directories of `tools.sandbox.show` that would show commands something private of ours.
fn shown(settings: &Settings, env: &Environment, paths: &Paths, own: &[Own], workspace: &Area) -> Vec<Problem> {
    let hide: Vec<Route> = walls(settings, env, paths).hide.iter().map(|path| Route::of(path)).collect();
    let data = Route::of(&paths.data);
    let mut problems = Vec::new();
    for place in &settings.tools.sandbox.show {
        let area = Area::of(place);
        let route = Route::of(place);
        let is_shown = |own: &&Own| {
            let private = Route::of(&own.path);
            // Of what is hidden and shown, the deeper path decides; for the same path it is hidden.
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

/// Everything of ours: what a start reads, runs or writes without a sandbox.
fn own(settings: &Settings, env: &Environment, paths: &Paths) -> Vec<Own> {
    let private = |what: &str, path: PathBuf| Own { what: what.to_owned(), path, private: true };
    let public = |what: String, path: PathBuf| Own { what, path, private: false };
    let mut own = vec![
        private("the data directory", paths.data.clone()),
        private("the key of the vault", paths.data.join("secret.key")),
        private("kept outputs", paths.data.join(super::programs::OUTPUTS)),
        private("the control socket", paths.control_socket.clone()),
    ];
    if let Ok(StoreUrl::Sqlite(path)) = Store::place(settings, paths, env) {
        own.push(private("the database", path));
    }
    own.extend(paths.settings.iter().chain(&paths.named).map(|file| private("a settings file", file.clone())));
    let history = settings.channels.stdin.history_file.as_deref();
    own.extend(history.map(|file| private("channels.stdin.history_file", expand(file, env))));
    own.extend(env.directory("CREDENTIALS_DIRECTORY").map(|dir| private("the credentials of the service", dir)));
    own.extend(secret_files(settings, env).into_iter().map(|(key, file)| private(&format!("the file of {key}"), file)));
    own.extend(std::env::current_exe().ok().map(|program| public("the program of Belay".to_owned(), program)));
    own.extend(settings.tools.sandbox.bwrap.clone().map(|program| public("tools.sandbox.bwrap".to_owned(), program)));
    for hook in &settings.hooks.0 {
        let named = |word: &str| format!("{word} of the hook {:?}, which runs outside the sandbox", hook.name);
        own.extend(files_of(&hook.command, env, None).into_iter().map(|file| public(named("a program or file"), file)));
        let audit = hook.audit.as_ref().map(|audit| expand(&audit.file, env));
        own.extend(audit.map(|file| public(format!("the audit file of the hook {:?}", hook.name), file)));
    }
    for (name, server) in settings.tools.mcp.iter().filter(|(_, server)| server.enabled && !server.sandbox) {
        let what = format!("a program or file of the MCP server {name:?}, which runs outside the sandbox");
        let directory = workspace_of(settings, env, paths);
        own.extend(files_of(&server.command, env, Some(&directory)).into_iter().map(|file| public(what.clone(), file)));
    }
    own
}

/// The files that secrets are read from, each with its key.
pub(super) fn secret_files(settings: &Settings, env: &Environment) -> Vec<(String, PathBuf)> {
    let (gateway, llm, telegram) = (&settings.gateway, &settings.llm, &settings.channels.telegram);
    let named = [
        ("gateway.token_file", Some(Path::new(&gateway.token_file))),
        ("gateway.operator_token_file", Some(Path::new(&gateway.operator_token_file))),
        ("gateway.webhook_secret_file", Some(Path::new(&gateway.webhook_secret_file))),
        ("llm.api_key_file", llm.api_key_file.as_deref()),
        ("channels.telegram.token_file", telegram.token_file.as_deref()),
        ("channels.telegram.secret_file", telegram.secret_file.as_deref()),
    ];
    let named = named.into_iter().filter_map(|(key, file)| Some((key.to_owned(), file?)));
    let further = llm.api_key_files.iter().map(|file| ("llm.api_key_files".to_owned(), file.as_path()));
    let fallbacks = llm.fallbacks.iter().enumerate();
    let fallbacks = fallbacks.filter_map(|(at, fallback)| {
        Some((format!("llm.fallbacks.{at}.api_key_file"), fallback.api_key_file.as_deref()?))
    });
    let servers = settings.tools.mcp.iter();
    let servers = servers
        .filter_map(|(name, server)| Some((format!("tools.mcp.{name}.token_file"), server.token_file.as_deref()?)));
    let files = named.chain(further).chain(fallbacks).chain(servers);
    files.filter(|(_, file)| !file.as_os_str().is_empty()).map(|(key, file)| (key, expand(file, env))).collect()
}

/// The program of a command line and the files among its arguments: what it runs may be in any of them. `directory` is
/// where it starts, unless that is the daemon's.
fn files_of(command: &[String], env: &Environment, directory: Option<&Path>) -> Vec<PathBuf> {
    let Some((program, arguments)) = command.split_first() else { return Vec::new() };
    let here = |word: &str| match directory {
        Some(directory) => directory.join(word),
        None => std::path::absolute(word).unwrap_or_else(|_| PathBuf::from(word)),
    };
    let search = env.raw("PATH").map(std::env::split_paths).into_iter().flatten();
    let program = if program.contains('/') {
        Some(here(program))
    } else {
        search.map(|directory| directory.join(program)).find(|path| path.is_file())
    };
    // An option may have its value joined on: `--require=./hook.js`.
    let values = |word: &'_ String| -> Vec<String> {
        let value = word.split_once('=').map(|(_, value)| value.to_owned());
        std::iter::once(word.clone()).chain(value).collect()
    };
    let files = arguments.iter().flat_map(values).map(|word| here(&word)).filter(|path| path.is_file());
    program.into_iter().chain(files).collect()
}

#[cfg(test)]
mod tests;
