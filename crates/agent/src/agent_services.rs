//! Services shared by the outer loop, its lanes and their turns: the ports, and values built from them. Immutable after
//! the start of the agent, except for values that a reload swaps.

use std::sync::Arc;

use arc_swap::ArcSwap;
use belay_protocol::callback::CallbackClient;
use belay_protocol::{
    ApprovalStore, Archive, BlobStore, BootId, BudgetSlices, ChildQuestionStore, ClientCallStore, Clock, ClusterStore,
    ContextSource, ConversationReader, DispatcherStore, EventLog, FreezeStore, Hints, Inbound, InputReader,
    JobAttempts, JobReader, JobStore, JournalStore, LaneStore, MailStore, NoteArchive, NoteStore, OrderStore, Outbox,
    OutgoingFiles, OutputKeeper, PeopleStore, PromptNotes, RoutineReader, RoutineRunStore, RoutineSchedule,
    RoutineStore, RunProcesses, RunReader, RunStore, SecretVault, SessionReader, SkillStore, SpendLedger, StoreHealth,
    TitleStore, ToolSwitches, TroubleSource, UnixMillis,
};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::asked::WorkQuestions;
use crate::in_place::PersonAsker;
use crate::leased_delivery::LeasedDelivery;
use crate::pairing::Pairing;
use crate::queue::QueueConfig;
use crate::sessions::Resets;
use crate::titles::Titles;
use belay_automation::jobs::JobService;
use belay_automation::routines::RoutineService;
use belay_delegates::plan::PlanKit;
use belay_delegates::subagent::ChildServices;
use belay_run::approvals::ApprovalsConfig;
use belay_run::chunking::StreamingConfig;
use belay_run::hooks::HookChain;
use belay_run::prompt::BriefingSource;
use belay_run::rights::Channels;
use belay_run::services::RunServices;

/// Number of sessions that may wait with a task for their next turn. 128: twice the default limit of turns, so that a
/// session is ready when a turn ends. Each may hold a conversation and a message in memory.
pub(crate) const WAIT_PERMITS: usize = 128;

/// The ports of persistence. Each part of the agent receives those that it uses.
#[derive(Clone)]
pub struct StorePorts {
    /// Writes sessions and their threads.
    pub lanes: Arc<dyn LaneStore>,
    /// Begins, pauses and ends runs.
    pub run_store: Arc<dyn RunStore>,
    /// Writes the progress of runs.
    pub journal: Arc<dyn JournalStore>,
    /// Reads accepted messages.
    pub inputs: Arc<dyn InputReader>,
    /// Keeps what the dispatcher knows after a restart.
    pub dispatcher: Arc<dyn DispatcherStore>,
    /// Reads runs.
    pub runs: Arc<dyn RunReader>,
    /// Reads sessions.
    pub sessions: Arc<dyn SessionReader>,
    /// Reads conversations.
    pub conversations: Arc<dyn ConversationReader>,
    /// Tells whether the store works.
    pub health: Arc<dyn StoreHealth>,
    /// Searches and deletes sessions.
    pub archive: Arc<dyn Archive>,
    /// The log of events.
    pub events: Arc<dyn EventLog>,
    /// Replies that are not delivered yet.
    pub outbox: Arc<dyn Outbox>,
    /// Notes, for the tools of the model.
    pub notes: Arc<dyn NoteStore>,
    /// Notes, for people.
    pub note_archive: Arc<dyn NoteArchive>,
    /// Notes, for prompts.
    pub prompt_notes: Arc<dyn PromptNotes>,
    /// Money.
    pub spend: Arc<dyn SpendLedger>,
    /// Approval requests and grants.
    pub approvals: Arc<dyn ApprovalStore>,
    /// Approval requests of runs that other runs have started.
    pub child_questions: Arc<dyn ChildQuestionStore>,
    /// Answers of clients to calls that they carry out.
    pub client_calls: Arc<dyn ClientCallStore>,
    /// Stores secrets that people entered.
    pub vault: Arc<dyn SecretVault>,
    /// Reads jobs.
    pub jobs: Arc<dyn JobReader>,
    /// Makes and changes jobs.
    pub job_store: Arc<dyn JobStore>,
    /// Begins attempts of jobs.
    pub attempts: Arc<dyn JobAttempts>,
    /// Reads routines and routine runs.
    pub routines: Arc<dyn RoutineReader>,
    /// Changes routines.
    pub routine_store: Arc<dyn RoutineStore>,
    /// The scheduled times of routines.
    pub schedule: Arc<dyn RoutineSchedule>,
    /// Claims and settles routine runs.
    pub routine_run_store: Arc<dyn RoutineRunStore>,
    /// Tools that are disabled.
    pub switches: Arc<dyn ToolSwitches>,
    /// The freezes in force.
    pub freezes: Arc<dyn FreezeStore>,
    /// The people whom pairing has admitted.
    pub people: Arc<dyn PeopleStore>,
    /// The titles of conversations.
    pub titles: Arc<dyn TitleStore>,
    /// The skills that conversations began with.
    pub skills: Arc<dyn SkillStore>,
    /// The files of messages.
    pub blobs: Arc<dyn BlobStore>,
}

impl StorePorts {
    /// The ports of one store that has all of them but the vault and the files.
    pub fn of<S>(store: Arc<S>, vault: Arc<dyn SecretVault>, blobs: Arc<dyn BlobStore>) -> Self
    where
        S: LaneStore
            + RunStore
            + JournalStore
            + InputReader
            + DispatcherStore
            + RunReader
            + SessionReader
            + ConversationReader
            + StoreHealth
            + Archive
            + EventLog
            + Outbox
            + NoteStore
            + NoteArchive
            + PromptNotes
            + SpendLedger
            + ApprovalStore
            + ChildQuestionStore
            + ClientCallStore
            + JobReader
            + JobStore
            + JobAttempts
            + RoutineReader
            + RoutineStore
            + RoutineSchedule
            + RoutineRunStore
            + ToolSwitches
            + FreezeStore
            + PeopleStore
            + TitleStore
            + SkillStore
            + 'static,
    {
        Self {
            lanes: store.clone(),
            run_store: store.clone(),
            journal: store.clone(),
            inputs: store.clone(),
            dispatcher: store.clone(),
            runs: store.clone(),
            sessions: store.clone(),
            conversations: store.clone(),
            health: store.clone(),
            archive: store.clone(),
            events: store.clone(),
            outbox: store.clone(),
            notes: store.clone(),
            note_archive: store.clone(),
            prompt_notes: store.clone(),
            spend: store.clone(),
            approvals: store.clone(),
            child_questions: store.clone(),
            client_calls: store.clone(),
            vault,
            jobs: store.clone(),
            job_store: store.clone(),
            attempts: store.clone(),
            routines: store.clone(),
            routine_store: store.clone(),
            schedule: store.clone(),
            routine_run_store: store.clone(),
            switches: store.clone(),
            freezes: store.clone(),
            people: store.clone(),
            titles: store.clone(),
            skills: store,
            blobs,
        }
    }
}

/// The services of an agent that works beside others over one database.
#[derive(Clone)]
pub struct ClusterServices {
    /// Tells what other nodes have changed.
    pub hints: Arc<dyn Hints>,
    /// Mail for lanes that other nodes own.
    pub mail: Arc<dyn MailStore>,
    /// The parts of the budgets that nodes may spend.
    pub slices: Arc<dyn BudgetSlices>,
    /// Stops that apply to all nodes.
    pub orders: Arc<dyn OrderStore>,
    /// The nodes.
    pub nodes: Arc<dyn ClusterStore>,
}

/// What the outer loop, its lanes and their turns share.
pub(crate) struct AgentServices {
    /// Services that every run uses.
    pub(crate) run: Arc<RunServices>,
    /// Services for runs that start other runs.
    pub(crate) children: Arc<ChildServices>,
    /// Services for plans.
    pub(crate) plans: Arc<PlanKit>,
    pub(crate) jobs: Arc<JobService>,
    pub(crate) routines: Arc<RoutineService>,
    /// Sources of briefings.
    pub(crate) briefings: BriefingSource,
    pub(crate) queue: QueueConfig,
    /// Swapped as a whole when the settings are reloaded.
    pub(crate) approvals: Arc<ArcSwap<ApprovalsConfig>>,
    /// Asks people about calls of runs that other runs have started.
    pub(crate) asker: Arc<PersonAsker>,
    /// The questions of autonomous work that wait in conversations.
    pub(crate) work_questions: Arc<WorkQuestions>,
    pub(crate) streaming: StreamingConfig,
    /// Rules for starting a new conversation automatically.
    pub(crate) resets: Resets,
    /// Stores outputs that are too long to be shown whole.
    pub(crate) outputs: Option<Arc<dyn OutputKeeper>>,
    /// Writes titles of conversations; `None`: no title is written.
    pub(crate) titles: Option<Titles>,
    pub(crate) processes: Arc<dyn RunProcesses>,
    pub(crate) hooks: Arc<HookChain>,
    pub(crate) channels: Channels,
    /// The leases of the channels; `None`: the daemon uses its database alone.
    pub(crate) leases: Option<LeasedDelivery>,
    /// Knows the troubles of the machine.
    pub(crate) machine: Arc<dyn TroubleSource>,
    pub(crate) store: StorePorts,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) boot: BootId,
    /// `None`: the daemon uses its database alone.
    pub(crate) cluster: Option<ClusterServices>,
    pub(crate) version: String,
    pub(crate) started_at: UnixMillis,
    /// The global limit of turns: one permit for each running turn.
    pub(crate) permits: Arc<Semaphore>,
    /// One permit for each session that waits with a task for its next turn; the other sessions are parked.
    pub(crate) wait_permits: Arc<Semaphore>,
    /// Reads the skills of the workspace.
    pub(crate) context: Arc<dyn ContextSource>,
    /// Admits people; `None`: no channel admits people by pairing.
    pub(crate) pairing: Option<Arc<Pairing>>,
    /// Reads the files of the workspace that runs send; `None`: they send none.
    pub(crate) outgoing: Option<Arc<dyn OutgoingFiles>>,
    /// Checks the addresses for callbacks; `None`: there are no callbacks.
    pub(crate) callbacks: Option<Arc<dyn CallbackClient>>,
    /// Cancelled when the drain begins: lanes finish their turn and start no other.
    pub(crate) draining: CancellationToken,
}

impl AgentServices {
    /// Whether a message comes from a person. A message through an unknown channel counts as one.
    pub(crate) fn is_spoken(&self, inbound: &Inbound) -> bool {
        !inbound.work.is_autonomous()
            && self.channels.get(&inbound.channel).is_none_or(|channel| channel.profile().carries_people)
    }
}
