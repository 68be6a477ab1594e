//! Builds MCP servers from settings, secrets, processes and the sandbox.

use std::sync::Arc;

use belay_program::clock::SystemClock;
use belay_program::environment::Environment;
use belay_program::exit::Failure;
use belay_program::paths::Paths;
use belay_protocol::Secret;
use belay_settings::secrets::{mcp_clients, mcp_tokens};
use belay_settings::{Problem, Settings, refused, workspace_of};
use belay_tools::mcp::{Mcp, McpSessions, Membership, Pins, ProcessTrees, Server, ServerInputs};

use crate::process_needs::ProcessNeeds;

/// The file with the approved descriptions of tools, in the data directory.
const PINS: &str = "mcp-pins.json";

/// The file with the tools that servers have listed before, in the data directory.
const REMEMBERED: &str = "mcp-tools.json";

/// The directory with the tokens of logins at servers, in the data directory.
const LOGINS: &str = "mcp-logins";

/// The approved descriptions of a daemon that uses its database alone.
pub(crate) fn own_pins(paths: &Paths) -> Pins {
    Pins::new(paths.data.join(PINS))
}

/// Builds all enabled servers, with the approved descriptions of their tools. Starts nothing.
///
/// # Errors
/// All named secrets of servers that are missing, and all unusable URLs.
pub fn servers(
    needs: &ProcessNeeds,
    settings: &Settings,
    env: &Environment,
    paths: &Paths,
    pins: Pins,
) -> Result<Mcp, Failure> {
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
    let starter = Arc::new(ProcessTrees::new(needs.processes.clone(), needs.sandbox.clone()));
    let membership = needs.membership.clone().map_or_else(Membership::default, Membership::by);
    let sessions = Arc::new(McpSessions::new(starter).of_node(membership));
    let mcp = Mcp::new(servers, pins, sessions, Arc::new(SystemClock));
    Ok(mcp.remembering(paths.data.join(REMEMBERED)).keeping_logins(&paths.data.join(LOGINS)))
}
