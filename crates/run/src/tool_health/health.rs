//! The book, shared by all runs. The effect gate queries and updates it; changes are stored and reported.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use belay_protocol::tool_health::SERVER_PREFIX;
use belay_protocol::{
    Clock, EventKind, EventLog, NewEvent, RunEnd, RunId, StoreError, Tool, ToolHealth, ToolHealthConfig, ToolOff,
    ToolSet, ToolSpec, ToolState, ToolSwitch, ToolSwitches,
};
use tokio::time::Instant;

use super::book::{Book, News, Now, Trial};
use super::evidence::ToolSignal;
use super::pass::Permit;
use super::rules::Rules;
use crate::metrics;

/// Key in the evidence of a run's end: the tool that failed repeatedly and has not worked since.
pub const FAILING_TOOL: &str = "failing_tool";
/// Key in the evidence of a run's end: the number of these failures.
pub const FAILING_TOOL_TIMES: &str = "failing_tool_times";

/// The circuit breakers of tools and MCP servers.
pub struct Health {
    /// The lock is held for an operation that never waits.
    book: Mutex<Book>,
    /// The subjects. The lock is held for a look-up or a change, and taken before that of the book.
    known: Mutex<Known>,
    store: Arc<dyn ToolSwitches>,
    events: Arc<dyn EventLog>,
    clock: Arc<dyn Clock>,
}

/// Why the tools of a server are not offered, or cannot be called.
enum Absent {
    Starting,
    /// With the reason.
    LeftOut(String),
    /// A person has to log in, for this reason.
    NeedsLogin(String),
}

/// The subjects of the book.
#[derive(Default)]
struct Known {
    /// Description of each subject.
    described: BTreeMap<String, String>,
    /// The MCP servers whose tools are not offered, or cannot be called.
    absent: BTreeMap<String, Absent>,
    /// A tool of each MCP server, which knows what the server speaks.
    servers: BTreeMap<String, Arc<dyn Tool>>,
}

impl Known {
    fn add(&mut self, tool: &Arc<dyn Tool>) {
        let spec = tool.spec();
        self.described.entry(spec.name.clone()).or_insert_with(|| spec.description.clone());
        if let Some(server) = &spec.server {
            let name = format!("{SERVER_PREFIX}{server}");
            self.described.entry(name.clone()).or_insert_with(|| description_of(server));
            self.servers.insert(name, tool.clone());
        }
    }

    /// The health of a subject by the book, or that of a server whose tools are not offered.
    fn health(&self, name: &str, by_book: ToolHealth) -> ToolHealth {
        let description = self.described.get(name).cloned().unwrap_or_default();
        let revision = self.servers.get(name).and_then(|tool| tool.revision());
        let health = ToolHealth { description, revision, ..by_book };
        match self.absent.get(name).filter(|_| health.state == ToolState::Ok) {
            None => health,
            Some(Absent::Starting) => ToolHealth { state: ToolState::Starting, ..health },
            Some(Absent::LeftOut(why)) => ToolHealth { state: ToolState::LeftOut, detail: why.clone(), ..health },
            Some(Absent::NeedsLogin(why)) => ToolHealth { state: ToolState::NeedsLogin, detail: why.clone(), ..health },
        }
    }
}

fn description_of(server: &str) -> String {
    format!("Every tool of the MCP server {server}.")
}

/// The ports of [`Health`].
pub struct HealthPorts {
    /// The store of disabled tools.
    pub store: Arc<dyn ToolSwitches>,
    /// Where events are recorded.
    pub events: Arc<dyn EventLog>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
}

impl Health {
    /// Loads the stored changes. A change of an unknown subject is ignored, and counts again when the subject comes
    /// back. `tools`: every tool that any run can have.
    ///
    /// # Errors
    /// The store does not respond.
    pub async fn load(config: &ToolHealthConfig, tools: &ToolSet, ports: HealthPorts) -> Result<Self, StoreError> {
        let HealthPorts { store, events, clock } = ports;
        let mut known = Known::default();
        tools.iter().for_each(|tool| known.add(tool));
        let switches = known_of(&known, store.switches().await?);
        let now = Now { date: clock.now(), instant: Instant::now() };
        let book = Book::new(Rules::compile(config), switches, now);
        for off in
            known.described.keys().map(|name| book.health(name, now)).filter(|health| health.state != ToolState::Ok)
        {
            tracing::warn!(tool = off.name, by = off.actor, "a tool is disabled, as it was before this start");
        }
        count(&book);
        Ok(Self { book: Mutex::new(book), known: Mutex::new(known), store, events, clock })
    }

    /// Adds the tools of an MCP server that has come, with the stored changes about them.
    ///
    /// # Errors
    /// The store does not respond: nothing has changed.
    pub async fn add_server(&self, server: &str, tools: &[Arc<dyn Tool>]) -> Result<(), StoreError> {
        let stored = self.store.switches().await?;
        {
            let mut known = self.known();
            known.absent.remove(&format!("{SERVER_PREFIX}{server}"));
            tools.iter().for_each(|tool| known.add(tool));
        }
        self.adopt(stored);
        Ok(())
    }

    /// Shows an MCP server as starting; with a reason, which follows its name, as left out.
    pub fn show_server(&self, server: &str, left_out: Option<String>) {
        self.show(server, left_out.map_or(Absent::Starting, Absent::LeftOut));
    }

    /// Shows that a person has to log in at an MCP server, with the reason.
    pub fn need_login(&self, server: &str, why: &str) {
        self.show(server, Absent::NeedsLogin(format!("needs login: belay mcp login {server} ({why})")));
    }

    fn show(&self, server: &str, absent: Absent) {
        let name = format!("{SERVER_PREFIX}{server}");
        let mut known = self.known();
        known.described.entry(name.clone()).or_insert_with(|| description_of(server));
        known.absent.insert(name, absent);
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // Each change is one insertion or removal, so a panic cannot leave it inconsistent.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn now(&self) -> Now {
        Now { date: self.clock.now(), instant: Instant::now() }
    }

    /// Locks the book. After a panic under the lock, a count is wrong by one call at most.
    pub(super) fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The reason why a call of this tool would be refused, for a model; `None`: it would be admitted.
    pub fn refusal(&self, tool: &ToolSpec) -> Option<String> {
        let now = self.now();
        let book = self.book();
        if book.all_on() { None } else { book.refusal(&subjects(tool), now) }
    }

    /// Admits a call of this tool. This is the last check before the call.
    ///
    /// # Errors
    /// The reason for the refusal, for a model.
    pub fn admit(self: &Arc<Self>, tool: &ToolSpec) -> Result<Permit, String> {
        let now = self.now();
        let trials = self.book().admit(&subjects(tool), now)?;
        Ok(Permit::new(self.clone(), trials))
    }

    pub(super) fn give_back(&self, trials: &[Trial]) {
        self.book().give_back(trials);
    }

    /// Evaluates the end of a call.
    ///
    /// # Cancel safety
    /// If the future is dropped, the result is counted. A resulting change may be missing in the store; a restart then
    /// undoes it.
    pub async fn ended(&self, mut pass: Permit, tool: &ToolSpec, run: RunId, says: &ToolSignal) {
        let trials = pass.take_trials();
        let now = self.now();
        let news = {
            let mut book = self.book();
            let news = book.ended(&trials, &subjects(tool), run, says, now);
            count(&book); // includes subjects that work again, which produce no change
            news
        };
        for news in news {
            self.tell(news, run).await;
        }
    }

    /// The enabled tools of this set; `None`: all are enabled.
    pub fn offered(&self, tools: &ToolSet) -> Option<ToolSet> {
        let now = self.now();
        let book = self.book();
        let closed = |spec: &ToolSpec| book.refusal(&subjects(spec), now).is_some();
        if book.all_on() || !tools.iter().any(|tool| closed(tool.spec())) {
            return None;
        }
        Some(tools.changed(|tool| (!closed(tool.spec())).then(|| tool.clone())))
    }

    /// Adds the tool that failed this run repeatedly, if there is one, to the evidence of a run that was not completed.
    pub fn blame(&self, run: RunId, end: RunEnd) -> RunEnd {
        match self.book().blamed(run) {
            Some((tool, times)) => end.with(FAILING_TOOL, tool).with(FAILING_TOOL_TIMES, times),
            None => end,
        }
    }

    /// The health of all subjects, by name.
    pub fn all(&self) -> Vec<ToolHealth> {
        let now = self.now();
        let (known, book) = (self.known(), self.book());
        known.described.keys().map(|name| known.health(name, book.health(name, now))).collect()
    }

    /// The health of one subject.
    pub fn one(&self, name: &str) -> Option<ToolHealth> {
        let now = self.now();
        let known = self.known();
        known.described.contains_key(name).then(|| known.health(name, self.book().health(name, now)))
    }

    /// The failing and disabled subjects, without evidence.
    pub fn troubled(&self) -> Vec<ToolHealth> {
        let all = self.all().into_iter().filter(|health| health.state != ToolState::Ok);
        all.map(|health| ToolHealth { description: String::new(), last: Vec::new(), ..health }).collect()
    }

    /// Applies the changes that other daemons have stored.
    ///
    /// # Errors
    /// The store does not respond.
    pub async fn reload(&self) -> Result<(), StoreError> {
        let stored = self.store.switches().await?;
        self.adopt(stored);
        Ok(())
    }

    fn adopt(&self, stored: Vec<ToolSwitch>) {
        let stored = known_of(&self.known(), stored);
        let now = self.now();
        let mut book = self.book();
        book.reload(stored, now);
        count(&book);
    }

    /// Disables or enables a subject by hand. The change is on disk before it takes effect, and follows any change that
    /// a rule, a trial or another daemon made meanwhile.
    ///
    /// # Errors
    /// The store refused the change, and nothing has changed.
    pub(super) async fn switch(&self, name: &str, off: Option<ToolOff>, by: &str) -> Result<(), StoreError> {
        loop {
            let now = self.now();
            let switch = self.book().switch(name, off.clone(), now);
            let told = vec![NewEvent { at: now.date, session: None, run_id: None, kind: switched(&switch, by) }];
            if !self.store.switch(switch.clone(), told).await? {
                self.reload().await?;
            } else if self.apply(&switch, now) {
                log(&switch, by);
                return Ok(());
            }
        }
    }

    /// Applies a change. Returns `false` if a newer change was made meanwhile, which then stays.
    fn apply(&self, switch: &ToolSwitch, now: Now) -> bool {
        let mut book = self.book();
        let holds = book.apply(switch.clone(), now);
        count(&book);
        holds
    }

    /// Stores and reports a change that a call caused.
    async fn tell(&self, news: News, run: RunId) {
        let at = self.clock.now();
        let event = |kind| vec![NewEvent { at, session: None, run_id: Some(run), kind }];
        let stored = match news {
            News::Failing { name, failures, runs, since, fault } => {
                let (kind, fingerprint) = (fault.kind.word(), fault.fingerprint);
                tracing::warn!(tool = name, failures, runs, kind, fingerprint, "a tool fails again and again");
                metrics::tool_reported();
                let (since_ms, kind) = (since.0, kind.to_owned());
                self.events
                    .append(event(EventKind::ToolFailing { name, failures, runs, since_ms, kind, fingerprint }))
                    .await
            }
            News::Switched { switch, by } => {
                log(&switch, &by);
                let (name, told) = (switch.name.clone(), event(switched(&switch, &by)));
                match self.store.switch(switch, told).await {
                    Ok(true) => Ok(()),
                    // The rule or the trial has decided about an older state.
                    Ok(false) => {
                        tracing::info!(tool = name, "a newer change of this tool replaces the decision");
                        self.reload().await
                    }
                    Err(error) => Err(error),
                }
            }
        };
        if let Err(error) = stored {
            // The tool stays as decided; only a restart would undo it.
            tracing::error!(%error, "what was decided about a tool could not be stored; it holds until the next start");
        }
    }
}

/// The changes of known subjects.
fn known_of(known: &Known, mut switches: Vec<ToolSwitch>) -> Vec<ToolSwitch> {
    switches.retain(|switch| known.described.contains_key(&switch.name));
    switches
}

/// The subjects of this tool: the tool itself, and its MCP server.
fn subjects(tool: &ToolSpec) -> Vec<String> {
    let server = tool.server.as_ref().map(|server| format!("{SERVER_PREFIX}{server}"));
    std::iter::once(tool.name.clone()).chain(server).collect()
}

fn switched(switch: &ToolSwitch, by: &str) -> EventKind {
    let off = switch.off.as_ref();
    EventKind::ToolStateChanged {
        name: switch.name.clone(),
        on: off.is_none(),
        actor: by.to_owned(),
        detail: off.map(|off| off.detail.clone()).unwrap_or_default(),
        until_ms: off.and_then(|off| off.until).map(|until| until.0),
    }
}

fn log(ToolSwitch { name, off, .. }: &ToolSwitch, by: &str) {
    match off {
        Some(off) => {
            let (failures, runs, for_s) = (off.failures, off.runs, off.for_s);
            tracing::warn!(tool = name, by, failures, runs, for_s, "a tool is disabled");
        }
        None => tracing::info!(tool = name, by, "a tool is enabled"),
    }
}

fn count(book: &Book) {
    let (failing, off) = book.counts();
    metrics::set_tool_gauges(failing, off);
}
