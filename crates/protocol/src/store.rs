//! The ports of persistence, one for each role: each user receives only what it uses. One store implements all of them
//! over one database, so that related writes share a commit.
//!
//! | port | for |
//! |---|---|
//! | [`LaneStore`], [`RunStore`] | the lane of a session: its threads, its runs |
//! | [`JournalStore`] | the progress of a running run |
//! | [`DispatcherStore`], [`InputReader`] | the dispatcher: duplicates, unfinished runs, accepted messages |
//! | [`RunReader`], [`EndReader`], [`SessionReader`], [`ConversationReader`] | readers of runs, sessions and conversations |
//! | [`TitleStore`], [`SkillStore`] | titles of conversations, the skills that they began with |
//! | [`EventLog`] | events |
//! | [`Outbox`] | replies that wait for delivery |
//! | [`Cursors`] | how far channels have read their sources |
//! | [`JobReader`], [`JobStore`], [`JobAttempts`] | jobs |
//! | [`RoutineReader`], [`RoutineStore`], [`RoutineSchedule`], [`RoutineRunStore`] | routines and routine runs |
//! | [`NoteStore`], [`NoteArchive`], [`PromptNotes`], [`NoteVectors`] | notes: for tools, for people, for prompts, for the search by meaning |
//! | [`SpendLedger`], [`SpendReader`], [`StoreHealth`] | money, readiness |
//! | [`ClusterStore`], [`WorkLeases`], [`OrderStore`], [`MailStore`], [`Hints`] | several daemons over one database |
//!
//! The ports [`Archive`](crate::Archive), [`ApprovalStore`](crate::ApprovalStore), [`FreezeStore`](crate::FreezeStore),
//! [`SecretVault`](crate::SecretVault), [`ToolSwitches`](crate::ToolSwitches), [`UploadStore`](crate::UploadStore),
//! [`BlobStore`](crate::BlobStore), [`OutputStore`](crate::OutputStore), [`PinStore`](crate::PinStore),
//! [`PeopleStore`](crate::PeopleStore) and [`SignInStore`](crate::SignInStore) are in the modules of their words.
//!
//! Each write is *committed* or *relaxed*, see [`Durability`].

mod client_calls;
mod cluster;
mod cursors;
mod dispatcher;
mod events;
mod health;
mod inputs;
mod jobs;
mod journal;
mod lanes;
mod notes;
mod outbox;
mod routines;
mod run_reader;
mod runs;
mod sessions;
mod skills;
mod spending;
mod titles;

pub use client_calls::ClientCallStore;
pub use cluster::{ClusterStore, Hints, MailEnd, MailStore, OrderStore, WorkLeases};
pub use cursors::{CURSORS_MAX, Cursors};
pub use dispatcher::{
    ACTED_ON_KEPT, ActedOn, ClaimState, Claimed, DispatcherStore, KeyClaim, RECENT_INPUTS, UnfinishedRun,
};
pub use events::{EventLog, EventQuery};
pub use health::StoreHealth;
pub use inputs::{InputReader, KnownInput, LastTurn, QueuedInput, input_digest};
pub use jobs::{
    HeldJobs, JobAttempt, JobAttempts, JobCaps, JobChange, JobChanged, JobCreated, JobFilter, JobNumbers, JobReader,
    JobStore, NewJob, PROGRESS_EVENTS_MAX,
};
pub use journal::{Checkpoint, Durability, JoinedRun, JournalStore, TurnCompaction, joined_end};
pub use lanes::{
    Acceptance, ClaimMode, EditOutcome, EditedMessage, LaneClaim, LaneStore, MailPlace, NewInput, OpenedLane, Opening,
    PendingRun, SentMessage, ThreadEdit, ThreadSnapshot,
};
pub use notes::{
    Forgotten, NewNote, Note, NoteArchive, NoteFilter, NoteSelection, NoteStore, NoteVector, NoteVectors, PromptNotes,
    Remembered, SaidQuery,
};
pub use outbox::{Outbox, OutboxRow, OutboxState};
pub use routines::{Deferral, RoutineNumbers, RoutineReader, RoutineRunStore, RoutineSchedule, RoutineStore};
pub use run_reader::{EndCount, EndQuery, EndReader, Period, RunFilter, RunReader};
pub use runs::{CollectedStart, FinishedRun, PausedRun, RunStore};
pub use sessions::{
    ConversationReader, ConversationSummary, HistoryEntry, Presence, SessionReader, SessionSummary, TITLE_MAX_CHARS,
};
pub use skills::{SkillSnapshot, SkillStore};
pub use spending::{
    BudgetSlices, CallCharge, CostKey, CostQuery, CostRow, Draw, Drawn, NewReservation, SpendLedger, SpendReader,
};
pub use titles::{TITLE_TRIES, TitleStore, Untitled};
