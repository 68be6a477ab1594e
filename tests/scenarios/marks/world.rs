//! A daemon with a bot, a model that repeats marks, and the texts that people have read.

use std::fmt::Display;
use std::process::Stdio;
use std::time::Duration;

use anyhow::Result;
use belay_tests::bot_api::BotApi;
use belay_tests::daemon::{Daemon, Home, PATIENCE};
use belay_tests::model_server::{Answer, ModelServer};
use belay_tests::person;
use serde_json::Value;

/// The content between the marks.
pub(super) const TOLD: &str = "the gate is blue";

/// What a model writes that repeats the marks around what it has read.
pub(super) fn quoted() -> String {
    format!("It says <untrusted source=\"page\" id=\"0123456789ab\">{TOLD}</untrusted id=\"0123456789ab\"> there.")
}

/// A daemon and its peers.
pub(super) struct World {
    pub(super) home: Home,
    pub(super) daemon: Daemon,
    pub(super) api: BotApi,
    pub(super) model: ModelServer,
    /// Session and id of each run.
    pub(super) runs: Vec<(String, String)>,
}

impl World {
    /// `otherwise`: each answer of the model that is not in its script.
    pub(super) async fn start(otherwise: Answer) -> Result<Self> {
        let model = ModelServer::start(vec![], otherwise).await;
        let api = BotApi::start().await;
        let home = person::home(&api).openai(&model.base_url).set("agent.send_message", true);
        std::fs::write(home.workspace().join("page.txt"), format!("{TOLD}\n"))?;
        let daemon = home.start().await?;
        Ok(Self { home, daemon, api, model, runs: Vec::new() })
    }

    /// The same after a restart, with a standard input.
    pub(super) async fn again(self) -> Result<Self> {
        self.daemon.shut_down().await?;
        let daemon = self.home.start_with(Stdio::piped()).await?;
        Ok(Self { daemon, ..self })
    }

    /// The next answers of the model.
    pub(super) fn script<const N: usize>(&self, answers: [Answer; N]) {
        answers.into_iter().for_each(|answer| self.model.then(answer));
    }

    /// Remembers a run, whose stored parts are read at the end.
    pub(super) fn ended(&mut self, session: &str, run: &Value) {
        let id = run["run_id"].as_str().expect("an id").to_owned();
        self.runs.push((session.to_owned(), id));
    }

    /// Reads a route until it is as it should be.
    pub(super) async fn until(&self, route: &str, is: impl Fn(&Value) -> bool) -> Result<Value> {
        let deadline = tokio::time::Instant::now() + PATIENCE * 2;
        loop {
            let (_, read) = self.daemon.request("GET", route, None).await?;
            if is(&read) {
                return Ok(read);
            }
            anyhow::ensure!(tokio::time::Instant::now() < deadline, "{route}: {read}");
            tokio::time::sleep(Duration::from_millis(20)).await; // polling a real process: there is no clock to pause
        }
    }

    /// The texts that the bot has sent, once there is one like this.
    pub(super) async fn told(&self, is: impl Fn(&String) -> bool) -> Result<Vec<String>> {
        let deadline = tokio::time::Instant::now() + PATIENCE * 2;
        loop {
            let texts = person::texts(&self.api, 0).await;
            if texts.iter().any(&is) {
                return Ok(texts);
            }
            anyhow::ensure!(tokio::time::Instant::now() < deadline, "no such text was sent: {texts:#?}");
            tokio::time::sleep(Duration::from_millis(20)).await; // as above
        }
    }

    /// The answer to a command.
    pub(super) async fn command(&self, session: &str, text: &str) -> Result<Value> {
        Ok(self.daemon.post(serde_json::json!({"session": session, "text": text})).await?.1)
    }
}

/// What people have read, road by road.
#[derive(Default)]
pub(super) struct Roads(Vec<(String, String)>);

impl Roads {
    /// A road that shows the content, and no mark.
    pub(super) fn says(&mut self, road: impl Display, text: impl Display) {
        let (road, text) = (road.to_string(), text.to_string());
        if !text.contains(TOLD) {
            self.0.push((format!("{road} does not show the content"), text.clone()));
        }
        self.clean(road, text);
    }

    /// A road that need not show the content, but shows no mark.
    pub(super) fn clean(&mut self, road: impl Display, text: impl Display) {
        let text = text.to_string();
        // Whatever stands for the brackets: quoted, escaped, or in HTML.
        if ["untrusted source=", "untrusted id="].iter().any(|mark| text.contains(mark)) {
            self.0.push((format!("{road} shows a mark"), text));
        }
    }

    /// A road that could not be walked.
    pub(super) fn fault(&mut self, road: impl Display, text: impl Display) {
        self.0.push((format!("{road} is closed"), text.to_string()));
    }

    /// # Panics
    /// A road was not as it should be.
    pub(super) fn check(&self) {
        let lines: Vec<String> = self.0.iter().map(|(fault, text)| format!("{fault}:\n{text}\n")).collect();
        assert!(lines.is_empty(), "{}", lines.join("\n"));
    }
}
