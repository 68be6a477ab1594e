//! The digest of a webhook's secret is shown to nobody, so what is read back is put again without it.

use belay_automation::RoutinesConfig;
use belay_protocol::{
    Ack, Control, PrincipalRole, Refusal, RoutineAnswer, RoutineRecord, RoutineRequest, RoutineSpec, Trigger,
};
use belay_testkit::scripted_model::ScriptedModel;

use crate::routines::routine;
use crate::support::{Setup, Talker};

fn hook(path: &str, secret_sha256: &str) -> RoutineSpec {
    routine("build", Trigger::Webhook { path: path.into(), secret_sha256: secret_sha256.into() })
}

async fn put(talker: &Talker, spec: RoutineSpec) -> Result<RoutineRecord, Refusal> {
    let put = RoutineRequest::Put { spec, fresh: false };
    match talker.control_as(PrincipalRole::Client, Control::Routine(Box::new(put))).await {
        Ack::Routine(RoutineAnswer::Routine(routine)) => Ok(*routine),
        Ack::Refused(refusal) => Err(refusal),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_put_without_a_digest_keeps_ones_own_and_nobody_elses() {
    let setup = Setup { routines: RoutinesConfig::default(), ..Setup::new(ScriptedModel::new([])) };
    let agent = setup.start().await;
    let digest = "ab".repeat(32);
    let missing = |refused: Result<RoutineRecord, Refusal>| match refused {
        Err(Refusal::Invalid(what)) => what.contains("trigger.secret_sha256"),
        _ => false,
    };
    assert!(missing(put(&agent.one, hook("ci", "")).await), "there is none yet");
    let made = put(&agent.one, hook("ci", &digest)).await.expect("made");
    let read_back = serde_json::to_value(&made).expect("our own type");
    assert_eq!(read_back["trigger"], serde_json::json!({"kind": "webhook", "path": "ci"}));
    let changed = put(&agent.one, hook("builds", "")).await.expect("changed");
    assert_eq!(changed.spec, hook("builds", &digest));
    // Somebody else of that name, in another channel, learns nothing and takes nothing over.
    assert!(missing(put(&agent.two, hook("builds", "")).await), "it is not theirs");
    let other = "cd".repeat(32);
    assert_eq!(put(&agent.one, hook("builds", &other)).await.expect("changed").spec, hook("builds", &other));
    let manual = put(&agent.one, routine("build", Trigger::Manual)).await.expect("changed");
    assert_eq!(manual.spec.trigger, Trigger::Manual);
    assert!(missing(put(&agent.one, hook("builds", "")).await), "it has none any more");
    agent.shut_down().await;
}
