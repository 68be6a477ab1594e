//! Model providers: everything that turns a [`ModelRequest`](belay_protocol::ModelRequest) into bytes on a wire and an
//! answer back into a [`ModelReply`](belay_protocol::ModelReply), and what tries again and falls back.
//!
//! **For**: `daemon`, which resolves a [`LlmConfig`] once and builds one provider from it.
//!
//! **Does not know**: what the conversation is about, when a run ends, who watches it, or where settings and keys come
//! from (it reads neither the environment nor configuration files).
//!
//! Two wire formats carry nearly all traffic and are written by hand, `openai` and `anthropic`: a request is the
//! concatenation of forms that each message keeps ([`WireCache`](belay_protocol::WireCache)), and an answer is read
//! with borrowed types, so that turn 200 of a session costs what turn 1 did. Every other format goes through one
//! library, in `genai`.
//!
//! Every call streams, watched or not. There is no limit on the whole time of a call, since a long answer is not a
//! broken one: there is one for connecting and one for silence. Whatever a server sends is bounded in memory
//! (`bounds`) and ends in an answer or a typed error, never in a panic.
//!
//! Reading order: `config` → `catalog` → `vision` → `thinking` → `candidates` → `build` → `discover` and `probe` for what
//! happens at the start; `http` → `stream` → `sse` → `collect` → `wire` → `lenient` → `openai`, `anthropic`, `genai` for a call;
//! `failure` for how it goes wrong, and `circuit` → `choice` → `retry_budget` → `backend` → `fallback` for what is done
//! about it.

mod anthropic;
mod backend;
mod base_url;
mod bounds;
mod build;
mod candidates;
mod catalog;
mod choice;
mod circuit;
mod collect;
mod config;
mod discover;
mod error;
mod failure;
mod fallback;
mod genai;
mod http;
mod lenient;
mod listening;
#[cfg(test)]
mod oddities;
mod openai;
mod price_list;
mod prices;
mod probe;
#[cfg(test)]
mod real_server;
pub mod rehearsal;
mod retry_budget;
mod sse;
mod stream;
mod target;
#[cfg(test)]
mod testing;
mod thinking;
mod vision;
mod wire;

pub use build::build;
pub use candidates::{CandidateConfig, candidates};
pub use config::{EnvKeys, FallbackConfig, LlmConfig};
pub use discover::{Resolved, resolve};
pub use error::ModelsError;
pub use http::http_client;
pub use price_list::PriceList;
pub use probe::{ProbeReport, probe};
pub use vision::Vision;
