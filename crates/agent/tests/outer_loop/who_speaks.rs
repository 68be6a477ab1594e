//! Who wrote a message, forwards, edits, and groups: what the model reads of them, and what they can never do.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use belay_agent::submission;
use belay_protocol::{
    Accepted, AccessDecision, Ack, Audience, Author, Body, ChannelAccess, Inbound, MessageBody, Person, Principal,
    PrincipalRole, Provenance, QueueMode, Quote, Refusal, ReplyRoute, SILENT_TOKEN, SessionKey, ToolStatus,
};
use belay_run::DisabledChannels;
use belay_testkit::scripted_model::{Scripted, ScriptedModel};
use serde_json::json;
use tokio::time::sleep;

use crate::support::{Setup, Talker, TestTool, end_of, saw};

fn ann() -> Person {
    Person { name: "Ann".into(), username: None, id: "42".into() }
}

/// A message of an ordinary user with what is known of it.
fn inbound(talker: &Talker, session: &str, body: Body, provenance: Provenance) -> Inbound {
    Inbound {
        reply_to: Some(ReplyRoute { channel: talker.channel.clone(), conversation: session.into(), reply_to: None }),
        provenance: Some(Arc::new(provenance)),
        ..Inbound::new(
            talker.channel.clone(),
            session.into(),
            Principal { id: "tester".into(), role: PrincipalRole::User },
            body,
        )
    }
}

fn numbered(id: &str) -> Provenance {
    Provenance { message_id: Some(id.into()), ..Provenance::default() }
}

fn forward() -> Provenance {
    Provenance { forwarded_from: Some("Carl".into()), ..Provenance::default() }
}

async fn said(talker: &Talker, text: &str, provenance: Provenance) -> Accepted {
    match talker.send(inbound(talker, "alice", Body::Text(text.into()), provenance)).await {
        Ack::Accepted(accepted) => accepted,
        other => panic!("{text:?} was not accepted: {other:?}"),
    }
}

async fn edited(talker: &Talker, id: &str, text: &str) -> Ack {
    talker.send(inbound(talker, "alice", Body::Edit(text.into()), numbered(id))).await
}

/// A message whose text a bot wrote in the sender's name. Only the channel's mark says so.
fn by_a_bot(talker: &Talker, text: &str) -> Inbound {
    let principal = Principal { id: "tester".into(), role: PrincipalRole::Operator };
    Inbound { principal, relayed: true, ..inbound(talker, "alice", Body::Text(text.into()), Provenance::default()) }
}

/// What the model read as user messages in its n-th request.
fn read(model: &ScriptedModel, n: usize) -> Vec<String> {
    let is_user = |body: &MessageBody| matches!(body, MessageBody::User { .. });
    model.seen()[n - 1].messages.iter().filter(|it| is_user(&it.body)).map(|it| it.for_model().into_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_forwarded_yes_approves_nothing_and_a_forwarded_command_commands_nothing() {
    let tool = TestTool::named("echo").called("ring").asking();
    let rung = tool.calls.clone();
    let ring = Scripted::call("ring", json!({"text": "noon"}));
    let scripts = [
        ring,
        Scripted::text("as you like"),
        Scripted::text("read"),
        Scripted::text("read too"),
        Scripted::text("and that"),
    ];
    let mut agent = Setup::new(ScriptedModel::new(scripts)).tool(tool).start().await;
    let plain = inbound(&agent.one, "alice", Body::Text("ring".into()), Provenance::default());
    let Ack::Accepted(_) = agent.one.send(plain).await else { panic!("accepted") };
    assert!(agent.one.next().await.contains("May I do this?"));
    for text in ["yes", "/approve", "/plan all of it"] {
        said(&agent.one, text, forward()).await;
        let told = agent.one.next().await;
        assert!(
            told.starts_with("A text that somebody else wrote cannot answer a question. Your message is queued"),
            "{text}: {told}"
        );
    }
    assert_eq!(rung.load(Ordering::SeqCst), 0, "nothing was approved");
    let no = inbound(&agent.one, "alice", Body::Text("no".into()), Provenance::default());
    assert!(matches!(agent.one.send(no).await, Ack::Command(_)));
    assert_eq!([agent.one.next().await, agent.one.next().await], ["Denied.", "as you like"]);
    for answer in ["read", "read too", "and that"] {
        assert_eq!(agent.one.next().await, answer);
    }
    let seen = read(&agent.model, 5);
    for (at, text) in [(1, "yes"), (2, "/approve"), (3, "/plan all of it")] {
        let form = "<message_info>{\"forwarded_from\":\"Carl\"}</message_info>\n<forwarded_message>\n";
        assert_eq!(seen[at], format!("{form}{text}\n</forwarded_message>"));
    }
    assert_eq!(rung.load(Ordering::SeqCst), 0);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn no_command_that_a_bot_wrote_in_an_operators_name_acts() {
    let words: Vec<&str> = submission::words().collect();
    let with_more = words.iter().map(|word| format!("{word} please")).chain(["/callback https://a.example".into()]);
    let texts: Vec<String> = with_more.chain(words.iter().map(|word| (*word).to_owned())).collect();
    let script: Vec<Scripted> = texts.iter().map(|_| Scripted::text("read")).collect();
    let mut agent = Setup::new(ScriptedModel::new(script)).start().await;
    for text in texts {
        let Ack::Accepted(_) = agent.one.send(by_a_bot(&agent.one, &text)).await else { panic!("{text} acted") };
        assert_eq!(agent.one.next().await, "read", "{text}");
        let message = agent.model.seen().last().and_then(|seen| seen.messages.last().cloned()).expect("a message");
        assert!(message.untrusted, "{text}");
        let form = "<message_info>{\"forwarded_from\":\"another program\"}</message_info>\n<forwarded_message>\n";
        assert_eq!(message.for_model(), format!("{form}{text}\n</forwarded_message>"));
    }
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_yes_that_a_bot_wrote_answers_no_question_and_its_sender_learns_why() {
    let tool = TestTool::named("echo").called("ring").asking();
    let rung = tool.calls.clone();
    let ring = Scripted::call("ring", json!({"text": "noon"}));
    let mut agent = Setup::new(ScriptedModel::new([ring])).tool(tool).start().await;
    agent.one.accepted("alice", "ring").await;
    assert!(agent.one.next().await.contains("May I do this?"));
    for text in ["yes", "/approve", "/always"] {
        let Ack::Accepted(_) = agent.one.send(by_a_bot(&agent.one, text)).await else { panic!("{text} acted") };
        let told = agent.one.next().await;
        assert!(told.starts_with("A text that somebody else wrote cannot answer a question."), "{text}: {told}");
    }
    assert_eq!(rung.load(Ordering::SeqCst), 0, "nothing was approved");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn words_of_others_are_marked_so_that_tools_that_reach_outside_ask() {
    for (quoted, asked) in [(Author::Assistant, false), (Author::Sender, false), (Author::Other, true)] {
        let tool = TestTool::named("echo").called("send").writing();
        let send = Scripted::call("send", json!({"text": "x"}));
        let mut agent = Setup::new(ScriptedModel::new([send, Scripted::text("sent")])).tool(tool).start().await;
        let quote = Quote { author: quoted, text: "do it".into(), ..Quote::default() };
        said(&agent.one, "well?", Provenance { reply_to: Some(quote), ..Provenance::default() }).await;
        let next = agent.one.next().await;
        let message = agent.model.seen()[0].messages[0].clone();
        assert_eq!(message.untrusted, asked, "{quoted:?}: {next}");
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn silence_is_taught_in_groups_and_nowhere_else_and_a_relayed_message_asks_nobody() {
    let group = Provenance { audience: Audience::Group, sender: Some(ann()), ..Provenance::default() };
    let person = Provenance::default();
    for (provenance, relayed, taught) in
        [(group.clone(), false, true), (group, true, true), (person.clone(), false, false), (person, true, false)]
    {
        let tool = TestTool::named("echo").called("ring").asking();
        let ring = Scripted::call("ring", json!({"text": "noon"}));
        let mut agent = Setup::new(ScriptedModel::new([ring, Scripted::text("done")])).tool(tool).start().await;
        let message = inbound(&agent.one, "alice", Body::Text("ring".into()), provenance);
        let Ack::Accepted(_) = agent.one.send(Inbound { relayed, ..message }).await else { panic!("accepted") };
        let answer = agent.one.next().await;
        assert_eq!(agent.model.seen()[0].prompt.contains(SILENT_TOKEN), taught);
        assert_eq!(answer == "done", relayed, "{answer}");
        if relayed {
            let denied = agent.model.seen()[1].messages.iter().any(|message| match &message.body {
                MessageBody::Tool(result) => result.status == ToolStatus::Denied && result.text.contains("another bot"),
                _ => false,
            });
            assert!(denied, "the automatic refusal");
        }
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn of_a_message_the_model_reads_who_sent_it_also_where_it_joins_or_is_collected() {
    let sender = || Provenance { audience: Audience::Group, sender: Some(ann()), ..Provenance::default() };
    let form = "<message_info>{\"sender\":{\"name\":\"Ann\",\"id\":\"42\"}}</message_info>\n";
    for mode in [QueueMode::Steer, QueueMode::Collect, QueueMode::Followup] {
        let slow = || Scripted::call("slow", json!({}));
        let answers = [slow(), Scripted::text("one"), Scripted::text("two"), Scripted::text("three")];
        let mut setup = Setup::new(ScriptedModel::new(answers)).tool(TestTool::named("slow"));
        setup.queue.mode = Some(mode);
        let mut agent = setup.start().await;
        said(&agent.one, "A", sender()).await;
        agent.asked(1).await;
        sleep(Duration::from_millis(500)).await;
        let b = said(&agent.one, "B", sender()).await;
        let c = said(&agent.one, "C", Provenance { forwarded_from: Some("Carl".into()), ..sender() }).await;
        agent.one.next().await;
        end_of(b).await;
        end_of(c).await;
        let requests = agent.model.seen().len();
        let all = read(&agent.model, requests).join("\n");
        for text in ["A", "B"] {
            assert!(all.contains(&format!("{form}{text}")), "{mode:?}: {all}");
        }
        assert!(
            all.contains("\"forwarded_from\":\"Carl\"") && all.contains("<forwarded_message>\nC\n"),
            "{mode:?}: {all}"
        );
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_edit_of_a_waiting_message_replaces_it_also_after_a_crash() {
    for crashes in [false, true] {
        let script = [Scripted::text("done").after(Duration::from_secs(5)), Scripted::text("better")];
        let mut setup = Setup::new(ScriptedModel::new(script));
        setup.queue.mode = Some(QueueMode::Followup);
        let mut agent = setup.start().await;
        said(&agent.one, "A", numbered("1")).await;
        agent.asked(1).await;
        let waiting = said(&agent.one, "B, wrong", numbered("2")).await;
        let Ack::Accepted(taken) = edited(&agent.one, "2", "B, right").await else { panic!("it replaces the first") };
        assert_eq!((taken.run_id, taken.duplicate), (waiting.run_id, true));
        if crashes {
            agent.crash().await;
            let next = setup.next_boot(ScriptedModel::new([Scripted::text("done"), Scripted::text("better")]));
            agent = next.start().await;
        }
        assert_eq!([agent.one.next().await, agent.one.next().await], ["done", "better"]);
        assert_eq!(saw(&agent.model, 2), ["A", "done", "B, right"], "crashes: {crashes}");
        let (one, _two) = agent.shut_down().await;
        assert!(one.delivered.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn an_edit_of_an_answered_message_is_said_to_be_too_late_and_one_that_changes_nothing_is_not() {
    let mut agent = Setup::new(ScriptedModel::new([Scripted::text("done")])).start().await;
    let answered = said(&agent.one, "A", numbered("1")).await.run_id;
    assert_eq!(agent.one.next().await, "done");
    let Ack::Accepted(same) = edited(&agent.one, "1", "A").await else { panic!("nothing has changed") };
    assert_eq!((same.run_id, same.duplicate), (answered, true));
    for (id, expected) in [("1", "Your edit came too late"), ("of a photo", "This message was not accepted before")] {
        let Ack::Refused(Refusal::Decided(words)) = edited(&agent.one, id, "B").await else { panic!("too late") };
        assert!(words.starts_with(expected), "{words}");
        assert_eq!(agent.one.next().await, words);
    }
    let Ack::Refused(refusal) = edited(&agent.one, "1", "/stop").await else { panic!("no command") };
    assert_eq!(agent.one.next().await, refusal.to_string());
    assert!(refusal.to_string().starts_with("A command in an edited message is not carried out."));
    let (one, _two) = agent.shut_down().await;
    assert!(one.delivered.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_edit_that_meets_the_running_turn_is_read_once_in_one_form() {
    let slow = || Scripted::call("slow", json!({}));
    let setup = Setup::new(ScriptedModel::new([slow(), Scripted::text("both")])).tool(TestTool::named("slow"));
    let mut agent = setup.start().await;
    said(&agent.one, "A", numbered("1")).await;
    agent.asked(1).await;
    sleep(Duration::from_millis(500)).await;
    said(&agent.one, "B, wrong", numbered("2")).await;
    edited(&agent.one, "2", "B, right").await;
    assert_eq!(agent.one.next().await, "both");
    assert_eq!(read(&agent.model, 2), ["A", "B, right"]);
    let Ack::Refused(refusal) = edited(&agent.one, "2", "B, later").await else { panic!("it has joined") };
    assert!(refusal.to_string().starts_with("Your edit came too late"));
    agent.shut_down().await;
}

/// The people of a channel that is off.
struct Off;

impl ChannelAccess for Off {
    fn standing_of(&self, _principal: &str, _conversation: Option<&str>) -> AccessDecision {
        AccessDecision::NotAllowed("it is off".to_owned())
    }

    fn serves(&self, _conversation: &str) -> bool {
        false
    }

    fn session_of(&self, _conversation: &str) -> Option<SessionKey> {
        None
    }
}

#[tokio::test(start_paused = true)]
async fn only_operators_write_from_another_channel_into_the_sessions_of_people_and_of_belay() {
    use PrincipalRole::{Client, Operator, User};
    let of_channels = ["telegram:9", "TELEGRAM:9", "matrix:!a:s", "mail:ann@x.example", "two:9", "three:9", "Three"];
    let of_belay = ["stdin", "cli", "heartbeat", "system", "job:x", "routine:x"];
    let reserved = [&of_channels[..], &of_belay].concat();
    let free = ["alice", "telegrams:9", "client:1", "one:9", "openai:5", "my:telegram"];
    let rows = reserved.iter().map(|key| (*key, false)).chain(free.iter().map(|key| (*key, true)));
    let rows: Vec<_> =
        rows.flat_map(|(key, may)| [(key, User, may), (key, Client, may), (key, Operator, true)]).collect();
    let script: Vec<_> = rows.iter().filter(|row| row.2).map(|_| Scripted::text("read")).collect();
    let off: Arc<dyn ChannelAccess> = Arc::new(Off);
    let absent = DisabledChannels::from([("three".into(), off)]);
    let agent = Setup { absent, ..Setup::new(ScriptedModel::new(script)) }.start().await;
    for (key, role, may) in rows {
        let command = agent.one.text_as(key, role, "/ping").await;
        let text = agent.one.text_as(key, role, "hello").await;
        match (may, &command, text) {
            (true, Ack::Command(_), Ack::Accepted(accepted)) => drop(end_of(accepted).await),
            (false, Ack::Refused(Refusal::Forbidden(_)), Ack::Refused(Refusal::Forbidden(words))) => {
                assert!(words.contains("choose a key of your own"), "{words}");
            }
            (_, command, text) => panic!("{key} {role:?}: {command:?} {text:?}"),
        }
    }
    agent.shut_down().await;
}
