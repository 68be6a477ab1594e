//! Files that runs send: who is asked, what is committed together, and what a crash leaves.
#![allow(clippy::unwrap_used)]

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use belay_protocol::{
    Audience, BlobStore, Body, EventKind, EventQuery, Inbound, OutboundFile, OutgoingFiles, PrincipalRole, Provenance,
    RunStatus, ToolFailure,
};
use belay_store::Blobs;
use belay_testkit::faulty::{Fault, StoreOp};
use belay_testkit::scripted_model::{Scripted, ScriptedModel};
use serde_json::json;

use crate::support::{Setup, end_of, faulty, rest_of, saw};

/// A workspace with one file, whose content may change.
struct OneFile {
    content: Mutex<&'static str>,
    blobs: Blobs,
}

impl OneFile {
    fn new() -> Arc<Self> {
        Arc::new(Self { content: Mutex::new("first"), blobs: Blobs::in_memory() })
    }

    fn change(&self, content: &'static str) {
        *self.content.lock().unwrap() = content;
    }

    fn found(&self, path: &str, max_bytes: u64) -> Result<OutboundFile, ToolFailure> {
        let content = *self.content.lock().unwrap();
        if path != "plan.txt" || content.len() as u64 > max_bytes {
            return Err(ToolFailure::failed("there is no such file, or it is too large"));
        }
        let digest = self.blobs.digest(content.as_bytes()).unwrap();
        let (name, path) = ("plan.txt".to_owned(), "/workspace/plan.txt".to_owned());
        Ok(OutboundFile { name, media_type: "text/plain".into(), bytes: content.len() as u64, digest, path })
    }
}

#[async_trait]
impl OutgoingFiles for OneFile {
    async fn describe(&self, path: &str, max_bytes: u64) -> Result<OutboundFile, ToolFailure> {
        self.found(path, max_bytes)
    }

    async fn store(&self, path: &str, max_bytes: u64) -> Result<OutboundFile, ToolFailure> {
        let found = self.found(path, max_bytes)?;
        let content = *self.content.lock().unwrap();
        let mut writer = self.blobs.begin().await.unwrap();
        writer.write(&content.into()).await.unwrap();
        assert_eq!(writer.finish().await.unwrap(), found.digest);
        Ok(found)
    }
}

fn send(arguments: serde_json::Value) -> Scripted {
    Scripted::call("send_file", arguments)
}

fn sending(setup: Setup, files: &Arc<OneFile>) -> Setup {
    let mut setup = Setup { outgoing: Some(files.clone()), ..setup };
    setup.config.send_file = true;
    setup
}

#[tokio::test(start_paused = true)]
async fn a_file_for_the_person_who_asked_is_sent_without_a_question_and_listed_in_the_run() {
    let script = [send(json!({"path": "plan.txt", "caption": "The plan"})), Scripted::text("Done.")];
    let files = OneFile::new();
    let setup = sending(Setup::new(ScriptedModel::new(script)), &files);
    let mut agent = setup.start().await;
    let record = end_of(agent.one.accepted("alice", "go").await).await;
    let sent = agent.one.next_message().await;
    let expected = files.found("plan.txt", 100).unwrap();
    assert_eq!((sent.text.as_str(), sent.run_id, sent.file.as_ref()), ("The plan", None, Some(&expected)));
    assert_eq!(agent.one.next().await, "Done.");
    let listed = &record.files[0];
    assert_eq!(
        (listed.name.as_str(), &listed.sha256, listed.caption.as_str()),
        ("plan.txt", &expected.digest, "The plan")
    );
    let stored = setup.store.runs.run(record.run_id).await.unwrap().unwrap();
    assert_eq!(stored.files, record.files);
    let query = EventQuery { run: Some(record.run_id), ..EventQuery::default() };
    let events = setup.store.events.read(query).await.unwrap();
    let said = events.iter().filter_map(|event| match &event.kind {
        EventKind::FileSent { file } => Some(file),
        _ => None,
    });
    assert_eq!(said.collect::<Vec<_>>(), record.files.iter().collect::<Vec<_>>());
    let history = setup.store.sessions.history(&"alice".into(), 0, 10).await.unwrap();
    let with_files: Vec<_> = history.iter().filter(|line| !line.files.is_empty()).collect();
    assert_eq!((with_files.len(), &with_files[0].files), (1, &record.files));
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_file_for_a_group_or_for_another_conversation_asks_first() {
    let files = OneFile::new();
    let script =
        [Scripted::text("hello"), send(json!({"path": "plan.txt", "place": "two:bob"})), Scripted::text("sent")];
    let setup = sending(Setup::new(ScriptedModel::new(script)), &files);
    let mut agent = setup.start().await;
    assert_eq!(agent.two.ask("two:bob", "hi").await, "hello");
    let mut accepted = agent.one.accepted("alice", "send it to bob").await;
    rest_of(&mut accepted).await;
    let question = agent.one.next().await;
    for part in ["send the file plan.txt to two:bob (5 bytes, text/plain)", "sha256: "] {
        assert!(question.contains(part), "{part}: {question}");
    }
    agent.one.text("alice", "yes").await;
    let to_bob = agent.two.next_message().await;
    assert_eq!((&*to_bob.route.conversation, to_bob.file.is_some()), ("bob", true));
    agent.shut_down().await;

    let setup = setup.next_boot(ScriptedModel::new([send(json!({"path": "plan.txt"})), Scripted::text("no")]));
    let mut agent = setup.start().await;
    let group = Provenance { audience: Audience::Group, ..Provenance::default() };
    let inbound = agent.one.inbound("group", PrincipalRole::User, Body::Text("send it".into()), None);
    agent.one.send(Inbound { provenance: Some(Arc::new(group)), ..inbound }).await;
    assert!(agent.one.next().await.contains("send the file plan.txt to this group"));
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn bytes_that_changed_after_the_yes_are_not_sent() {
    let files = OneFile::new();
    let script = [Scripted::text("hello"), send(json!({"path": "plan.txt", "place": "two:bob"})), Scripted::text("no")];
    let setup = sending(Setup::new(ScriptedModel::new(script)), &files);
    let mut agent = setup.start().await;
    agent.two.ask("two:bob", "hi").await;
    let mut accepted = agent.one.accepted("alice", "send it to bob").await;
    for content in ["second", "third"] {
        rest_of(&mut accepted).await;
        agent.one.next().await;
        files.change(content);
        agent.one.text("alice", "yes").await;
    }
    let record = end_of(accepted).await;
    assert_eq!((record.status, record.files.len()), (RunStatus::Completed, 0));
    assert!(saw(&agent.model, 3).iter().any(|text| text.contains("what was approved has changed since")));
    let (_, mut two) = agent.shut_down().await;
    assert!(two.delivered.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn after_a_crash_the_delivery_the_file_of_the_run_and_the_result_exist_together_or_not_at_all() {
    // The checkpoint behind the call: it is lost, or the daemon dies after it.
    for (fault, sent_at_first) in [(Some(Fault::Stall), false), (None, true)] {
        let files = OneFile::new();
        let (setup, store) = faulty(ScriptedModel::new([send(json!({"path": "plan.txt"})), Scripted::hang()]));
        let setup = sending(setup, &files);
        if let Some(fault) = fault {
            // The first checkpoint is the intent of the call.
            store.plan().nth_of(StoreOp::Checkpoint, 2, fault);
        }
        let mut agent = setup.start().await;
        let run = agent.one.accepted("alice", "go").await.run_id;
        if sent_at_first {
            assert!(agent.one.next_message().await.file.is_some());
            agent.asked(2).await;
        } else {
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        }
        agent.crash().await;
        let record = setup.store.runs.run(run).await.unwrap().unwrap();
        assert_eq!(record.files.len(), usize::from(sent_at_first));

        let setup = setup.next_boot(ScriptedModel::new([Scripted::text("Done.")]));
        let mut agent = setup.start().await;
        if !sent_at_first {
            assert!(agent.one.next_message().await.file.is_some(), "the call is made again");
        }
        assert_eq!(agent.one.next().await, "Done.");
        let record = setup.store.runs.run(run).await.unwrap().unwrap();
        assert_eq!((record.status, record.files.len()), (RunStatus::Completed, 1));
        let (mut one, _) = agent.shut_down().await;
        assert!(one.delivered.try_recv().is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn a_channel_that_delivers_no_files_and_a_file_above_its_limit_are_failures_of_the_call() {
    let files = OneFile::new();
    let script = || ScriptedModel::new([send(json!({"path": "plan.txt"})), Scripted::text("It was not sent.")]);
    for (max_file_bytes, why) in [(0, "one delivers no files"), (4, "too large")] {
        let setup = Setup { max_file_bytes, ..sending(Setup::new(script()), &files) };
        let mut agent = setup.start().await;
        assert_eq!(agent.one.ask("alice", "go").await, "It was not sent.");
        assert!(saw(&agent.model, 2).iter().any(|text| text.contains(why)), "{why}");
        let (mut one, _) = agent.shut_down().await;
        assert!(one.delivered.try_recv().is_err());
    }
}
