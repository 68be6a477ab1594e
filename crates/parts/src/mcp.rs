//! Builds MCP servers from settings, secrets, processes and the sandbox.

use std::path::PathBuf;
use std::sync::Arc;

use belay_exec::{Processes, ProcessesConfig};
use belay_program::causes::words;
use belay_program::clock::SystemClock;
use belay_program::environment::Environment;
use belay_program::exit::{Exit, Failure};
use belay_program::paths::Paths;
use belay_protocol::Secret;
use belay_settings::secrets::{mcp_clients, mcp_tokens};
use belay_settings::{Problem, Settings, refused, sandbox_config, workspace_of};
use belay_tools::mcp::{Mcp, McpSessions, Membership, Pins, ProcessTrees, Server, ServerInputs};
use belay_tools::sandbox::LazySandbox;

/// The file with the approved descriptions of tools, in the data directory.
const PINS: &str = "mcp-pins.json";

/// The file with the tools that servers have listed before, in the data directory.
const REMEMBERED: &str = "mcp-tools.json";

/// The directory with the tokens of logins at servers, in the data directory.
const LOGINS: &str = "mcp-logins";

/// What MCP servers need from the daemon.
pub struct McpNeeds {
    /// The processes of all runs.
    pub processes: Arc<Processes>,
    /// The sandbox, not tested yet.
    pub sandbox: LazySandbox,
    /// Whether this node may act for its runs.
    pub membership: Membership,
}

/// The approved descriptions of a daemon that uses its database alone.
pub fn own_pins(paths: &Paths) -> Pins {
    Pins::new(paths.data.join(PINS))
}

impl McpNeeds {
    /// Prepares for starting programs. The workspace must exist when the sandbox is tested.
    ///
    /// # Errors
    /// This machine cannot manage processes.
    pub fn find(settings: &Settings, env: &Environment, paths: &Paths) -> Result<Self, Failure> {
        let internal = |error: &dyn std::error::Error| Failure::new(Exit::Internal, words(error));
        let launcher = std::env::current_exe().map_err(|error| internal(&error))?;
        let config = ProcessesConfig { launcher: Some(launcher.clone()), ..ProcessesConfig::default() };
        let processes = Processes::new(config).map_err(|error| internal(&error))?;
        let workspace = workspace_of(settings, env, paths);
        let sandbox = LazySandbox::new(&sandbox_config(settings, env, paths), &workspace, &launcher);
        Ok(Self { processes: Arc::new(processes), sandbox, membership: Membership::default() })
    }

    /// Remembers successful tests of the sandbox in this file, and uses a remembered one.
    pub fn remembering(self, file: PathBuf) -> Self {
        Self { sandbox: self.sandbox.remembered_in(file), ..self }
    }

    /// Builds all enabled servers, with the approved descriptions of their tools. Starts nothing.
    ///
    /// # Errors
    /// All named secrets of servers that are missing, and all unusable URLs.
    pub fn servers(&self, settings: &Settings, env: &Environment, paths: &Paths, pins: Pins) -> Result<Mcp, Failure> {
        let mut tokens = mcp_tokens(settings, env).map_err(|problems| refused(&problems))?;
        let mut clients = mcp_clients(settings, env).map_err(|problems| refused(&problems))?;
        let variable = |name: &str| env.raw(name).map(ToOwned::to_owned);
        let workspace = workspace_of(settings, env, paths);
        let mut server = |name: &String, config| {
            let (token, client_secret): (Option<Secret>, _) = (tokens.remove(name), clients.remove(name));
            let inputs = ServerInputs { directory: &workspace, variable: &variable, token, client_secret };
            Server::new(name, config, inputs)
        };
        let (mut servers, mut problems) = (Vec::new(), Vec::new());
        for (name, config) in settings.tools.mcp.iter().filter(|(_, config)| config.enabled) {
            match server(name, config) {
                Ok(server) => servers.push(server),
                Err(what) => {
                    let (key, what) = what.split_once(": ").unwrap_or(("tools.mcp", &what));
                    problems.push(Problem::new(key, what));
                }
            }
        }
        if !problems.is_empty() {
            return Err(refused(&problems));
        }
        let starter = Arc::new(ProcessTrees::new(self.processes.clone(), self.sandbox.clone()));
        let sessions = Arc::new(McpSessions::new(starter).of_node(self.membership.clone()));
        let mcp = Mcp::new(servers, pins, sessions, Arc::new(SystemClock));
        Ok(mcp.remembering(paths.data.join(REMEMBERED)).keeping_logins(&paths.data.join(LOGINS)))
    }
}
