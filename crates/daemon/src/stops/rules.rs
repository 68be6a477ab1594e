//! The rules that recordings are judged by.

use std::path::Path;

use belay_agent_loop::policies::StopRules;

use super::{CheckArgs, EvalArgs};
use crate::environment::Environment;
use crate::exit::Failure;

pub(super) fn of_check(_args: &CheckArgs, _env: &Environment) -> Result<StopRules, Failure> {
    Ok(StopRules::progress())
}

pub(super) fn of_eval(_args: &EvalArgs) -> Result<StopRules, Failure> {
    let _ = Path::new("");
    Ok(StopRules::progress())
}
