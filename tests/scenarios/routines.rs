//! Routines, made in a conversation: they fire at their time, outlive a kill, and what they say comes once.

use anyhow::Result;
use belay_tests::bot_api::BotApi;
use belay_tests::model_server::{Answer, ModelServer};
use belay_tests::person::{home, say, texts};

#[tokio::test]
async fn killed_in_the_middle_a_routine_run_goes_on_and_what_it_says_comes_once() -> Result<()> {
    let model = ModelServer::start(vec![Answer::Stall], Answer::text("All is well.")).await;
    let api = BotApi::start().await;
    let home = home(&api).openai(&model.base_url);
    let daemon = home.start().await?;
    say(&daemon, 1, "/routine create watch in 1s | How is the house?").await?;
    let made = texts(&api, 1).await;
    assert!(made[0].contains("watch") && made[0].contains("UTC"), "{made:?}");
    model.seen(1).await;
    home.settled().await?;
    daemon.kill().await?;

    let daemon = home.start().await?;
    let told = texts(&api, 2).await;
    assert!(told[1].contains("Routine watch: All is well."), "{told:?}");
    say(&daemon, 2, "/routine show watch").await?;
    let shown = texts(&api, 3).await;
    assert!(shown[2].contains("fired 1 times") && shown[2].contains("attention"), "{shown:?}");
    daemon.shut_down().await?;

    let daemon = home.start().await?;
    say(&daemon, 3, "/ping").await?;
    assert!(texts(&api, 4).await[3].contains("pong"), "and nothing was said in between");
    daemon.shut_down().await?;
    assert_eq!((api.sent().len(), model.requests().len()), (4, 2));
    Ok(())
}
