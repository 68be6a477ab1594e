//! Tools whose effects are counted outside of every daemon.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use belay_protocol::{Effect, Tool, ToolContext, ToolFailure, ToolOutput, ToolSpec};
use serde_json::{Map, Value, json};
use tokio::time::sleep;

/// How often each effect was had, by the session and the step that the model gave.
type Effects = Arc<Mutex<BTreeMap<(String, u64), u32>>>;

/// `post` has an effect that must not be repeated; `look` has none.
#[derive(Clone, Default)]
pub(super) struct Tools {
    effects: Effects,
}

impl Tools {
    pub(super) fn all(&self) -> Vec<Arc<dyn Tool>> {
        let tool =
            |name: &str| -> Arc<dyn Tool> { Arc::new(Worked { spec: spec(name), effects: self.effects.clone() }) };
        vec![tool("post"), tool("look")]
    }

    pub(super) fn effects(&self) -> BTreeMap<(String, u64), u32> {
        self.effects.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn spec(name: &str) -> ToolSpec {
    let schema = json!({
        "type": "object", "properties": {"step": {"type": "integer"}}, "required": ["step"], "additionalProperties": false,
    });
    let once = name == "post";
    ToolSpec {
        effect: if once { Effect::External } else { Effect::Read },
        idempotent: !once,
        timeout: Duration::from_secs(60),
        ..ToolSpec::new(name, format!("the tool {name}"), schema)
    }
}

struct Worked {
    spec: ToolSpec,
    effects: Effects,
}

#[async_trait]
impl Tool for Worked {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    /// The effect comes in the middle: a crash may come before it, or after it and before the answer.
    async fn call(&self, arguments: &Map<String, Value>, context: &ToolContext) -> ToolOutput {
        let step = arguments.get("step").and_then(Value::as_u64).ok_or_else(|| ToolFailure::failed("no step"))?;
        sleep(Duration::from_secs(1)).await;
        if !self.spec.idempotent {
            let key = (context.session.as_str().to_owned(), step);
            *self.effects.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_default() += 1;
        }
        sleep(Duration::from_secs(1)).await;
        Ok(format!("step {step} is done").into())
    }
}
