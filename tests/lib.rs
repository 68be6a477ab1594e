//! What scenarios share: the real binary as a child process, a scripted model server, a Bot API double and a person who uses it, and a WebSocket client.
//! What the programs that measure share is in [`measure`].
//!
//! **Does not know** any crate of the workspace but `protocol` and `testkit`: scenarios see what users see.

#[path = "support/bot_api.rs"]
pub mod bot_api;
#[path = "support/daemon.rs"]
pub mod daemon;
#[path = "measure/mod.rs"]
pub mod measure;
#[path = "support/model_server.rs"]
pub mod model_server;
#[path = "support/person.rs"]
pub mod person;
#[path = "support/services.rs"]
pub mod services;
#[path = "support/socket.rs"]
pub mod socket;
#[path = "support/terminal.rs"]
pub mod terminal;
#[path = "support/tmux.rs"]
pub mod tmux;
