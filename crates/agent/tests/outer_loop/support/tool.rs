//! A tool for tests.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use belay_protocol::{
    Ask, CallPreview, CredentialNeed, Effect, FieldKind, Form, FormField, FormOption, SessionKey, Tool, ToolContext,
    ToolFailure, ToolOutput, ToolSpec,
};
use serde_json::{Map, Value, json};

/// A tool for tests, by name: `echo` returns its `text`, `fail` fails, `panic` panics, `wait` waits for its token,
/// `deaf` waits without looking at it, `slow` takes a second, `moody` fails while its world is `broken`, `chatty` works for five
/// hours and says so each minute, `form` asks a person to fill in a form, as its second question if its world is
/// `second`, `task` keeps a handle, says so in its world and waits; continued, it ends at once, or waits if its world
/// is `stuck`, and its world has what it was told to abandon.
pub(crate) struct TestTool {
    spec: ToolSpec,
    pub(crate) calls: Arc<AtomicUsize>,
    behaves_as: String,
    world: Arc<Mutex<String>>,
    /// Secrets that it was called with.
    pub(crate) secrets: Arc<Mutex<Vec<String>>>,
    /// Whether it keeps a handle before it asks a person.
    keeps: bool,
}

impl TestTool {
    pub(crate) fn named(name: &str) -> Self {
        let schema =
            json!({"type": "object", "properties": {"text": {"type": "string"}}, "additionalProperties": false});
        Self {
            spec: ToolSpec {
                effect: Effect::Read,
                timeout: Duration::from_secs(30),
                max_output_bytes: 1000,
                ..ToolSpec::new(name, format!("the tool {name}"), schema)
            },
            calls: Arc::default(),
            behaves_as: name.into(),
            world: Arc::default(),
            secrets: Arc::default(),
            keeps: false,
        }
    }

    /// The same tool, which keeps a handle before it asks a person.
    pub(crate) fn keeping(mut self) -> Self {
        self.keeps = true;
        self
    }

    /// The same tool, which asks before it acts.
    pub(crate) fn asking(mut self) -> Self {
        self.spec.approval = Ask::UnlessApproved;
        self.writing()
    }

    /// The same tool, whose results are untrusted content.
    pub(crate) fn of_outside(mut self) -> Self {
        self.spec.untrusted = true;
        self
    }

    /// The same tool, of an MCP server.
    pub(crate) fn of_server(mut self, server: &str) -> Self {
        self.spec.server = Some(server.into());
        self
    }

    /// The same tool, described by that MCP server.
    pub(crate) fn described_by(mut self, server: &str) -> Self {
        self.spec.foreign = true;
        self.of_server(server)
    }

    /// The same tool, one of whose arguments is shown to nobody.
    pub(crate) fn sensitive(mut self, argument: &str) -> Self {
        self.spec.sensitive.push(argument.into());
        self
    }

    /// The same tool, whose results may have so many bytes.
    pub(crate) fn saying(mut self, max_output_bytes: usize) -> Self {
        self.spec.max_output_bytes = max_output_bytes;
        self
    }

    /// The same tool, which may take so long.
    pub(crate) fn within(mut self, timeout: Duration) -> Self {
        self.spec.timeout = timeout;
        self
    }

    /// The same tool under another name.
    pub(crate) fn called(mut self, name: &str) -> Self {
        self.spec.name = name.into();
        self
    }

    /// The same tool, which needs a secret of that name.
    pub(crate) fn secret(mut self, name: &str) -> Self {
        self.spec.credential =
            Some(CredentialNeed { name: name.into(), instructions: format!("Paste the {name} here.") });
        self
    }

    /// What the tool weighs besides its arguments: shared, so that a test can change the world.
    pub(crate) fn world(&self) -> Arc<Mutex<String>> {
        self.world.clone()
    }

    /// The same tool, which starts programs.
    pub(crate) fn starting_programs(mut self) -> Self {
        self.spec.takes_variables = true;
        self.writing()
    }

    /// The same tool, with an effect that must not be repeated.
    pub(crate) fn writing(mut self) -> Self {
        self.spec.effect = Effect::External;
        self.spec.idempotent = false;
        self
    }
}

/// A form with one choice.
fn form() -> Form {
    let option = |value: &str, title: &str| FormOption { value: value.into(), title: title.into() };
    let field = FormField {
        name: "size".into(),
        title: String::new(),
        description: String::new(),
        required: true,
        default: None,
        kind: FieldKind::Choice { options: vec![option("s", "Small"), option("m", "")] },
    };
    Form { server: "files".into(), message: "How big?".into(), fields: vec![field], url: None, asks_for_secret: false }
}

#[async_trait]
impl Tool for TestTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn preview(
        &self,
        _arguments: &Map<String, Value>,
        _session: &SessionKey,
    ) -> Result<CallPreview, ToolFailure> {
        let world = self.world.lock().expect("not poisoned").clone();
        let bound = if world.is_empty() { Vec::new() } else { vec![("world".to_owned(), world)] };
        Ok(CallPreview { bound, covers: Some(format!("all of {}", self.spec.name)), ..CallPreview::default() })
    }

    fn waits_for_person(&self, _handle: &Value) -> bool {
        self.keeps
    }

    async fn abandon(&self, handle: &Value) -> bool {
        let is_mine = self.behaves_as == "task";
        if is_mine {
            *self.world.lock().expect("not poisoned") = format!("abandoned: {handle}");
        }
        is_mine
    }

    async fn call(&self, arguments: &Map<String, Value>, context: &ToolContext) -> ToolOutput {
        self.calls.fetch_add(1, Ordering::SeqCst);
        if let Some(secret) = &context.credential {
            self.secrets.lock().expect("not poisoned").push(secret.expose().to_owned());
            if secret.expose() == "wrong" {
                return Err(ToolFailure::CredentialRefused("the secret was not accepted".into()));
            }
        }
        if self.behaves_as == "form" {
            let continued = context.handle.earlier().is_some();
            if self.keeps && !continued {
                assert!(context.handle.keep(json!("the round")).await, "the state of the run has it");
            }
            let nth = if *self.world.lock().expect("not poisoned") == "second" { 2 } else { 1 };
            let answer = context.person.fill_in(form(), nth, &context.cancel).await;
            if self.keeps && context.cancel.is_cancelled() {
                return Err(ToolFailure::Cancelled);
            }
            let begins = if self.keeps { format!("continued: {continued}, ") } else { String::new() };
            return Ok(format!("{begins}{answer:?}").into());
        }
        match self.behaves_as.as_str() {
            "echo" => Ok(arguments.get("text").and_then(Value::as_str).unwrap_or("nothing").into()),
            "moody" if *self.world.lock().expect("not poisoned") == "broken" => {
                Err(ToolFailure::failed("no answer of 192.0.2.7 to ann"))
            }
            "moody" => Ok("it works".into()),
            "fail" => Err(ToolFailure::failed("it does not work")),
            "panic" => panic!("the tool of the test panics"),
            "wait" => {
                tokio::select! {
                    () = context.cancel.cancelled() => Err(ToolFailure::Cancelled),
                    () = tokio::time::sleep(self.spec.timeout.max(Duration::from_secs(30))) => Ok("waited".into()),
                }
            }
            "deaf" => {
                tokio::time::sleep(Duration::from_secs(3600)).await;
                Ok("waited".into())
            }
            "task" => match context.handle.earlier() {
                Some(_) if *self.world.lock().expect("not poisoned") == "stuck" => {
                    tokio::time::sleep(Duration::from_secs(3600)).await;
                    Ok("waited".into())
                }
                Some(handle) => Ok(format!("continued {handle}").into()),
                None => {
                    let is_kept = context.handle.keep(json!("the work")).await;
                    *self.world.lock().expect("not poisoned") = format!("kept: {is_kept}");
                    tokio::time::sleep(Duration::from_secs(3600)).await;
                    Ok("waited".into())
                }
            },
            "chatty" => {
                for minute in 0..300 {
                    tokio::time::sleep(Duration::from_secs(60)).await;
                    context.progress.say(&context.call_id, &format!("minute {minute}"));
                }
                Ok("all of it".into())
            }
            "slow" => {
                tokio::time::sleep(Duration::from_secs(1)).await;
                Ok("slowly".into())
            }
            other => panic!("no such test tool: {other}"),
        }
    }
}
