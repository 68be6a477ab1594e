//! The outer loop: route, serialise, delegate, deliver.
//!
//! **For**: [`Agent::run`] merges the streams of all channels and routes each message to the lane of its session. A
//! lane commits it, runs its turn through the shared inner loop, and commits the end together with the reply, which
//! [`delivery`] then sends. The dispatcher acts on `/stop` and similar messages at once, also during a turn.
//!
//! **Does not know**: the network, SQL, processes, or any concrete channel, model, tool or store.
//!
//! Reading order: [`agent`] (the loop) → `assembly` (the services) → [`submission`] (parsing a message) → `dispatcher`
//! (routing), `pairing` (who is admitted) → `mail` (messages between dispatcher and lanes) → `lane` and `queued_run` →
//! `turn` → [`delivery`] → `titles` (behind idle conversations) → `lease_keeper` (the channels of a node). Questions: `asked`, `answering` and `in_place`. One
//! run is in `belay_run`, the kinds of run are in `belay_delegates`, jobs and routines in `belay_automation`. Rules
//! that change while the agent runs: [`reload`].

pub mod agent;
mod agent_services;
mod answering;
mod asked;
mod assembly;
mod claims;
mod compose;
mod context_report;
pub mod delivery;
mod dispatcher;
mod figures;
mod in_place;
mod lane;
mod lease_keeper;
mod leased_delivery;
mod mail;
mod model_choice;
mod notifier;
mod own_texts;
mod pairing;
mod queue;
mod queued_run;
pub mod reload;
mod reply_hooks;
mod second_person;
pub mod sessions;
mod stats;
mod stop_orders;
mod stopped_mail;
mod streaming;
pub mod submission;
mod title_writer;
mod titles;
mod troubles;
mod turn;
mod unsure;

pub use agent::{Agent, AgentExit, DRAIN_REST_S};
pub use reload::{Reloader, Rules};

pub use agent_services::{ClusterServices, StorePorts};
pub use assembly::AgentParts;
pub use lease_keeper::LeaseKeeper;
pub use leased_delivery::LeasedDelivery;
pub use own_texts::OwnTexts;
pub use pairing::Pairing;
pub use queue::QueueConfig;
pub use sessions::{ChannelReset, ResetMode, SessionsConfig};
pub use titles::TitlesConfig;
