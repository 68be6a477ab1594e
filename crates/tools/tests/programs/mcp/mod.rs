//! Tools of MCP servers, with real servers: small Python scripts, well-behaved and hostile, as child processes, and HTTP
//! servers on loopback. The official SDK as the other side is in `official.rs`.

mod calls;
mod cancels;
mod elicits;
mod hostile;
mod http;
mod lives;
mod login_host;
mod login_troubles;
mod logins;
mod oddities;
mod offers;
mod official;
mod one_transport;
mod revisions;
mod rounds;
mod session_host;
mod sessions;
mod starts;
mod support;
mod task_host;
mod tasks;
mod walls;
