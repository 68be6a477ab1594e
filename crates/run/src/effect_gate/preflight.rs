//! The preflight: the checks of a call before it begins, in order: schema, approval, secret, rate limit, circuit
//! breaker, budget of the run.
//!
//! The schema comes before the approval, so that nobody is asked about a call that cannot run.

use std::sync::Arc;
use std::time::Duration;

use belay_agent_loop::INVALID_ARGUMENTS;
use belay_protocol::{
    ApprovalKind, Approved, Arguments, CallPreview, CredentialNeed, Secret, StoreError, Tool, ToolCall, ToolFailure,
    ToolResult, ToolSet, ToolSpec, ToolStatus,
};
use serde_json::{Map, Value};
use tokio::time::timeout;

use super::batch::Runnable;
use super::{CallContext, EffectGate, result_of};
use crate::approvals::{
    ApprovalAnswer, Case, MAX_SHOWN_CHARS, Need, Standing, Untrusted, Wanted, digest, too_long, unshown_arguments,
};
use crate::request::RunRequest;

/// Time in which a tool must describe the effect of a call.
const PREVIEW_LIMIT: Duration = Duration::from_secs(5);

/// The result of an approved call that has changed since, if no further approval can be requested.
const CHANGED: &str = "denied: what was approved has changed since, so it was not executed. Inspect it again, then \
                       repeat the call to request a new approval.";

/// The result of the checks.
pub(super) enum Verdict {
    /// The call may begin.
    Run(Box<Runnable>),
    /// The call does not begin. This is its result.
    Answered(ToolResult),
    /// A person must be asked.
    Ask(Box<Wanted>),
}

/// A refusal: the status and the text of the result.
struct Rejected(ToolStatus, String);

/// Why a call may not begin.
enum Blocked {
    Rejected(Rejected),
    Ask(Box<Wanted>),
    Store(StoreError),
}

impl From<Rejected> for Blocked {
    fn from(rejected: Rejected) -> Self {
        Self::Rejected(rejected)
    }
}

impl From<StoreError> for Blocked {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl EffectGate {
    /// Checks one call.
    ///
    /// # Errors
    /// The store could not read the permanent approvals or the secret. No call may begin.
    pub(super) async fn preflight(&self, caller: &CallContext<'_>, call: ToolCall) -> Result<Verdict, StoreError> {
        // The checks read the store before they count anything, so that they may be repeated.
        let verdict = caller.journal.wait().until_stored(|| async {
            match self.pass(caller, &call).await {
                Ok(runnable) => Ok(Verdict::Run(Box::new(runnable))),
                Err(Blocked::Rejected(Rejected(status, text))) => Ok(Verdict::Answered(result_of(&call, status, text))),
                Err(Blocked::Ask(wanted)) => Ok(Verdict::Ask(wanted)),
                Err(Blocked::Store(error)) => Err(error),
            }
        });
        verdict.await
    }

    async fn pass(&self, caller: &CallContext<'_>, call: &ToolCall) -> Result<Runnable, Blocked> {
        let tool = find(caller.tools, call)?;
        let tool = (caller.bind)(&call.name).unwrap_or(tool);
        let arguments = self.check(call)?;
        let weight = weighed(&*tool, &arguments, caller).await?;
        let answer = caller.answers.get(&call.id).cloned().unwrap_or_default();
        let (mut uses, approved) = self.approve(caller, call, tool.spec(), &arguments, weight, &answer).await?;
        let credential = match &tool.spec().credential {
            Some(need) => Some(self.secret(caller, tool.spec(), need, &answer).await?),
            None => None,
        };
        uses.extend(answer.supplied);
        self.rates.admit(&call.name, &caller.request.session).map_err(|wait| {
            let seconds = wait.as_secs().max(1);
            Rejected(
                ToolStatus::Error,
                format!("not executed: {} has reached its rate limit; try again in {seconds} s", call.name),
            )
        })?;
        let pass = self.health.admit(tool.spec()).map_err(|refusal| Rejected(ToolStatus::Denied, refusal))?;
        if let Some(limit) = caller.tally().admit_tool(caller.limits, &call.name) {
            let text = format!(
                "not executed: the run has used up its tool calls (limit {limit}); give your final answer as \
                         text"
            );
            return Err(Rejected(ToolStatus::NotExecuted, text).into());
        }
        Ok(Runnable { call: call.clone(), tool, arguments, credential, pass, uses, approved, earlier: None })
    }

    /// The permission for this call as it is now. `None`: the call cannot be made, and the gate says why.
    pub(crate) async fn standing_of(&self, caller: &CallContext<'_>, call: &ToolCall) -> Option<Standing> {
        let tool = caller.tools.get(&call.name)?;
        let arguments = self.check(call).ok()?;
        let weight = weighed(&**tool, &arguments, caller).await.ok()?;
        Some(Standing::of(&call.name, &arguments, &weight))
    }

    /// Validates the arguments against the schema of the tool.
    fn check(&self, call: &ToolCall) -> Result<Map<String, Value>, Rejected> {
        let no = |text: String| Rejected(ToolStatus::Error, text);
        let Arguments::Object(arguments) = &call.arguments else {
            return Err(no("the arguments are not a JSON object".into()));
        };
        let value = Value::Object(arguments.clone());
        let problems =
            self.schemas.problems(&call.name, &value).map_err(|fault| no(format!("not executed: {fault}")))?;
        if !problems.is_empty() {
            return Err(no(format!("{INVALID_ARGUMENTS}: {}", problems.join("; "))));
        }
        Ok(arguments.clone())
    }

    /// Finds the approval of a call: none is needed, a permanent approval covers it, or a person approved this very
    /// call. In the last case, returns the details that the approval is bound to.
    async fn approve(
        &self,
        caller: &CallContext<'_>,
        call: &ToolCall,
        spec: &ToolSpec,
        arguments: &Map<String, Value>,
        weight: CallPreview,
        answer: &ApprovalAnswer,
    ) -> Result<(Vec<belay_protocol::ApprovalId>, Option<Approved>), Blocked> {
        if let Some(denied) = &answer.denied {
            return Err(Rejected(ToolStatus::Denied, denied.clone()).into());
        }
        let digest = digest(&spec.name, arguments, &weight);
        let untrusted = if caller.tally().untrusted() {
            Untrusted::Content
        } else if caller.tools.iter().any(|tool| tool.spec().foreign) {
            Untrusted::Descriptions // requests have their descriptions, or find_tools reads them
        } else {
            Untrusted::Nothing
        };
        let case = Case { spec, arguments, weight: &weight, untrusted };
        let mut need = self.policy.load().need(case);
        if let (Need::Yes { .. }, Some(work)) = (&need, caller.work) {
            let grants = work.grants().await?;
            if !grants.is_empty() {
                need = self.policy.load().need_with(case, &grants);
            }
        }
        let (unless_approved, why, second) = match (need, &answer.approved) {
            (Need::Refused(why), _) => {
                return Err(Rejected(ToolStatus::Denied, format!("denied: {why}. It was not executed.")).into());
            }
            // The bytes of a check are bound to it whether or not a person was asked.
            _ if caller.standing.is_some_and(|known| is_changed(known, spec, arguments, &weight)) => {
                return Err(Rejected(ToolStatus::Denied, CHANGED.into()).into());
            }
            (Need::Yes { second: false, .. }, _) if caller.standing.is_some() => {
                return Ok((answer.yeses(), Some(Approved(weight.bound))));
            }
            (_, Some((_, approved))) if *approved == digest => {
                // Equal digests: the effect that was computed now is the one that the person saw.
                return Ok((answer.yeses(), Some(Approved(weight.bound))));
            }
            (Need::Nobody, _) => return Ok((answer.yeses(), caller.standing.map(|_| Approved(weight.bound)))),
            // A person is asked twice at most: a call that changes after each approval cannot be approved.
            (Need::Yes { .. }, Some(_)) if !answer.outdated.is_empty() || caller.may_ask.is_err() => {
                return Err(Rejected(ToolStatus::Denied, CHANGED.into()).into());
            }
            (Need::Yes { unless_approved, second, .. }, Some(_)) => {
                (unless_approved, "what was approved has changed since; this is how it is now".to_owned(), second)
            }
            (Need::Yes { unless_approved, why, second }, None) => (unless_approved, why, second),
        };
        let is_exact = weight.covers.is_none();
        let covers = weight.covers.unwrap_or_else(|| format!("exactly this call ({})", &digest[..16]));
        let RunRequest { session, asker, .. } = caller.request;
        if unless_approved && self.approvals.granted(session, &spec.name, &covers, asker).await? {
            // "Always" for exactly this call is bound to its facts, as one approval is.
            return Ok((answer.yeses(), is_exact.then_some(Approved(weight.bound))));
        }
        if let Some(unbound) = weight.unbound {
            let text = format!("denied: {} needs a person's approval, and {unbound}. It was not executed.", spec.name);
            return Err(Rejected(ToolStatus::Denied, text).into());
        }
        if let Err(nobody) = caller.may_ask {
            return Err(Rejected(
                ToolStatus::Denied,
                format!("denied: {} needs a person's approval ({why}), and {nobody}.", spec.name),
            )
            .into());
        }
        let shown = call.redacted(&spec.sensitive);
        let (mut summary, mut bound) = (weight.summary, weight.bound);
        if summary.is_empty() {
            summary = format!("{} {shown}", spec.name);
        } else {
            bound.extend(unshown_arguments(&shown, weight.shows));
        }
        // Nobody approves what is not shown. Only the content of files may be shown in part.
        if let Some(chars) = too_long(&summary, &bound) {
            return Err(Rejected(ToolStatus::Denied, not_shown(spec, chars)).into());
        }
        Err(Blocked::Ask(Box::new(Wanted {
            arguments: shown,
            why,
            bound,
            digest,
            covers: unless_approved.then_some(covers),
            second,
            ..Wanted::of(ApprovalKind::Approval, summary)
        })))
    }

    /// Finds the secret that a tool needs.
    async fn secret(
        &self,
        caller: &CallContext<'_>,
        spec: &ToolSpec,
        need: &CredentialNeed,
        answer: &ApprovalAnswer,
    ) -> Result<Secret, Blocked> {
        if let Some(secret) = self.vault.find(&caller.request.session, &need.name).await? {
            return Ok(secret);
        }
        let alone = caller.by_itself.then_some("autonomous work cannot ask for a secret");
        let nobody = caller.may_ask.err().or(alone).or_else(|| {
            answer.supplied.map(|_| {
                "the secret that was provided is not \
                                                                              stored any more"
            })
        });
        if let Some(nobody) = nobody {
            let text = format!("denied: {} needs the secret {}, and {nobody}.", spec.name, need.name);
            return Err(Rejected(ToolStatus::Denied, text).into());
        }
        let kind = ApprovalKind::Credential { name: need.name.clone() };
        let why = format!("{} cannot work without it", spec.name);
        Err(Blocked::Ask(Box::new(Wanted { why, ..Wanted::of(kind, need.instructions.clone()) })))
    }
}

/// The result of a call whose arguments have so many characters that no question can show them.
fn not_shown(spec: &ToolSpec, chars: usize) -> String {
    // Only a program can read the file of a name.
    let instead = match spec.takes_variables {
        true => "Write long texts to a file with write_file first, and pass the file's name.",
        false => "Shorten them, or split the work into several calls, each of which a person is asked about.",
    };
    format!(
        "denied: {} needs a person's approval, and its arguments ({chars} characters) are too long to be shown in full: a \
         question shows at most {MAX_SHOWN_CHARS} characters. It was not executed. {instead}",
        spec.name
    )
}

fn find(tools: &ToolSet, call: &ToolCall) -> Result<Arc<dyn Tool>, Rejected> {
    tools
        .get(&call.name)
        .cloned()
        .ok_or_else(|| Rejected(ToolStatus::Error, format!("there is no tool named {}", call.name)))
}

fn is_changed(known: &Standing, spec: &ToolSpec, arguments: &Map<String, Value>, weight: &CallPreview) -> bool {
    known.change(&Standing::of(&spec.name, arguments, weight)).is_some()
}

/// The preview of a call, with the facts that the run adds.
async fn weighed(
    tool: &dyn Tool,
    arguments: &Map<String, Value>,
    caller: &CallContext<'_>,
) -> Result<CallPreview, Rejected> {
    let mut weight = preview(tool, arguments, caller).await?;
    if tool.spec().takes_variables && !caller.variables.is_empty() {
        // The person who approves the call sees the names of the variables that the program gets.
        let names: Vec<&str> = caller.variables.iter().map(|variable| variable.name.as_str()).collect();
        weight.bound.push(("variables of skills".to_owned(), names.join(", ")));
    }
    Ok(weight)
}

async fn preview(
    tool: &dyn Tool,
    arguments: &Map<String, Value>,
    caller: &CallContext<'_>,
) -> Result<CallPreview, Rejected> {
    let previewed = tokio::select! {
        biased; // a stopped run does not compute effects
        () = caller.cancel.cancelled() => Ok(Err(ToolFailure::Cancelled)),
        previewed = timeout(PREVIEW_LIMIT, tool.preview(arguments, &caller.request.session)) => previewed,
    };
    match previewed {
        Ok(Ok(weight)) => Ok(weight),
        Ok(Err(
            ToolFailure::Failed(text)
            | ToolFailure::Ended(text)
            | ToolFailure::Unknown(text)
            | ToolFailure::CredentialRefused(text),
        )) => Err(Rejected(ToolStatus::Error, text)),
        Ok(Err(ToolFailure::Denied(text))) => Err(Rejected(ToolStatus::Denied, text)),
        Ok(Err(ToolFailure::Cancelled)) => {
            Err(Rejected(ToolStatus::NotExecuted, "not executed: the run was stopped".into()))
        }
        Err(_elapsed) => {
            Err(Rejected(ToolStatus::Error, "not executed: its effect could not be determined in time".into()))
        }
    }
}
