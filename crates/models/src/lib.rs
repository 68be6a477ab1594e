//! Model providers. They turn a [`ModelRequest`](belay_protocol::ModelRequest) into bytes on the wire and the answer
//! into a [`ModelReply`](belay_protocol::ModelReply), with retries and fallback.
//!
//! **For**: `daemon`, which resolves an [`LlmConfig`] once and builds one provider from it.
//!
//! **Does not know**: the subject of the conversation, when a run ends, who reads it, or where settings and keys come
//! from (it reads neither the environment nor configuration files).
//!
//! Two wire formats carry nearly all traffic and have hand-written clients, `openai` and `anthropic`. A request is the
//! concatenation of the serialised forms that each message stores ([`WireCache`](belay_protocol::WireCache)), and an
//! answer is parsed into borrowed types. So turn 200 of a session costs as much as turn 1. Every other format uses one
//! library, in `genai`.
//!
//! Every call streams, with or without a reader. The total time of a call is not limited, because a long answer is not
//! a broken one. The time to connect and the silence are limited. The memory for the data of a server is bounded
//! (`bounds`). A call ends in an answer or a typed error, never in a panic.
//!
//! Reading order: `config` → `catalog` → `vision` → `thinking` → `formats` → `candidates` → `build` → `discover` and `probe` for
//! the start; `http` → `stream` → `sse` → `collect` → `wire` → `lenient` → `openai`, `anthropic`, `genai` for a call;
//! `failure` and `overflow` for its errors, and `circuit` → `choice` → `retry_budget` → `backend` → `fallback` for retries and
//! fallback. `service` → `transcription` and `embeddings` for the other routes.

#[cfg_attr(not(feature = "more-providers"), path = "no_adapter.rs")]
mod adapter;
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
mod embeddings;
mod error;
mod failure;
mod fallback;
mod formats;
#[cfg_attr(not(feature = "more-providers"), path = "no_genai.rs")]
mod genai;
mod http;
mod lenient;
#[cfg(test)]
mod oddities;
mod openai;
mod overflow;
mod price_list;
mod prices;
mod probe;
#[cfg(test)]
mod real_server;
mod refused_pictures;
mod refused_system;
pub mod rehearsal;
mod retry_budget;
mod service;
mod sse;
mod stream;
mod target;
#[cfg(test)]
mod testing;
mod thinking;
mod tracking_sink;
mod transcription;
mod vision;
mod wire;

pub use build::build;
pub use candidates::{CandidateConfig, candidates};
pub use catalog::{ProviderInfo, provider, providers};
pub use config::{EnvKeys, FallbackConfig, LlmConfig, PriceUsd};
pub use discover::{Resolved, resolve};
pub use embeddings::{DIMENSIONS_MAX, OpenAiEmbedder};
pub use error::ModelsError;
pub use http::http_client;
pub use price_list::PriceList;
pub use probe::{Offer, ProbeReport, has_key, lists_without_key, offered_models, probe};
pub use service::ServiceSettings;
pub use transcription::{OpenAiTranscriber, TranscriptionConfig};
pub use vision::Vision;
