//! `belay mcp login` and `belay mcp logout`: logins at MCP servers, through the running daemon.
//!
//! The daemon has all secrets of a login. This command shows the address, takes the answer of the browser, and hands it on.

use std::process::Stdio;
use std::time::Duration;

use belay_program::environment::Environment;
use belay_program::exit::{Exit, Failure};
use belay_program::output::Output;
use serde_json::{Value as Json, json};
use tokio::net::TcpListener;
use tokio::process::Command;
use url::Url;

use super::login_answer::answer;
use super::{Client, number, text};
use crate::args::{LoginArgs, LogoutArgs};

/// Longest time in which the daemon asks the servers. Each of its requests has a limit of its own.
const SERVERS_LIMIT: Duration = Duration::from_secs(90);

/// The program that opens an address in the browser of the person.
const OPENER: &str = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };

/// Logs in.
pub async fn login(args: &LoginArgs, env: &Environment, out: Output<'_>) -> Result<Exit, Failure> {
    let client = Client::find(&args.client, env)?;
    let at = |port: u16| TcpListener::bind(("127.0.0.1", port));
    let listener = at(0).await.map_err(|error| Failure::new(Exit::OutOfReach, error))?;
    let port = listener.local_addr().map_err(|error| Failure::new(Exit::Internal, error))?.port();
    let path = ["api", "v1", "mcp", &args.server, "login"];
    let begun = client.post(&path, Some(&json!({ "port": port })), SERVERS_LIMIT).await?;
    let redirect = Url::parse(text(&begun, "/redirect_uri")).ok().and_then(|url| url.port());
    let listener = match redirect {
        // The settings name another port, which another program may use.
        Some(named) if named != port => at(named).await.ok(),
        _ => Some(listener),
    };
    show(args, &begun, listener.is_some(), out);
    let (answer, page) = answer(&begun, listener).await?;
    let path = ["api", "v1", "mcp", &args.server, "login", "finish"];
    let finished = client.post(&path, Some(&json!({ "answer": answer })), SERVERS_LIMIT).await;
    if let Some(page) = page {
        let words = match &finished {
            Ok(_) => "Belay is logged in. You can close this page.",
            Err(failure) => &failure.what,
        };
        page.show(words).await;
    }
    let login = finished?;
    if args.client.json {
        out.json(&login);
    } else {
        out.line(&format!("logged in at {}{}", args.server, details(&login)));
    }
    Ok(Exit::Fine)
}

/// Logs out.
pub async fn logout(args: &LogoutArgs, env: &Environment, out: Output<'_>) -> Result<Exit, Failure> {
    let path = ["api", "v1", "mcp", &args.server, "login"];
    let ended = Client::find(&args.client, env)?.delete(&path).await?;
    if args.client.json {
        out.json(&ended);
        return Ok(Exit::Fine);
    }
    let (server, why) = (&args.server, text(&ended, "/detail"));
    out.line(&match (ended["ended"] == true, ended["revoked"] == true) {
        (false, _) => format!("nobody is logged in at {server}"),
        (true, true) => format!("logged out at {server}: its tokens are revoked and deleted"),
        (true, false) => format!("logged out at {server}: its tokens are deleted, but not revoked ({why})"),
    });
    Ok(Exit::Fine)
}

/// Shows the address and what to do with it, and opens it if a person is at a terminal.
fn show(args: &LoginArgs, begun: &Json, listens: bool, out: Output<'_>) {
    let (url, redirect_uri) = (text(begun, "/url"), text(begun, "/redirect_uri"));
    if args.client.json {
        out.json(begun);
        return;
    }
    out.line(&format!("Open this address in a browser to log in at the MCP server {}:\n\n  {url}\n", args.server));
    let minutes = number(begun, "/expires_in_s") / 60;
    out.line(&match listens {
        true => format!(
            "Belay waits for {minutes} minutes. If the browser runs on another machine, it ends at an address of {redirect_uri} \
             that it cannot open: paste that whole address here."
        ),
        false => format!(
            "The port of {redirect_uri} is in use, so the browser ends at an address that it cannot open: paste that whole \
             address here, within {minutes} minutes."
        ),
    });
    if out.is_terminal() && !args.no_browser {
        // A machine without a browser has no such program, and the address is shown above.
        let _ = Command::new(OPENER).arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    }
}

/// The scopes of a login, and how long its token is good.
fn details(login: &Json) -> String {
    let scopes: Vec<&str> =
        login["scopes"].as_array().map(|scopes| scopes.iter().filter_map(Json::as_str).collect()).unwrap_or_default();
    let scopes = if scopes.is_empty() { String::new() } else { format!("; scopes: {}", scopes.join(" ")) };
    let until = match text(login, "/expires_at") {
        "" => String::new(),
        at => format!("; the token expires at {at}"),
    };
    let renewed = if login["renewable"] == true { ", and is renewed" } else { "; log in again when it ends" };
    format!("{scopes}{until}{renewed}")
}
