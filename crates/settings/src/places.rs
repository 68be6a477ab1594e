//! The places that the settings name: the workspace, the store, the files of secrets, and what no command may see.

use std::path::{Path, PathBuf};

use belay_program::environment::Environment;
use belay_program::exit::{Exit, Failure};
use belay_program::paths::Paths;
use belay_store::{StoreUrl, parse_url};
use belay_tools::sandbox::SandboxConfig;

use crate::settings::{Settings, expand};

/// The directory of long outputs of tools, in the data directory.
pub const OUTPUTS: &str = "outputs";

/// The workspace: the directory of the file tools, in which programs of servers start.
pub fn workspace_of(settings: &Settings, env: &Environment, paths: &Paths) -> PathBuf {
    let configured = settings.tools.workspace.as_deref().map(|path| expand(path, env));
    configured.unwrap_or_else(|| paths.data.join("workspace"))
}

/// The settings of the sandbox. It also hides all paths of Belay's own that no command may see: data, sockets,
/// settings, secrets.
pub fn sandbox_config(settings: &Settings, env: &Environment, paths: &Paths) -> SandboxConfig {
    let mut sandbox_config = settings.tools.sandbox.clone();
    let parent = |path: &Path| path.parent().filter(|parent| *parent != Path::new("/")).map(Path::to_owned);
    sandbox_config.hide.push(paths.data.clone());
    sandbox_config.hide.extend(parent(&paths.control_socket));
    sandbox_config.hide.extend(paths.settings.iter().filter_map(|file| parent(file)));
    sandbox_config.hide.extend(env.directory("CREDENTIALS_DIRECTORY"));
    if let Ok(StoreUrl::Sqlite(path)) = store_place(settings, paths, env) {
        sandbox_config.hide.extend(parent(&path));
    }
    // Only the files themselves: their directories may contain files of others.
    sandbox_config.hide.extend(paths.named.iter().cloned());
    sandbox_config.hide.extend(secret_files(settings, env).into_iter().map(|(_, file)| file));
    sandbox_config.hide.retain(|place| place.is_absolute());
    sandbox_config
}

/// The location of the store in the settings.
///
/// # Errors
/// `store.url` is no address of a store (78).
pub fn store_place(settings: &Settings, paths: &Paths, env: &Environment) -> Result<StoreUrl, Failure> {
    match settings.store.url.as_deref().map(parse_url) {
        None => Ok(StoreUrl::Sqlite(paths.data.join("belay.db"))),
        Some(Ok(StoreUrl::Sqlite(path))) => Ok(StoreUrl::Sqlite(expand(&path, env))),
        Some(Ok(other)) => Ok(other),
        Some(Err(problem)) => Err(Failure::new(Exit::Refused, format!("store.url: {problem}"))),
    }
}

/// The files with secrets, each with its settings key.
pub(crate) fn secret_files(settings: &Settings, env: &Environment) -> Vec<(String, PathBuf)> {
    let (gateway, llm, channels) = (&settings.gateway, &settings.llm, &settings.channels);
    let telegram = &channels.telegram;
    let named = [
        ("gateway.token_file", Some(Path::new(&gateway.token_file))),
        ("gateway.operator_token_file", Some(Path::new(&gateway.operator_token_file))),
        ("gateway.webhook_secret_file", Some(Path::new(&gateway.webhook_secret_file))),
        ("llm.api_key_file", llm.api_key_file.as_deref()),
        ("channels.telegram.token_file", telegram.token_file.as_deref()),
        ("channels.telegram.secret_file", telegram.secret_file.as_deref()),
        ("channels.matrix.token_file", channels.matrix.token_file.as_deref()),
        ("channels.mail.password_file", channels.mail.password_file.as_deref()),
    ];
    let named = named.into_iter().filter_map(|(key, file)| Some((key.to_owned(), file?)));
    let fallbacks = llm.fallbacks.iter().enumerate();
    let fallbacks = fallbacks.filter_map(|(at, fallback)| {
        Some((format!("llm.fallbacks.{at}.api_key_file"), fallback.api_key_file.as_deref()?))
    });
    let servers = settings.tools.mcp.iter().flat_map(|(name, server)| {
        let client = server.oauth.as_ref().and_then(|oauth| oauth.client_secret_file.as_deref());
        let files = [("token_file", server.token_file.as_deref()), ("oauth.client_secret_file", client)];
        files.into_iter().filter_map(move |(key, file)| Some((format!("tools.mcp.{name}.{key}"), file?)))
    });
    let adapters = settings.channels.adapters.iter().filter_map(|(name, adapter)| {
        Some((format!("channels.adapters.{name}.token_file"), adapter.token_file.as_deref()?))
    });
    let store = match settings.store.url.as_deref().map(parse_url) {
        Some(Ok(StoreUrl::Postgres(url))) => url.passfile().map(Path::to_owned),
        _ => None,
    };
    let store = store.iter().map(|file| ("passfile of store.url".to_owned(), file.as_path()));
    let files = named.chain(fallbacks).chain(servers).chain(adapters).chain(store);
    files.filter(|(_, file)| !file.as_os_str().is_empty()).map(|(key, file)| (key, expand(file, env))).collect()
}
