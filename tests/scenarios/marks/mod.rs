//! The marks of untrusted content are for models: no road by which a text reaches a person shows one.
//!
//! The model repeats marks wherever it writes, and the results of its tools have marks of their own, also those of calls that
//! failed. Each scene makes such texts and reads what a person gets at once; then `roads.rs` reads everything that is stored.
//! `belay context` shows what the model reads, so it is the one road that keeps the marks.

mod roads;
mod scenes;
mod streams;
mod work;
mod world;

use anyhow::Result;
use belay_tests::daemon::Home;
use belay_tests::model_server::{Answer, ModelServer};
use serde_json::json;

use world::{Roads, TOLD, World, quoted};

#[tokio::test]
async fn no_road_to_a_person_shows_the_marks_of_untrusted_content() -> Result<()> {
    let mut world = World::start(Answer::text(&quoted())).await?;
    let mut roads = Roads::default();
    scenes::answers(&mut world, &mut roads).await?;
    streams::pieces(&mut world, &mut roads).await?;
    streams::thoughts(&mut world, &mut roads).await?;
    streams::stream_that_is_stopped(&mut world, &mut roads).await?;
    scenes::calls_of_a_client(&world, &mut roads).await?;
    scenes::provider_that_quotes_its_input(&mut world, &mut roads).await?;
    scenes::subagent_and_plan(&mut world, &mut roads).await?;
    scenes::question(&mut world, &mut roads).await?;
    work::job(&mut world, &mut roads).await?;
    work::routine(&mut world, &mut roads).await?;
    work::notes_and_summaries(&mut world, &mut roads).await?;
    work::telegram(&mut world, &mut roads).await?;
    roads::stored(&world, &mut roads).await?;
    let mut world = world.again().await?;
    roads::standard_input(&mut world, &mut roads).await?;
    roads.check();
    Ok(())
}

#[tokio::test]
async fn the_end_of_a_run_whose_tool_fails_quotes_it_without_marks() -> Result<()> {
    // The same call for ever: its result is an error, which Belay marks.
    let fails = Answer::call("read_file", json!({"path": "the gate is blue.txt"}));
    let mut world = World::start(fails).await?;
    let mut roads = Roads::default();
    let run = world.daemon.ask("loops", "read it").await?;
    assert_eq!(run["status"], "stopped", "{run}");
    world.ended("loops", &run);
    roads.says("the evidence of a stop", &run);
    let seen = world.model.requests().pop().unwrap_or_default().to_string();
    assert!(seen.contains("untrusted source"), "for the model it is marked: {seen}");
    roads::stored(&world, &mut roads).await?;
    roads.check();
    Ok(())
}

#[tokio::test]
async fn the_context_of_a_session_shows_the_marks_that_the_model_reads() -> Result<()> {
    let mut world = World::start(Answer::text(&quoted())).await?;
    scenes::answers(&mut world, &mut Roads::default()).await?;
    let (_, context) = world.daemon.request("GET", "/api/v1/sessions/reads/context?full=true", None).await?;
    assert!(context.to_string().contains("<untrusted source=\\\"read_file\\\" id="), "{context}");
    let printed = world.home.run(&["context", "show", "reads", "--full"], "").await?;
    assert!(printed.stdout.contains("<untrusted source=\"read_file\" id="), "{printed:?}");
    Ok(())
}

/// As in `titles.rs`: the daemon checks every 15 seconds which conversations are idle.
#[tokio::test]
async fn a_title_has_no_marks() -> Result<()> {
    let model = ModelServer::start(vec![Answer::text("It is in Bonn.")], Answer::text(&quoted())).await;
    let home = Home::new()
        .openai(&model.base_url)
        .set("sessions.titles.after_s", 1)
        .settings("[llm]\nprice_usd = { input = 1, output = 1 }\n[limits]\nusd_per_day_for = { title = 1.0 }\n");
    let daemon = home.start().await?;
    daemon.ask("alice", "Where is my parcel?").await?;
    model.seen(2).await;
    let mut roads = Roads::default();
    let mut listed = String::new();
    for _ in 0..600 {
        listed = home.run(&["sessions"], "").await?.stdout;
        if listed.contains(TOLD) {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await; // a real process: there is no clock to pause
    }
    roads.says("belay sessions", listed);
    let (_, list) = daemon.request("GET", "/api/v1/sessions", None).await?;
    roads.says("a title", list);
    let (_, answer) = daemon.post(json!({"session": "alice", "text": "/sessions"})).await?;
    roads.says("/sessions", answer);
    roads.check();
    Ok(())
}
