//! A delegate that tests steer by tables, and two tools for it to run.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use belay_agent_loop::{
    AdmittedCall, AgenticLoopConfig, LlmTurn, LoopContext, LoopDelegate, LoopError, LoopOutcome, LoopSignal,
    PendingApproval, Reasoning, TextAction, run_agentic_loop,
};
use belay_protocol::{
    Arguments, Generation, Message, ModelProvider, NoSink, Prompt, RunId, StopReason, StoreError, Tool, ToolCall,
    ToolContext, ToolFailure, ToolOutput, ToolResult, ToolSet, ToolSpec, ToolStatus,
};
use belay_testkit::golden;
use belay_testkit::scripted_model::{Scripted, ScriptedModel};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

/// A tool that answers with its arguments, and fails when these say `"fail": true`.
struct Echo(ToolSpec);

impl Echo {
    fn named(name: &str) -> Arc<dyn Tool> {
        Arc::new(Self(ToolSpec::new(name, "echoes", json!({ "type": "object" }))))
    }
}

#[async_trait]
impl Tool for Echo {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    async fn call(&self, arguments: &Map<String, Value>, _context: &ToolContext) -> ToolOutput {
        match arguments.get("fail") {
            Some(Value::Bool(true)) => Err(ToolFailure::failed("no such file")),
            _ => Ok(format!("ok {}", Value::Object(arguments.clone())).into()),
        }
    }
}

/// A way in which a delegate breaks its contract about results.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sloppy {
    /// It forgets the last result.
    Forgets,
    /// It gives every result twice.
    Repeats,
    /// It gives the results in the wrong order, behind a notice.
    Reverses,
    /// It gives a result for a call that nobody made.
    Invents,
    /// It fails before it gives any result.
    Breaks,
    /// It ends the run before it gives any result.
    Leaves,
}

/// A delegate whose every decision is in a table. Iterations count from 1.
pub(crate) struct Play {
    pub(crate) model: Arc<ScriptedModel>,
    /// What `check_signals` answers.
    pub(crate) signals: BTreeMap<u32, LoopSignal>,
    /// Whether the newest signal was something said.
    injected: bool,
    /// What `before_llm_call` answers.
    pub(crate) early: BTreeMap<u32, LoopOutcome>,
    /// Cancelled while a model call is in progress.
    pub(crate) stop: CancellationToken,
    /// A text goes on instead of ending the run, unless it contains this word.
    pub(crate) ends_with: Option<&'static str>,
    /// The tool whose calls need a person's approval.
    pub(crate) guarded: Option<&'static str>,
    /// Where it breaks its contract.
    pub(crate) sloppy: BTreeMap<u32, Sloppy>,
    /// The order in which the loop came by.
    pub(crate) visited: Vec<String>,
    /// Whether `force_text` held at each model call.
    pub(crate) forced: Vec<bool>,
    /// The context at the end of each iteration, its state as it would be stored.
    pub(crate) stored: Vec<(Vec<Arc<Message>>, String)>,
    iteration: u32,
    tools: Arc<ToolSet>,
}

impl Play {
    pub(crate) fn new(replies: impl IntoIterator<Item = Scripted>) -> Self {
        Self::of(ScriptedModel::new(replies))
    }

    pub(crate) fn of(model: ScriptedModel) -> Self {
        Self {
            model: Arc::new(model),
            signals: BTreeMap::new(),
            injected: false,
            early: BTreeMap::new(),
            stop: CancellationToken::new(),
            ends_with: None,
            guarded: None,
            sloppy: BTreeMap::new(),
            visited: Vec::new(),
            forced: Vec::new(),
            stored: Vec::new(),
            iteration: 0,
            tools: Arc::new(ToolSet::new(vec![Echo::named("read"), Echo::named("search")])),
        }
    }

    /// Runs the loop on a context.
    pub(crate) async fn run(
        &mut self,
        context: &mut LoopContext,
        config: &AgenticLoopConfig,
    ) -> Result<LoopOutcome, LoopError> {
        self.iteration = context.state.iteration;
        let prompts = (Prompt::new("You have tools."), Prompt::new("You have no tools."));
        let reasoning = Reasoning::new(prompts.0, prompts.1, Arc::clone(&self.tools), 1000, 3);
        run_agentic_loop(self, &reasoning, context, config).await
    }

    /// Runs the loop on a question and renders everything that the model saw, and the end.
    pub(crate) async fn transcript(&mut self, config: &AgenticLoopConfig) -> String {
        let mut context = LoopContext::new(vec![Arc::new(Message::user("What is in a.txt?"))]);
        let end = match self.run(&mut context, config).await {
            Ok(LoopOutcome::NeedApproval(pending)) => {
                let show = |call: &ToolCall| format!("{} {}", call.name, call.arguments.canonical());
                let deferred: Vec<String> = pending.deferred.iter().map(show).collect();
                format!("NeedApproval for {}; deferred: {}", show(&pending.call), deferred.join(", "))
            }
            Ok(LoopOutcome::Stopped(end)) => format!("Stopped({})", end.log_line()),
            Ok(outcome) => format!("{outcome:?}"),
            Err(error) => format!("error: {error}"),
        };
        golden::render(&self.model.seen(), &context.messages, &end)
    }

    async fn execute(&self, admitted: &AdmittedCall) -> ToolResult {
        if let Some(refused) = &admitted.refused {
            return refused.clone();
        }
        let call = &admitted.call;
        let context = ToolContext {
            session: "test".into(),
            run_id: RunId::new(),
            call_id: call.id.clone(),
            cancel: CancellationToken::new(),
            generation: Generation::default(),
            credential: None,
            progress: belay_protocol::Progress::default(),
            variables: std::sync::Arc::default(),
            approved: None,
            memory: belay_protocol::MemoryOwner::Group { session: "s".into() },
            untrusted: false,
            person: belay_protocol::PersonPort::default(),
            handle: belay_protocol::HandlePort::default(),
        };
        let tool = self.tools.get(&call.name).expect("a refused call is never run");
        let Arguments::Object(arguments) = &call.arguments else { panic!("malformed arguments are never run") };
        let (status, text) = match tool.call(arguments, &context).await {
            Ok(reply) => (ToolStatus::Success, reply.text),
            Err(
                ToolFailure::Failed(text)
                | ToolFailure::Ended(text)
                | ToolFailure::Unknown(text)
                | ToolFailure::CredentialRefused(text),
            ) => (ToolStatus::Error, text),
            Err(ToolFailure::Denied(text)) => (ToolStatus::Denied, text),
            Err(ToolFailure::Cancelled) => (ToolStatus::Cancelled, "cancelled".into()),
        };
        ToolResult { call_id: call.id.clone(), name: call.name.clone(), status, text }
    }

    fn append(&self, mut results: Vec<ToolResult>, context: &mut LoopContext) {
        match self.sloppy.get(&self.iteration) {
            None => {}
            Some(Sloppy::Breaks | Sloppy::Leaves) => results.clear(),
            Some(Sloppy::Forgets) => drop(results.pop()),
            Some(Sloppy::Repeats) => results = results.iter().chain(&results).cloned().collect(),
            Some(Sloppy::Reverses) => {
                results.reverse();
                context.push(Message::system("a notice in between"));
            }
            Some(Sloppy::Invents) => context.push(Message::tool(ToolResult {
                call_id: "nobody".into(),
                name: "read".into(),
                status: ToolStatus::Success,
                text: "nobody asked".into(),
            })),
        }
        for result in results {
            context.push(Message::tool(result));
        }
    }
}

#[async_trait]
impl LoopDelegate for Play {
    async fn check_signals(&mut self) -> LoopSignal {
        if std::mem::take(&mut self.injected) {
            return LoopSignal::Continue; // the same iteration asks whether there is more
        }
        self.iteration += 1;
        self.visited.push(format!("signals {}", self.iteration));
        let signal = self.signals.get(&self.iteration).cloned().unwrap_or(LoopSignal::Continue);
        self.injected = matches!(signal, LoopSignal::InjectMessage(_));
        signal
    }

    async fn before_llm_call(&mut self, _context: &mut LoopContext, iteration: u32) -> Option<LoopOutcome> {
        self.visited.push(format!("before {iteration}"));
        self.early.get(&iteration).cloned()
    }

    async fn call_llm(
        &mut self,
        reasoning: &Reasoning,
        context: &mut LoopContext,
        iteration: u32,
    ) -> Result<LlmTurn, LoopError> {
        self.visited.push(format!("call {iteration}"));
        self.forced.push(context.state.force_text);
        let mut sink = NoSink;
        tokio::select! {
            reply = self.model.call(reasoning.request(context), &mut sink) => Ok(LlmTurn::Reply(reply?)),
            () = self.stop.cancelled() => Ok(LlmTurn::Stopped(StopReason::UserStop.into())),
        }
    }

    async fn handle_text_response(&mut self, text: String, context: &mut LoopContext) -> TextAction {
        self.visited.push("text".into());
        context.push(Message::assistant(text.as_str()));
        if self.ends_with.is_some_and(|word| !text.contains(word)) {
            return TextAction::Continue;
        }
        TextAction::Return(LoopOutcome::Response(text))
    }

    async fn execute_tool_calls(
        &mut self,
        calls: Vec<AdmittedCall>,
        context: &mut LoopContext,
    ) -> Result<Option<LoopOutcome>, LoopError> {
        self.visited.push(format!("execute {}", calls.len()));
        let mut results = Vec::new();
        for (at, admitted) in calls.iter().enumerate() {
            if self.guarded == Some(admitted.call.name.as_str()) {
                let deferred: Vec<ToolCall> = calls[at + 1..].iter().map(|later| later.call.clone()).collect();
                self.append(results, context);
                let pending = PendingApproval { call: admitted.call.clone(), deferred };
                return Ok(Some(LoopOutcome::NeedApproval(Box::new(pending))));
            }
            results.push(self.execute(admitted).await);
        }
        self.append(results, context);
        match self.sloppy.get(&self.iteration) {
            Some(Sloppy::Breaks) => Err(StoreError::Unavailable("the disk is full".into()).into()),
            Some(Sloppy::Leaves) => Ok(Some(LoopOutcome::Response("Sign in first.".into()))),
            _ => Ok(None),
        }
    }

    async fn on_tool_intent_nudge(&mut self, _text: &str, _context: &LoopContext) {
        self.visited.push("nudge".into());
    }

    async fn after_iteration(&mut self, iteration: u32, context: &mut LoopContext) -> Result<(), LoopError> {
        self.visited.push(format!("after {iteration}"));
        let state = serde_json::to_string(&context.state).expect("a state can be stored");
        self.stored.push((context.messages.clone(), state));
        Ok(())
    }
}
