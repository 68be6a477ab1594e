//! The `goal` of a message or of a job, as programs write it. It becomes the message that a person would write, so that the
//! message alone says what is asked.

use belay_protocol::{GoalBudget, GoalCheck, GoalRequest};
use serde::Deserialize;

use crate::error::ApiError;

/// Most US dollars of a budget. More than any run should cost.
const MAX_USD: f64 = 1e6;

/// When a request is done, and what it may cost.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct NewGoal {
    until: Until,
    #[serde(default)]
    budget: Budget,
}

/// At least one check. All must hold.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "GoalUntil"))]
#[serde(deny_unknown_fields)]
struct Until {
    /// The words of a command that ends with exit code 0. No shell reads them.
    command: Option<Vec<String>>,
    /// Outputs that are submitted: `NAME:TYPE`.
    #[serde(default)]
    outputs: Vec<String>,
    /// A criterion that a model judges by quotes of the work.
    judge: Option<String>,
}

/// The budget of a goal. It lowers the limits of a run and never raises them.
#[derive(Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "GoalBudget"))]
#[serde(deny_unknown_fields)]
struct Budget {
    /// Absent: 5.
    #[cfg_attr(test, schemars(range(min = 1, max = 100)))]
    attempts: Option<u32>,
    usd: Option<f64>,
    /// Seconds of work.
    #[cfg_attr(test, schemars(range(min = 1)))]
    seconds: Option<u64>,
}

impl NewGoal {
    /// The task of a job that works for the goal.
    ///
    /// # Errors
    /// As [`NewGoal::written`], or its budget is that of a job.
    pub(crate) fn task(self, text: &str) -> Result<String, ApiError> {
        if self.budget.usd.is_some() || self.budget.seconds.is_some() {
            return Err(ApiError::invalid(
                "goal: budget: usd and seconds are not for a job; use the budget of the job",
            ));
        }
        self.written(text)
    }

    /// The message that asks for `text` until the goal is reached.
    ///
    /// # Errors
    /// A field is invalid, or cannot be written in a message.
    pub(crate) fn written(self, text: &str) -> Result<String, ApiError> {
        let invalid = |what: &str| ApiError::invalid(format!("goal: {what}"));
        let Self { until: Until { command, outputs, judge }, budget: Budget { attempts, usd, seconds } } = self;
        let micro_usd = match usd {
            Some(usd) if usd > 0.0 && usd <= MAX_USD => Some((usd * 1e6).ceil() as u64),
            Some(_) => return Err(invalid("budget.usd must be above 0 and at most 1000000")),
            None => None,
        };
        let request = GoalRequest {
            text: text.trim().to_owned(),
            until: GoalCheck { command, outputs, judge },
            budget: GoalBudget { attempts, micro_usd, seconds },
        };
        request.written().map_err(|why| invalid(&why))
    }
}
