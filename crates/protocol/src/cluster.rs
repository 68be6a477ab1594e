//! Several daemons over one database: nodes, the work that one of them does at a time, orders and mail between them.
//!
//! A daemon that uses its database alone has no row among the nodes: every earlier owner has ended then.

use std::fmt;

use serde_json::Value;

use crate::ids::{BootId, ChannelId, MailId, OrderId, RunId, SessionKey};
use crate::time::UnixMillis;

/// A node, as other nodes and `belay nodes` see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRecord {
    /// Its start.
    pub boot: BootId,
    /// Its name (`cluster.name`), unique among the living nodes.
    pub name: String,
    /// The version of its program.
    pub version: String,
    /// The digest of the settings that all nodes must share.
    pub settings: String,
    /// The time of its start, by the clock of the database.
    pub started_at: UnixMillis,
    /// The end of its lease, by the clock of the database.
    pub lease_until: UnixMillis,
    /// Whether it accepts no new work.
    pub draining: bool,
    /// Its end; `None`: it lives.
    pub ended: Option<(UnixMillis, NodeEnd)>,
    /// The number of sessions whose lanes it owns.
    pub lanes: u64,
}

/// The kind of a node's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeEnd {
    /// It has released its work.
    Drain,
    /// Its lease ended without a renewal.
    Lease,
}

impl NodeEnd {
    /// The stored name.
    pub fn word(self) -> &'static str {
        match self {
            Self::Drain => "drain",
            Self::Lease => "lease",
        }
    }
}

/// The standing of a node, as far as the node itself knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeState {
    /// It may work.
    Member,
    /// No renewal of its lease was confirmed for a while: it begins nothing. It is a member again with the next confirmation.
    Silent,
    /// No renewal was confirmed for too long, or another node has ended it: it ends all its work. Final: only a new start,
    /// with another [`BootId`], is a member again.
    Lost,
}

/// Work that one node does at a time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LeasedWork {
    /// The polling and the sending of a channel.
    Channel(ChannelId),
    /// A task of the whole cluster.
    Task(ClusterTask),
}

/// A task of the whole cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClusterTask {
    /// Pruning, and other care of the database.
    Janitor,
}

impl ClusterTask {
    /// The stored name.
    pub fn word(self) -> &'static str {
        match self {
            Self::Janitor => "janitor",
        }
    }
}

impl fmt::Display for LeasedWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Channel(channel) => write!(f, "the channel {channel}"),
            Self::Task(task) => write!(f, "the task {}", task.word()),
        }
    }
}

/// Proof that a node does a leased work. It is valid until the node ends or releases it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkLease {
    /// The work.
    pub work: LeasedWork,
    /// The node.
    pub owner: BootId,
    /// Raised by one when another owner, or the same one after it gave the work up, claims it.
    pub epoch: u64,
}

/// A stop that applies to all nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct StopOrder {
    /// Its id.
    pub id: OrderId,
    /// The time. A run that comes from another owner is stopped only if it was accepted before.
    pub at: UnixMillis,
    /// What is to be stopped.
    pub target: OrderTarget,
    /// The cause, for the evidence of the ended runs: JSON.
    pub cause: Value,
    /// The node that was asked.
    pub source: BootId,
}

/// The target of a [`StopOrder`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OrderTarget {
    /// One run.
    Run(RunId),
    /// The running turn and the queue of a session.
    Session(SessionKey),
    /// All runs.
    All,
}

/// A message, a command or an answer for a lane that another node owns.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeMail {
    /// Its id.
    pub id: MailId,
    /// The session of the lane.
    pub session: SessionKey,
    /// The node that received it.
    pub source: BootId,
    /// The time at which it was received.
    pub at: UnixMillis,
    /// The run of a message. The store knows it as a queued run while the mail is open.
    pub run: Option<RunId>,
    /// The content: JSON.
    pub body: Value,
}

impl NodeMail {
    /// The beginning of the names of secrets of mail.
    const SECRET: &str = "node_mail:";

    /// The name under which the vault has the secret of mail until the mail is answered.
    #[must_use]
    pub fn secret_name(mail: MailId) -> String {
        format!("{}{mail}", Self::SECRET)
    }

    /// The mail whose secret has this name in the vault. `None`: it is another secret.
    #[must_use]
    pub fn of_secret(name: &str) -> Option<MailId> {
        name.strip_prefix(Self::SECRET)?.parse().ok()
    }
}

/// Open mail, as the owner of the lane reads it.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenMail {
    /// The mail.
    pub mail: NodeMail,
    /// Whether an earlier owner began to handle it and has ended: what it did is unknown.
    pub begun: bool,
}

/// What other nodes have changed. A hint: it may be lost, and comes at least once a second without a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Topic {
    /// Mail for lanes, or answers to it.
    Mail,
    /// Orders to stop, or their acknowledgements.
    Stops,
    /// Nodes have ended, or released lanes.
    Nodes,
    /// Messages wait for delivery.
    Outbox,
    /// Jobs were created or changed.
    Jobs,
    /// Routines were changed.
    Routines,
    /// Approval requests were asked or decided.
    Questions,
    /// Freezes began or ended.
    Freezes,
    /// People were admitted or removed.
    People,
    /// Circuit breakers of tools were changed.
    Tools,
    /// Browsers were signed out.
    SignIns,
}

impl Topic {
    /// Every topic.
    pub const ALL: [Self; 11] = [
        Self::Mail,
        Self::Stops,
        Self::Nodes,
        Self::Outbox,
        Self::Jobs,
        Self::Routines,
        Self::Questions,
        Self::Freezes,
        Self::People,
        Self::Tools,
        Self::SignIns,
    ];
}
