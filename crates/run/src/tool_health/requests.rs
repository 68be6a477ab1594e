//! Requests about tools, by people and by programs.

use belay_protocol::{Inbound, Refusal, StoreError, ToolHealth, ToolOff, ToolRequest, ToolState};

use super::health::Health;
use super::rules::may_be_off;

/// Maximum length of the reason for disabling a tool, in characters. Models read it with every refusal.
const MOST_WHY: usize = 200;

/// Lists tools, or disables or enables one. Only operators get evidence, because it may come from any conversation.
///
/// # Errors
/// The reason why the request was not carried out.
pub async fn request(health: &Health, request: ToolRequest, by: &Inbound) -> Result<Vec<ToolHealth>, Refusal> {
    let operator = by.principal.is_operator();
    let name = match request {
        ToolRequest::List => {
            let all = health.all();
            return Ok(if operator { all } else { all.into_iter().map(ToolHealth::for_everybody).collect() });
        }
        _ if !operator => return Err(Refusal::Forbidden("Only an operator may disable and enable tools.".into())),
        ToolRequest::Disable { name, detail: why } => {
            let known = find(health, &name)?;
            if !may_be_off(&name) {
                return Err(Refusal::Invalid(format!("{name} cannot be disabled: runs need it to end.")));
            }
            let off = ToolOff {
                since: health.now().date,
                until: None,
                for_s: 0,
                actor: by.principal.id.to_string(),
                detail: reason(&why)?,
                failures: known.failures,
                runs: known.runs,
            };
            health.switch(&name, Some(off), &by.principal.id).await.map_err(|error| unstored(&error))?;
            name
        }
        ToolRequest::Enable(name) => {
            // A tool that only fails can be enabled too: this resets its failure count.
            if find(health, &name)?.state != ToolState::Ok {
                health.switch(&name, None, &by.principal.id).await.map_err(|error| unstored(&error))?;
            }
            name
        }
    };
    find(health, &name).map(|tool| vec![tool])
}

fn find(health: &Health, name: &str) -> Result<ToolHealth, Refusal> {
    health.one(name).ok_or_else(|| {
        Refusal::Unknown(format!("There is no tool {name:?}; /tools lists them. A server is named mcp:NAME."))
    })
}

/// The reason as one line.
fn reason(why: &str) -> Result<String, Refusal> {
    let why = why.split_whitespace().collect::<Vec<_>>().join(" ");
    let why = why.trim_end_matches('.').to_owned();
    match why.chars().count() {
        0 => Err(Refusal::Invalid("Give a reason: models read it.".into())),
        n if n > MOST_WHY => Err(Refusal::Invalid(format!("The reason has {n} characters; it may have {MOST_WHY}."))),
        _ => Ok(why),
    }
}

fn unstored(error: &StoreError) -> Refusal {
    Refusal::Store(error.to_string())
}
