//! Each brake at work, as the rehearsal provider makes it act.

use anyhow::Result;
use belay_tests::daemon::Home;

#[tokio::test]
async fn every_misbehaviour_has_an_ending_and_its_brake_is_an_event() -> Result<()> {
    let home = Home::new();
    let daemon = home.start().await?;
    for (text, status, reason, brake) in [
        ("rehearse loop", "completed", "final_text", Some("duplicate_failures")),
        ("rehearse intent", "completed", "final_text", Some("tool_intent_nudge")),
        ("rehearse truncation", "completed", "final_text", Some("truncated_calls")),
        ("rehearse failures", "stopped", "consecutive_errors", Some("consecutive_errors")),
        ("rehearse unknown tool", "completed", "final_text", Some("unavailable_tool")),
        ("rehearse storm", "completed", "final_text", None),
        ("rehearse chant", "stopped", "chanting", Some("CHANTING_IDENTICAL_SENTENCES")),
        ("rehearse empty", "completed", "empty_reply", None),
        ("rehearse silent", "completed", "final_text", None),
        ("rehearse error auth", "failed", "provider_auth", None),
        ("rehearse error bad", "failed", "bad_request", None),
    ] {
        let run = daemon.ask(text, text).await?;
        assert_eq!((run["status"].as_str(), run["reason"].as_str()), (Some(status), Some(reason)), "{text}: {run}");
        let events = daemon.events(run["run_id"].as_str().unwrap_or_default()).await?;
        let ends = events.iter().filter(|event| event["type"] == "run_ended").count();
        assert_eq!(ends, 1, "{text}: exactly one end");
        let brakes: Vec<_> = events.iter().filter_map(|event| event["guardrail"].as_str()).collect();
        match brake {
            Some(brake) => assert!(brakes.contains(&brake), "{text}: {brakes:?}"),
            None => assert!(brakes.is_empty(), "{text}: {brakes:?}"),
        }
    }
    daemon.shut_down().await?;
    Ok(())
}
