//! `belay acp`: the running daemon as the agent of an editor, by the Agent Client Protocol (ACP) v1 over standard input and
//! output.
//!
//! **For**: [`serve`], which an editor starts as a child process.
//!
//! **Does not know**: a store, an agent, a model. It is a client of the public HTTP API, as a person at a terminal is. No type of the
//! protocol's crate leaves this one.
//!
//! Reading order: here → `requests` (who answers) → `endpoint` (what is open) → `sessions`, `prompt` → `follow` (one run), with `events` → `turn`
//! (events to updates, pure), with `tools`, `shown`, `plan` and `ending` → `permission` → `intake` (what a person has sent, pure) → `daemon`
//! (requests, with `trouble`) → `pipes` (lines).

mod daemon;
mod ending;
mod endpoint;
mod events;
mod follow;
mod intake;
mod keys;
mod link;
mod permission;
mod pipes;
mod place;
mod plan;
mod prompt;
mod requests;
mod sessions;
mod setting;
mod shown;
mod tools;
mod trouble;
mod turn;

use std::sync::Arc;

use agent_client_protocol::v1::Dispatch;
use agent_client_protocol::{Agent, Client, Handled, Lines, on_receive_dispatch, v1};
use belay_cli::args::AcpArgs;
use belay_program::environment::Environment;
use belay_program::exit::{Exit, Failure};
use belay_program::output::note;
use belay_program::signals::{OnHangup, SignalWatch};
use belay_protocol::CommandInfo;
use tokio_util::sync::CancellationToken;

use crate::endpoint::Endpoint;
use crate::pipes::Gate;

/// Serves one editor until its input ends or a signal comes. The runs of its open prompts are stopped then. `commands`: those of a
/// conversation, which the editor offers for completion.
///
/// # Errors
/// Signal handlers cannot be installed (70). A daemon that is not there is told to the editor, not by an exit code.
pub async fn serve(args: &AcpArgs, commands: Vec<CommandInfo>, env: &Environment) -> Result<Exit, Failure> {
    let signals = SignalWatch::install(OnHangup::End).map_err(|error| Failure::new(Exit::Internal, error))?;
    let (handle, interrupted) = (signals.handle(), CancellationToken::new());
    let work = async {
        let gate = Gate::new();
        let endpoint = Arc::new(Endpoint::new(args.clone(), env.clone(), commands));
        tokio::select! {
            () = converse(endpoint.clone(), gate.clone()) => {}
            () = interrupted.cancelled() => {}
        }
        gate.close(); // nobody reads any more, so nothing may wait for a reader
        endpoint.end().await;
        handle.close();
    };
    tokio::join!(work, signals.watch(interrupted.clone()));
    Ok(Exit::Fine)
}

/// Talks to the editor until its input ends, or nobody reads the output.
async fn converse(endpoint: Arc<Endpoint>, gate: Gate) {
    let lines = Lines::new(pipes::output(gate.clone()), pipes::input(gate.clone()));
    let served = Agent
        .v1()
        .name("belay")
        .on_receive_dispatch(
            async move |message: Dispatch, connection: v1::ConnectionTo<Client>| {
                Ok(match message {
                    Dispatch::Request(request, responder) => {
                        endpoint.request(request.into_parts(), responder, &connection, &gate);
                        Handled::Yes
                    }
                    Dispatch::Notification(notification) => {
                        endpoint.notified(&notification.method, &notification.params);
                        Handled::Yes
                    }
                    // An answer to a question of ours, for the task that waits for it.
                    answer @ Dispatch::Response(..) => Handled::No { message: answer, retry: false },
                })
            },
            on_receive_dispatch!(),
        )
        .connect_to(lines)
        .await;
    if let Err(error) = served {
        note(&format!("the connection to the editor ended: {}", error.message));
    }
}
