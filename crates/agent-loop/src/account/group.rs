//! Finds the calls that a finding is about.

use belay_protocol::{Finding, StopReason};

use super::calls::SeenCall;
use super::equal::Equal;
use crate::policies::tool_loops::{Role, SAME_RESULT_FOR_VARIED_ARGUMENTS};

/// The calls of a finding.
pub(super) struct Group<'s, 'a> {
    /// The calls, newest first.
    pub(super) calls: Vec<&'s SeenCall<'a>>,
    /// Changes from the oldest to the newest of these calls.
    pub(super) edits: usize,
}

/// The name of the built-in rule, also if an operator's rule has reported its finding.
pub(super) fn rule(finding: &Finding) -> &str {
    finding.facts.get("measure").and_then(|measure| measure.as_str()).unwrap_or(&finding.rule)
}

/// Whether the finding has this fact.
pub(super) fn has(finding: &Finding, fact: &str) -> bool {
    finding.facts.get(fact).is_some_and(|fact| *fact == true)
}

impl<'s, 'a> Group<'s, 'a> {
    /// Finds the calls of a finding among the newest calls of the run, newest first.
    pub(super) fn of(finding: &Finding, seen: &'s [SeenCall<'a>]) -> Self {
        let count = usize::try_from(finding.count).unwrap_or(usize::MAX);
        let places: Vec<usize> = match finding.reason {
            StopReason::ToolLoop => of_loop(finding, seen, count),
            StopReason::ConsecutiveErrors => {
                let executed = seen.iter().enumerate().filter(|(_, call)| call.result.is_some());
                executed.take_while(|(_, call)| call.failed).map(|(place, _)| place).collect()
            }
            StopReason::UnknownTools | StopReason::InvalidArguments | StopReason::ApprovalReasks => {
                let failed = seen.iter().enumerate().filter(|(_, call)| call.failed);
                failed.take(count).map(|(place, _)| place).collect()
            }
            _ => Vec::new(),
        };
        let calls: Vec<_> = places.into_iter().map(|place| &seen[place]).collect();
        Self { edits: edits(seen, &calls), calls }
    }
}

/// The changes between the oldest and the newest of these calls, including these calls.
pub(super) fn edits(seen: &[SeenCall<'_>], calls: &[&SeenCall<'_>]) -> usize {
    let place = |call: &&SeenCall<'_>| seen.iter().position(|other| std::ptr::eq(other, *call));
    match (calls.first().and_then(place), calls.last().and_then(place)) {
        (Some(newest), Some(oldest)) => seen[newest..=oldest].iter().filter(|call| changes(call)).count(),
        _ => 0,
    }
}

fn changes(call: &SeenCall<'_>) -> bool {
    call.outline.role == Role::Changes && call.result.is_some() && !call.failed
}

fn of_loop(finding: &Finding, seen: &[SeenCall<'_>], count: usize) -> Vec<usize> {
    let told = |call: &SeenCall<'_>| call.outline.role != Role::Aside;
    let is_named = |call: &SeenCall<'_>| {
        let fingerprint = format!("{:016x}", call.outline.fingerprint);
        finding.fingerprints.contains(&fingerprint)
    };
    let calls = || seen.iter().enumerate();
    if has(finding, "idle") {
        return calls().filter(|(_, call)| told(call)).take(count).map(|(place, _)| place).collect();
    }
    let (varied, stale) = (rule(finding) == SAME_RESULT_FOR_VARIED_ARGUMENTS, has(finding, "repeated_answers"));
    if !varied && !stale {
        let most = count.saturating_mul(finding.fingerprints.len());
        return calls().filter(|(_, call)| is_named(call)).take(most).map(|(place, _)| place).collect();
    }
    // The fingerprints are those of a few calls. The other calls have the same result.
    let named = || seen.iter().filter(|call| is_named(call) && call.result.is_some());
    let Some(newest) = named().find(|call| !changes(call)).or_else(|| named().next()) else { return Vec::new() };
    let mut places = Vec::new();
    for (place, call) in calls().filter(|(_, call)| told(call) && call.result.is_some()) {
        let same = || call.name == newest.name && Equal::of_two(call, newest);
        if (stale && is_named(call)) || same() {
            places.push(place);
        } else if stale && !changes(call) {
            break;
        }
    }
    if varied {
        places.truncate(count);
    }
    places
}
