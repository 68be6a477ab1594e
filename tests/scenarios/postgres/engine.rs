//! Scenarios of this suite, run once more over PostgreSQL.

use std::process::Stdio;

use anyhow::{Result, ensure};
use belay_testkit::postgres::Programs;
use belay_tests::daemon::ENGINE;
use tokio::process::Command;

/// The chosen scenarios: together they use each table, and each way in which a kill interrupts a run.
const CHOSEN: &[&str] = &[
    "approvals::a_question_outlives_a_kill_and_is_answered_by_a_program",
    "attachments::a_picture_reaches_a_model_that_sees_in_every_step_and_is_deleted_with_its_conversation",
    "conversation::tools_work_through_the_real_loop",
    "jobs::killed_in_the_middle_a_job_goes_on_and_its_result_comes_once",
    "memory::notes_are_listed_searched_edited_exported_and_deleted_on_the_command_line",
    "queueing::what_was_collected_is_one_turn_also_over_a_crash",
    "reads::costs_are_kept_by_day_person_model_and_purpose",
    "reads::events_are_printed_and_followed_over_a_restart",
    "routines::killed_in_the_middle_a_routine_run_goes_on_and_what_it_says_comes_once",
    "sending_files::a_picture_reaches_telegram_as_a_photo_with_its_caption_and_everything_else_as_a_document",
    "sessions::what_was_said_is_found_read_out_and_deleted_also_after_a_restart",
    "stopping::the_stop_route_ends_a_streaming_run_and_closes_the_connection_to_the_model",
    "surviving::killed_during_a_model_call_the_message_is_answered_once_in_the_same_conversation",
    "work_asks::a_job_asks_its_creator_survives_kills_and_acts_once_after_a_yes",
];

#[tokio::test]
async fn chosen_scenarios_pass_over_postgresql() -> Result<()> {
    if Programs::for_test()?.is_none() {
        return Ok(());
    }
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--exact", "--test-threads=4"]).args(CHOSEN).env(ENGINE, "postgres");
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output().await?;
    let printed = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "{printed}\n{}", String::from_utf8_lossy(&output.stderr));
    let all = format!("test result: ok. {} passed", CHOSEN.len());
    ensure!(printed.contains(&all), "a scenario has another name: {printed}");
    Ok(())
}
