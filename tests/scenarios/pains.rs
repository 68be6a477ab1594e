//! What users of such servers have suffered from most, and the tests that keep it from happening here. A name without a module
//! is a test of this file; others are found by their module. `documents::every_test_that_a_table_names_exists` looks after them.
//!
//! | pain | proved by |
//! |---|---|
//! | a session stays busy for ever | `a_session_is_not_busy_for_ever_when_the_model_falls_silent`, `stuck::a_run_that_is_silent_for_too_long_is_ended_and_its_queue_goes_on` |
//! | recovery throws waiting messages away | `a_turn_that_fails_throws_nothing_away_that_waits_behind_it` |
//! | a stop is ignored, or waits behind the run | `stopping::the_stop_route_ends_a_streaming_run_and_closes_the_connection_to_the_model`, `stop::a_stop_from_another_channel_drops_the_model_call_at_once` |
//! | after a stop the run is begun again by a retry | `a_stopped_run_is_not_begun_again_by_a_retry`, `fallback::a_stop_while_another_model_stands_in_ends_the_run` |
//! | a stop leaves processes or subagents | `a_stop_leaves_no_process_that_the_run_had_started`, `brakes_counts::a_hundred_stops_leave_no_process_no_zombie_and_no_late_start`, `subagents::a_stop_reaches_the_whole_tree_at_once` |
//! | the streamed answer and the final one are both said | `streaming::pieces_are_messages_of_their_own_and_the_end_says_the_rest`, `streaming::a_preview_grows_and_becomes_the_answer` |
//! | a tool has said it, and the final answer says it again | `streaming::what_a_tool_has_sent_here_is_not_said_again` |
//! | a delivery is repeated after a restart | `telegram::the_same_update_delivered_five_times_is_answered_once`, `crash::a_reply_is_committed_with_the_end_of_its_turn_and_not_sent_twice`, `deliver::a_server_that_never_answers_makes_the_delivery_ambiguous_after_its_deadline` |
//! | pieces of an answer come in another order | `streaming::pieces_are_messages_of_their_own_and_the_end_says_the_rest`, `streaming::what_was_said_before_a_crash_is_not_said_again` |
//! | messages are lost at a restart | `surviving::killed_during_a_model_call_the_message_is_answered_once_in_the_same_conversation`, `lifecycle::a_turn_that_outlives_the_grace_is_recorded_and_what_waits_is_answered_by_the_next_start` |
//! | an old backlog is answered as if it were new | `an_old_backlog_is_not_answered_as_new_and_what_is_new_is`, `polling::an_old_backlog_is_confirmed_unanswered_and_each_conversation_is_told_once` |
//! | a half-finished turn is never resumed, or twice | `surviving::killed_during_a_model_call_the_message_is_answered_once_in_the_same_conversation`, `recovery::finished_steps_are_kept_over_a_crash_and_their_tools_not_run_again` |
//! | surprises of the queue | `nothing_lost::in_every_order_of_messages_stops_and_crashes_each_message_has_one_end`, `collect::messages_for_different_places_get_their_own_turns_until_all_are_answered`, `settings::a_channel_has_its_mode_and_the_message_the_last_word` |
//! | compaction goes in circles | `compaction::what_does_not_help_is_not_repeated_and_then_large_results_lose_their_middle`, `compaction::a_turn_is_shortened_no_more_often_than_is_set` |
//! | compaction hangs, and the session with it | `compaction::an_account_of_no_use_is_asked_for_once_more_and_then_made_by_rule`, `compaction::while_a_conversation_is_shortened_messages_are_taken_and_a_stop_ends_it` |
//! | words of a person that look like an overflow start a compaction | `words_that_look_like_an_overflow_shorten_nothing` |
//! | locks that nobody holds, two writers | `a_killed_daemon_starts_again_on_its_store_and_all_who_write_at_once_are_answered`, `surviving::a_second_daemon_on_the_same_store_is_refused`, `crash::the_dead_owners_lease_is_refused_once_the_new_boot_has_the_lane` |
//! | a broken history is refused for ever | `a_history_that_a_crash_left_open_is_not_refused_for_ever`, `validity::whatever_history_is_left_the_request_is_valid` |
//! | a conversation is forgotten over night, or reset without a word | `sessions::without_a_rule_a_conversation_goes_on_for_ever`, `sessions::after_a_silence_a_message_begins_a_new_conversation_and_its_person_is_told_once` |
//! | what works by itself spends without end | `heartbeat::without_anything_to_do_or_anybody_there_no_model_is_asked`, `endings::money_ends_a_run_and_a_session_before_the_limit_and_a_used_up_day_refuses` holds for whoever starts a run |
//! | a tool loop burns tokens | `stopbench::stopbench_publishes_what_it_measures_and_ours_is_ahead`, `endings::the_same_call_five_times_is_held_back_and_five_more_times_end_the_run` |
//! | polling of a platform dies, or burns the processor | `polling::errors_of_the_server_are_waited_out`, `polling::no_more_is_asked_for_behind_a_hundred_updates_of_which_the_first_is_unsettled` |
//! | a fallback is not used, or wrongly | `fallback::when_the_first_model_cannot_answer_the_second_one_does_and_it_shows`, `circuit::each_kind_of_failure_has_its_rest` |
//! | a schedule does not fire, or twice | `night::after_a_night_of_crashes_each_routine_run_was_done_once_or_has_honestly_failed`, `routines::a_schedule_fires_each_time_once_also_where_two_engines_share_a_store`, `routine_pains::a_changed_schedule_fires_at_its_new_times_and_at_no_old_one`, `routine_pains::a_store_that_fails_for_an_hour_ends_no_timer`, `routine_pains::a_clock_that_jumps_by_an_hour_or_a_day_either_way_fires_no_time_twice_and_loses_none` |
//! | the result of a subagent is lost | `subagents::a_task_with_outputs_ends_with_its_goal_and_the_parent_reads_them`, `subagents::a_crash_leaves_a_call_whose_outcome_nobody_knows_and_it_is_not_started_again` |
//! | the silent token is shown | `the_silent_token_is_shown_nowhere`, `streaming::nobody_reads_a_part_of_the_silent_token_or_reasoning_as_text`, `telegram::the_silent_token_reaches_nobody` |
//! | hooks are documented and never fired | `hooks::each_point_is_reached_once_on_each_path` |
//! | one busy conversation holds up all others, the processor is never at rest | `one_busy_conversation_holds_up_no_other`, `behind_a_flood_of_text_the_daemon_says_that_it_lives_and_is_at_rest_after_it`, `limits::a_reader_that_stops_reading_loses_its_connection_and_slows_nobody` |
//! | groups are answered by everybody, by nobody, or in a wrong session | `groups::a_group_is_heard_where_it_is_listed_and_as_much_as_is_wanted`, `intake::conversations_of_two_people_two_groups_and_two_topics_are_never_the_same` |
//! | a changed configuration keeps the daemon from starting, again and again | `a_configuration_that_breaks_while_the_daemon_runs_disturbs_nothing_and_is_not_started_with_again_and_again`, `command_line::three_mistakes_in_a_file_are_named_at_once` |
//! | questions are lost, expire, or find no match | `approvals::a_question_outlives_a_kill_and_is_answered_by_a_program`, `approvals::silence_becomes_a_denial`, `approvals::an_approval_does_not_outlive_what_it_was_given_for` |

use std::time::Duration;

use anyhow::{Context, Result};
use belay_tests::bot_api::{BotApi, TOKEN, private_message};
use belay_tests::daemon::{Daemon, Home};
use belay_tests::model_server::{Answer, ModelServer};
use serde_json::json;

#[tokio::test]
async fn a_session_is_not_busy_for_ever_when_the_model_falls_silent() -> Result<()> {
    let model = ModelServer::start(vec![Answer::Silence], Answer::text("here again")).await;
    let home = Home::new().openai(&model.base_url).set("llm.idle_timeout_s", 10).set("llm.max_attempts", 1);
    let daemon = home.start().await?;
    let silent = daemon.ask("alice", "are you there").await?;
    assert_eq!((silent["status"].as_str(), silent["reason"].as_str()), (Some("failed"), Some("network")), "{silent}");
    assert!(silent["reply"].as_str().is_some_and(|line| !line.is_empty()), "the person is told: {silent}");
    assert_eq!(daemon.ask("alice", "and now").await?["reply"], "here again");
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn a_turn_that_fails_throws_nothing_away_that_waits_behind_it() -> Result<()> {
    let refused = Answer::Status(401, json!({"error": {"message": "no such key"}}), Vec::new());
    let model = ModelServer::start(vec![Answer::Silence, refused], Answer::text("answered")).await;
    let home = Home::new().openai(&model.base_url);
    let home = home.set("llm.idle_timeout_s", 10).set("llm.max_attempts", 1);
    let daemon = home.start().await?;
    let mut runs = Vec::new();
    for text in ["one", "two", "three", "four"] {
        runs.push(daemon.send("alice", text).await?);
    }
    let mut ends = Vec::new();
    for run in &runs {
        let run = daemon.finished(run).await?;
        ends.push(run["reason"].as_str().context("a reason")?.to_owned());
    }
    assert_eq!(ends, ["network", "provider_auth", "final_text", "final_text"]);
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn a_stopped_run_is_not_begun_again_by_a_retry() -> Result<()> {
    let later = vec![("retry-after", "1".to_owned())];
    let busy = Answer::Status(503, json!({"error": {"message": "busy"}}), later);
    let model = ModelServer::start(vec![busy], Answer::text("hello")).await;
    let home = Home::new().openai(&model.base_url);
    let daemon = home.start().await?;
    let run = daemon.send("alice", "one").await?;
    model.seen(1).await;
    daemon.request("POST", &format!("/api/v1/runs/{run}/stop"), None).await?;
    // The answer to the stop waits a short time for the end, which a busy machine may store later.
    assert_eq!(daemon.finished(&run).await?["status"], "stopped");
    // Longer than the pause that the server asked for: a retry that was not cancelled would come now.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(model.requests().len(), 1);
    assert_eq!(daemon.run(&run).await?["status"], "stopped");
    assert_eq!(daemon.ask("alice", "two").await?["reply"], "hello");
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn words_that_look_like_an_overflow_shorten_nothing() -> Result<()> {
    let model = ModelServer::start(vec![], Answer::text("That error means that a prompt was too long.")).await;
    let home = Home::new().openai(&model.base_url);
    let daemon = home.start().await?;
    daemon.ask("alice", "hello").await?;
    let text =
        "What does this mean: context_length_exceeded, maximum context length is 4096 tokens, prompt is too long";
    let run = daemon.ask("alice", text).await?;
    assert_eq!(run["reason"], "final_text", "{run}");
    let events = daemon.events(run["run_id"].as_str().context("an id")?).await?;
    assert!(events.iter().all(|event| event["type"] != "compacted"), "{events:?}");
    assert_eq!(model.requests().len(), 2);
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn a_history_that_a_crash_left_open_is_not_refused_for_ever() -> Result<()> {
    let call = Answer::call("run_command", json!({"argv": ["sleep", "1000"]}));
    let model = ModelServer::start(vec![call], Answer::text("I do not know how it ended.")).await;
    let home = Home::new().openai(&model.base_url).set("tools.sandbox.policy", "off");
    may_run_commands(&home)?;
    let daemon = home.start().await?;
    let run = daemon.send("alice", "wait a while").await?;
    model.seen(1).await;
    daemon.until(&run, "running").await?;
    daemon.kill().await?;
    let daemon = home.start().await?;
    assert_eq!(daemon.finished(&run).await?["reply"], "I do not know how it ended.");
    assert_eq!(daemon.ask("alice", "go on").await?["reason"], "final_text");
    for request in model.requests() {
        let messages = request["messages"].as_array().context("messages")?.clone();
        let ids = |role: &str, of: fn(&serde_json::Value) -> Vec<String>| -> Vec<String> {
            messages.iter().filter(|message| message["role"] == role).flat_map(of).collect()
        };
        let calls = ids("assistant", |message| {
            let calls = message["tool_calls"].as_array().into_iter().flatten();
            calls.filter_map(|call| call["id"].as_str().map(str::to_owned)).collect()
        });
        let results = ids("tool", |message| message["tool_call_id"].as_str().map(str::to_owned).into_iter().collect());
        assert_eq!(calls, results, "each call has its one result: {request}");
    }
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn the_silent_token_is_shown_nowhere() -> Result<()> {
    let model = ModelServer::start(vec![Answer::text("NO_REPLY")], Answer::text("Yes?")).await;
    let home = Home::new().openai(&model.base_url);
    let daemon = home.start().await?;
    let silent = daemon.ask("alice", "never mind").await?;
    assert_eq!((&silent["reply"], &silent["evidence"]["silent"]), (&json!(null), &json!(true)), "{silent}");
    assert_eq!(daemon.ask("alice", "hello").await?["reply"], "Yes?");
    let (_, history) = daemon.request("GET", "/api/v1/sessions/alice/messages", None).await?;
    let texts: Vec<_> = history["messages"].as_array().into_iter().flatten().map(|line| &line["text"]).collect();
    assert_eq!(texts, ["never mind", "hello", "Yes?"]);
    let (_, export) = daemon.request("GET", "/api/v1/sessions/alice/export", None).await?;
    assert!(!export.to_string().contains("NO_REPLY"), "{export}");
    let again = model.requests()[1].to_string();
    assert!(again.contains("NO_REPLY"), "the model knows that it was silent: {again}");
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn one_busy_conversation_holds_up_no_other() -> Result<()> {
    let model = ModelServer::start(vec![Answer::Stall], Answer::text("at once")).await;
    let home = Home::new().openai(&model.base_url);
    let daemon = home.start().await?;
    let busy = daemon.send("alice", "talk for ever").await?;
    model.seen(1).await;
    for number in 0..20 {
        assert_eq!(daemon.ask(&format!("guest-{number}"), "hello").await?["reply"], "at once");
    }
    assert_eq!(daemon.run(&busy).await?["status"], "running");
    daemon.shut_down().await?;
    Ok(())
}

/// Waits until something holds of the processes of this machine; `what` says so in a failure.
async fn until(what: &str, holds: impl Fn() -> bool) -> Result<()> {
    let patience = tokio::time::Instant::now() + Duration::from_secs(30);
    while !holds() {
        anyhow::ensure!(tokio::time::Instant::now() < patience, "{what}: not within 30 s");
        tokio::time::sleep(Duration::from_millis(20)).await; // polling real processes: there is no clock to pause
    }
    Ok(())
}

/// The processes of this machine that sleep for so many seconds.
fn sleepers(seconds: &str) -> usize {
    let wanted = format!("sleep\0{seconds}\0");
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let lines = processes.filter_map(|entry| std::fs::read_to_string(entry.path().join("cmdline")).ok());
    lines.filter(|line| line.ends_with(&wanted) && line.matches('\0').count() == 2).count()
}

#[tokio::test]
async fn a_stop_leaves_no_process_that_the_run_had_started() -> Result<()> {
    // Unlike any other process of this machine. One in the background, one in a session of its own, one in front.
    let seconds = format!("{}", 172_800 + std::process::id());
    let script = format!("sleep {seconds} & setsid sleep {seconds} & sleep {seconds}");
    let call = Answer::call("run_command", json!({"argv": ["sh", "-c", script]}));
    let model = ModelServer::start(vec![call], Answer::text("here")).await;
    let home = Home::new().openai(&model.base_url).set("tools.sandbox.policy", "off");
    may_run_commands(&home)?;
    let daemon = home.start().await?;
    let run = daemon.send("alice", "start all of it").await?;
    until("three processes", || sleepers(&seconds) == 3).await?;
    let (status, report) = daemon.request("POST", &format!("/api/v1/runs/{run}/stop?wait_ms=10000"), None).await?;
    assert_eq!(status, 200, "{report}");
    daemon.until(&run, "stopped").await?;
    until("none of them", || sleepers(&seconds) == 0).await?;
    assert_eq!(daemon.ask("alice", "are you there").await?["reply"], "here");
    daemon.shut_down().await?;
    Ok(())
}

/// Settings by which commands are run without a question.
fn may_run_commands(home: &Home) -> Result<()> {
    let settings = home.path().join("config/belay");
    std::fs::create_dir_all(&settings)?;
    let rule = "[[approvals.rules]]\ntool = \"run_command\"\nask = \"never\"\n";
    Ok(std::fs::write(settings.join("belay.toml"), rule)?)
}

#[tokio::test]
async fn an_old_backlog_is_not_answered_as_new_and_what_is_new_is() -> Result<()> {
    let api = BotApi::start().await;
    let home = Home::new().env("TELEGRAM_BOT_TOKEN", TOKEN);
    let home = home.set("channels.telegram.enabled", true).set("channels.telegram.mode", "polling");
    let home = home.set("channels.telegram.api_base", api.url.as_str()).set("channels.telegram.allow", json!([42, 43]));
    let home = home.set("channels.telegram.stream", "off");
    let update = |number: u32, user: i64, days_ago: u64, text: &str| {
        let mut update = private_message(number, user, text);
        let date = update["message"]["date"].as_u64().unwrap_or_default();
        update["message"]["date"] = json!(date - days_ago * 86_400);
        update
    };
    for number in 1..=110 {
        api.update(update(number, 42 + i64::from(number % 2), 3, "calculate 1+1"));
    }
    api.update(update(111, 42, 0, "calculate 17*23"));
    let daemon = home.start().await?;
    let sent = api.messages(3).await;
    daemon.shut_down().await?;
    let told = |chat: i64| sent.iter().filter(|m| m["chat_id"] == chat).filter_map(|m| m["text"].as_str()).collect();
    let (ada, eve): (Vec<&str>, Vec<&str>) = (told(42), told(43));
    assert!(ada.len() == 2 && ada[0].contains("too old") && ada[1].contains("391"), "{ada:?}");
    assert!(eve.len() == 1 && eve[0].contains("too old"), "{eve:?}");
    assert_eq!(api.sent().len(), 3);
    Ok(())
}

#[tokio::test]
async fn a_killed_daemon_starts_again_on_its_store_and_all_who_write_at_once_are_answered() -> Result<()> {
    let home = Home::new();
    for _ in 0..3 {
        let daemon = home.start().await?;
        assert!(home.path().join("data/belay").read_dir()?.flatten().any(|file| is_lock(&file.path())));
        let asked = futures_util::future::join_all((0..10).map(|_| daemon.ask("alice", "calculate 6*7"))).await;
        for run in asked {
            let run = run?;
            assert_eq!(run["status"], "completed", "{run}");
        }
        daemon.kill().await?;
    }
    Ok(())
}

fn is_lock(path: &std::path::Path) -> bool {
    path.extension().is_some_and(|extension| extension == "lock")
}

/// Processor time that a process has taken, in hundredths of a second.
fn processor_time(daemon: &Daemon) -> Result<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", daemon.pid()))?;
    // proc(5): the name stands in parentheses and may hold anything; utime and stime are fields 14 and 15.
    let rest = stat.rsplit_once(')').context("a name")?.1;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    Ok(fields[11].parse::<u64>()? + fields[12].parse::<u64>()?)
}

#[tokio::test]
async fn behind_a_flood_of_text_the_daemon_says_that_it_lives_and_is_at_rest_after_it() -> Result<()> {
    // A piece for each byte, thousands of them within seconds: the requests below are answered in the midst of it.
    let flood = Answer::Drip("All work and no play. ".repeat(80), Duration::from_millis(1));
    let model = ModelServer::start(vec![], flood).await;
    let home = Home::new().openai(&model.base_url).set("stops.loops", false);
    let daemon = home.start().await?;
    let mut floods = Vec::new();
    for n in 0..8 {
        floods.push(daemon.send(&format!("flood-{n}"), "talk").await?);
    }
    for _ in 0..20 {
        let (status, health) = daemon.request("GET", "/livez", None).await?;
        assert_eq!(status, 200, "{health}");
    }
    let mut at_work = 0;
    for run in &floods {
        at_work += usize::from(daemon.run(run).await?["status"] == "running");
    }
    assert!(at_work > 0, "the daemon was asked while the floods came in, not behind them");
    for run in floods {
        let run = daemon.finished(&run).await?;
        assert_eq!(run["status"], "completed", "{run}");
    }
    // Only what the daemon itself takes counts, however busy the machine is.
    let before = processor_time(&daemon)?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let taken = processor_time(&daemon)? - before;
    assert!(taken < 100, "half of a processor is taken by nothing: {taken} hundredths of a second in two seconds");
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn a_configuration_that_breaks_while_the_daemon_runs_disturbs_nothing_and_is_not_started_with_again_and_again()
-> Result<()> {
    let home = Home::new();
    let file = home.path().join("config/belay/belay.toml");
    std::fs::create_dir_all(file.parent().context("a folder")?)?;
    std::fs::write(&file, "[agent]\nmax_tool_iterations = 7\n")?;
    let daemon = home.start().await?;
    daemon.ask("alice", "calculate 6*7").await?;
    std::fs::write(&file, "[agent]\nmax_tool_iterations = 0\nmax_tool_iterations_too = 7\n")?;
    assert_eq!(daemon.ask("alice", "calculate 6*7").await?["status"], "completed", "it goes on with what it has read");
    daemon.shut_down().await?;
    for command in ["check", "run"] {
        let refused = home.run(&[command, "--set", "llm.provider=rehearsal"], "").await?;
        assert_eq!(refused.status.code(), Some(78), "{refused:?}");
        let said = format!("{}{}", refused.stdout, refused.stderr);
        assert!(said.contains("max_tool_iterations_too") && said.contains("belay.toml"), "{said}");
    }
    let unit = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/belay.service"))?;
    assert!(unit.contains("RestartPreventExitStatus=78"), "systemd does not try it again and again");
    std::fs::write(&file, "[agent]\nmax_tool_iterations = 7\n")?;
    let daemon = home.start().await?;
    let (_, history) = daemon.request("GET", "/api/v1/sessions/alice/messages", None).await?;
    assert_eq!(history["messages"].as_array().map(Vec::len), Some(4), "nothing was lost: {history}");
    daemon.shut_down().await?;
    Ok(())
}
