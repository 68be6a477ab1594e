//! The settings of the daemon: their types, sources and problems, and the secrets that they name.
//!
//! **For**: [`load`] reads all layers of settings, and [`Secrets::find`](secrets::Secrets::find) the secrets. All problems are reported at
//! once, each with its origin. [`reloaded`] says which changes a running daemon takes. The types of the sections are those of the crates that
//! they configure.
//!
//! **Does not know**: what is built from the settings. It opens no store and no connection, and it is the only crate that reads
//! settings files.
//!
//! Reading order: `settings` (and `layers`, `merge`, `problem` below it) → [`secrets`] → `places` → `own_files` (no tool may reach
//! what a start reads or runs) → `stop_rules`.

mod args;
mod backup_config;
mod cluster_config;
mod own_files;
mod places;
pub mod secrets;
mod settings;
mod stop_rules;

pub use args::{CheckArgs, SettingsArgs};
pub use backup_config::BackupConfig;
pub use cluster_config::ClusterConfig;
pub use own_files::{own_files_problems, refuse_own_files};
pub use places::{OUTPUTS, sandbox_config, store_place, workspace_of};
pub use settings::{
    Changes, ChannelsConfig, Loaded, NOT_FINITE, Origins, Problem, Settings, as_json, descriptions, expand, load,
    problems_of_rules, refused, reloaded, show,
};
pub use stop_rules::stop_rules;
