//! What a conversation sees of an answer before it is whole, and that it reads nothing twice.

use std::time::Duration;

use belay_run::SendAt;

use belay_protocol::{
    Accepted, DeliverError, Delta, EventKind, EventQuery, ModelErrorKind, PrincipalRole, ReasoningShown, RunOptions,
    RunStatus, StopReason,
};
use belay_run::StreamingConfig;
use belay_testkit::scripted_model::{Scripted, ScriptedModel};
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::support::{Setup, Shows, TestTool, Trouble, end_of, rest_of, saw};

/// Pieces of an answer of three paragraphs, each long enough to be sent alone.
const PARAGRAPHS: [&str; 3] = [
    "The first paragraph says what was asked for.\n\n",
    "The second paragraph says how it was found.\n\n",
    "The third one ends it.",
];

fn showing(shows: Shows, script: impl IntoIterator<Item = Scripted>) -> Setup {
    let streaming = StreamingConfig { min_chars: 30, max_chars: 200, ..StreamingConfig::default() };
    Setup { shows, streaming, ..Setup::new(ScriptedModel::new(script)) }
}

fn slowly(pieces: &[&str]) -> Scripted {
    Scripted::streamed(pieces.iter().copied()).paced(Duration::from_secs(2))
}

/// Text and reasoning that somebody who reads along from the beginning has read by the end.
async fn read_along(mut accepted: Accepted) -> (String, String) {
    let mut deltas = accepted.watch.as_mut().and_then(|watch| watch.deltas.take()).expect("asked for");
    end_of(accepted).await;
    let (mut text, mut reasoning) = (String::new(), String::new());
    while let Ok(delta) = deltas.try_recv() {
        match delta {
            Delta::Text { text: piece, .. } => text.push_str(&piece),
            Delta::Reasoning { text: piece, .. } => reasoning.push_str(&piece),
            Delta::Tool { .. } => {}
        }
    }
    (text, reasoning)
}

#[tokio::test(start_paused = true)]
async fn nobody_reads_a_part_of_the_silent_token_or_reasoning_as_text() {
    for (pieces, read, thought, said) in [
        (vec!["NO_", "REPLY"], "", "", None),
        (vec!["<think>they are", " fine</thi", "nk>\n\nNO", "_REPLY NO_REPLY"], "", "they are fine", None),
        (vec!["NO", " PROBLEM"], "NO PROBLEM", "", Some("NO PROBLEM")),
        (vec!["Done.", " NO_REPLY"], "Done.", "", Some("Done.")),
        (vec!["<thinking>hm", "</thinking>4", "2"], "42", "hm", Some("42")),
        (vec!["say `NO_REPLY`", " or not"], "say `NO_REPLY` or not", "", Some("say `NO_REPLY` or not")),
    ] {
        let setup = Setup::new(ScriptedModel::new([Scripted::streamed(pieces.clone())]));
        let mut agent = setup.start().await;
        let accepted = agent.one.asking("alice", "go", RunOptions::default()).await;
        let run = accepted.run_id;
        let (text, reasoning) = read_along(accepted).await;
        assert_eq!((text.trim(), reasoning.as_str()), (read, thought), "{pieces:?}");
        let record = setup.store.runs.run(run).await.expect("readable").expect("stored");
        assert_eq!((record.status, record.reply.as_deref()), (RunStatus::Completed, said), "{pieces:?}");
        match said {
            Some(said) => assert_eq!(agent.one.next().await, said),
            None => assert_eq!(record.evidence.get("silent"), Some(&json!(true))),
        }
        let (mut one, _) = agent.shut_down().await;
        assert!(one.delivered.try_recv().is_err(), "{pieces:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_preview_grows_and_becomes_the_answer() {
    let setup = showing(Shows::Preview, [slowly(&["Too short", ", but now it is long enough", " to be shown."])]);
    let mut agent = setup.start().await;
    agent.one.accepted("alice", "go").await;
    let message = agent.one.next_message().await;
    let whole = "Too short, but now it is long enough to be shown.";
    assert_eq!((message.text.as_str(), message.preview.as_deref()), (whole, Some("p1")));
    let previews = agent.one.probe.previews();
    assert_eq!(previews, ["begin Too short, but now it is long enough", &format!("p1 {whole}")]);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_quick_answer_is_sent_once() {
    let quick = Scripted::streamed(PARAGRAPHS).paced(Duration::from_millis(300));
    let setup = showing(Shows::Preview, [quick]);
    let mut agent = setup.start().await;
    agent.one.accepted("alice", "go").await;
    let message = agent.one.next_message().await;
    assert_eq!((message.text, message.preview), (PARAGRAPHS.concat(), None));
    assert!(agent.one.probe.previews().is_empty());
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_preview_follows_the_pace_of_its_platform_and_says_nothing_twice() {
    let pieces: Vec<String> = (0..100).map(|n| format!("word {n} of a long text, ")).collect();
    let fast = Scripted::streamed(pieces).paced(Duration::from_millis(100));
    let setup = showing(Shows::Preview, [fast]);
    let mut agent = setup.start().await;
    let wait = DeliverError::Retry { after: Some(Duration::from_secs(5)), detail: "429".into(), pieces_sent: 0 };
    agent.one.probe.trouble(Trouble::Error(wait));
    agent.one.accepted("alice", "go").await;
    let message = agent.one.next_message().await;
    let previews = agent.one.probe.previews();
    // 10 s of text: the first try is refused for 5 s, and then there is one change a second.
    assert!((5..=7).contains(&previews.len()), "{previews:#?}");
    assert!(previews[1].starts_with("begin ") && previews[2].starts_with("p1 "), "{previews:#?}");
    assert!(previews.windows(2).skip(1).all(|pair| pair[0] != pair[1]));
    assert_eq!(message.preview.as_deref(), Some("p1"));
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_platform_that_does_not_answer_costs_the_preview_and_nothing_else() {
    let setup = showing(Shows::Preview, [slowly(&PARAGRAPHS)]);
    let mut agent = setup.start().await;
    agent.one.probe.trouble(Trouble::Silence);
    let begun = Instant::now();
    let record = end_of(agent.one.accepted("alice", "go").await).await;
    assert!(begun.elapsed() <= Duration::from_secs(7), "six of them are the model's: {:?}", begun.elapsed());
    assert_eq!(record.status, RunStatus::Completed);
    let message = agent.one.next_message().await;
    assert_eq!((message.text, message.preview), (PARAGRAPHS.concat(), None));
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_preview_whose_last_change_is_unknown_does_not_become_the_answer() {
    let setup = showing(Shows::Preview, [slowly(&PARAGRAPHS)]);
    let mut agent = setup.start().await;
    agent.one.probe.trouble(Trouble::Error(DeliverError::Retry { after: None, detail: "x".into(), pieces_sent: 0 }));
    agent.one.accepted("alice", "go").await;
    while agent.one.probe.previews().len() < 2 {
        sleep(Duration::from_millis(100)).await;
    }
    agent.one.probe.trouble(Trouble::Error(DeliverError::Ambiguous { detail: "x".into(), pieces_sent: 0 }));
    let message = agent.one.next_message().await;
    assert_eq!((message.text, message.preview), (PARAGRAPHS.concat(), None));
    assert_eq!(agent.one.probe.previews().last().map(String::as_str), Some("discard p1"));
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_preview_without_an_answer_is_taken_away() {
    let looking = "Let me look at all of this for you, one moment.";
    let step = |piece: &str| {
        Scripted::call("echo", json!({})).with_text(piece).after_pieces([piece]).paced(Duration::from_secs(2))
    };
    let setup = showing(Shows::Preview, [step(looking), Scripted::text("NO_REPLY")]);
    let agent = setup.start().await;
    let record = end_of(agent.one.accepted("alice", "go").await).await;
    assert_eq!(record.evidence.get("silent"), Some(&json!(true)));
    assert_eq!(agent.one.probe.previews(), [format!("begin {looking}"), "discard p1".into()]);
    let (mut one, _) = agent.shut_down().await;
    assert!(one.delivered.try_recv().is_err());

    // Somebody else has told the person.
    let setup = showing(Shows::Preview, [Scripted::hang().after_pieces([looking])]);
    let mut agent = setup.start().await;
    let accepted = agent.one.accepted("alice", "go").await;
    while agent.one.probe.previews().is_empty() {
        sleep(Duration::from_millis(100)).await;
    }
    agent.one.command("alice", "/stop").await;
    assert_eq!(end_of(accepted).await.reason, Some(StopReason::UserStop));
    assert_eq!(agent.one.probe.previews().last().map(String::as_str), Some("discard p1"));
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn reasoning_is_shown_as_it_was_asked_for_and_never_as_the_answer() {
    let thought = "it must be forty and two, if I add them up";
    let pieces = ["<think>", thought, "</think>", "The answer is forty-two, as I have said."];
    for (shown, shows, previews, said) in [
        (None, Shows::Nothing, vec![], "The answer is forty-two, as I have said."),
        (
            Some(ReasoningShown::On),
            Shows::Nothing,
            vec![],
            "> 💭 *Reasoning*\n>\n> it must be forty and two, if I add them up\n\nThe answer is forty-two, as I have said.",
        ),
        (
            Some(ReasoningShown::Stream),
            Shows::Preview,
            vec![
                "begin > 💭 *Reasoning*\n>\n> it must be forty and two, if I add them up",
                "p1 The answer is forty-two, as I have said.",
            ],
            "The answer is forty-two, as I have said.",
        ),
    ] {
        let setup = showing(shows, [slowly(&pieces)]);
        let mut agent = setup.start().await;
        let options = RunOptions { reasoning: shown, ..RunOptions::default() };
        let record = end_of(agent.one.asking("alice", "go", options).await).await;
        assert_eq!(record.reply.as_deref(), Some("The answer is forty-two, as I have said."));
        assert_eq!(agent.one.next().await, said);
        assert_eq!(agent.one.probe.previews(), previews);
        agent.shut_down().await;
    }
    // No answer: what is told is that there is none.
    let setup = Setup::new(ScriptedModel::new([Scripted::streamed(["<think>", thought])]));
    let mut agent = setup.start().await;
    let options = RunOptions { reasoning: Some(ReasoningShown::On), ..RunOptions::default() };
    agent.one.asking("alice", "go", options).await;
    assert_eq!(agent.one.next().await, StopReason::EmptyReply.user_line());
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn pieces_are_messages_of_their_own_and_the_end_says_the_rest() {
    let step = Scripted::call("slow", json!({})).with_text("Let me look.").after_pieces(["Let me look."]);
    let setup = showing(Shows::Blocks, [step, slowly(&PARAGRAPHS)]).tool(TestTool::named("slow"));
    let mut agent = setup.start().await;
    let begun = Instant::now();
    let accepted = agent.one.accepted("alice", "go").await;
    let mut seen = Vec::new();
    for _ in 0..4 {
        seen.push((agent.one.next().await, begun.elapsed().as_secs()));
    }
    let [first, second, third] = PARAGRAPHS.map(|text| text.trim().to_owned());
    // The short text waits a second for more; a paragraph is said when the next one begins.
    assert_eq!(seen, [("Let me look.".into(), 1), (first, 1), (second, 3), (third, 7)]);
    let record = end_of(accepted).await;
    assert_eq!(record.reply, Some(PARAGRAPHS.concat()), "who asks for the run reads all of it");
    let (mut one, _) = agent.shut_down().await;
    assert!(one.delivered.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn what_was_said_before_a_crash_is_not_said_again() {
    let cut_off = Scripted::hang().after_pieces(PARAGRAPHS);
    let setup = showing(Shows::Blocks, [cut_off]);
    let mut agent = setup.start().await;
    agent.one.accepted("alice", "go").await;
    assert_eq!(agent.one.next().await, PARAGRAPHS[0].trim());
    assert_eq!(agent.one.next().await, PARAGRAPHS[1].trim());
    agent.crash().await;

    let setup = setup.next_boot(ScriptedModel::new([slowly(&PARAGRAPHS)]));
    let mut agent = setup.start().await;
    assert_eq!(agent.one.next().await, PARAGRAPHS[2].trim());
    let (mut one, _) = agent.shut_down().await;
    assert!(one.delivered.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn a_call_of_which_a_piece_was_said_counts_as_heard() {
    for (pieces, heard) in [(&PARAGRAPHS[..1], true), (&["The first para"][..], false)] {
        let broken = Scripted::error(ModelErrorKind::Network).after_pieces(pieces.iter().copied());
        let setup = showing(Shows::Blocks, [broken]);
        let mut agent = setup.start().await;
        let record = end_of(agent.one.accepted("alice", "go").await).await;
        assert_eq!(record.reason, Some(StopReason::Network));
        if heard {
            assert_eq!(agent.one.next().await, PARAGRAPHS[0].trim());
        }
        assert!(agent.one.next().await.starts_with("The model could not be used: scripted."));
        let query = EventQuery { run: Some(record.run_id), ..EventQuery::default() };
        let events = setup.store.events.read(query).await.expect("readable");
        let said = events.iter().filter(|event| matches!(event.kind, EventKind::MessageEmitted { .. })).count();
        assert_eq!(said, usize::from(heard));
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn pieces_may_wait_for_the_end_of_the_text() {
    let mut setup = showing(Shows::Blocks, [slowly(&PARAGRAPHS)]);
    setup.streaming.at = SendAt::MessageEnd;
    let mut agent = setup.start().await;
    let begun = Instant::now();
    agent.one.accepted("alice", "go").await;
    for paragraph in PARAGRAPHS {
        assert_eq!(agent.one.next().await, paragraph.trim());
        assert_eq!(begun.elapsed().as_secs(), 6);
    }
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_line_for_each_call_stands_before_the_answer_where_it_is_wanted() {
    for (verbose, said) in [(None, "done"), (Some(true), "✓ echo `text: hi`\n✗ fail\n\ndone")] {
        let calls = Scripted::calls([("echo", json!({"text": "hi"})), ("fail", json!({}))]);
        let setup = Setup::new(ScriptedModel::new([calls, Scripted::text("done")]));
        let mut agent = setup.start().await;
        let options = RunOptions { verbose, ..RunOptions::default() };
        let record = end_of(agent.one.asking("alice", "go", options).await).await;
        assert_eq!(record.reply.as_deref(), Some("done"));
        assert_eq!(agent.one.next().await, said);
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_failed_is_named_once_where_nothing_else_is_said() {
    for (last, said) in [("", "⚠ fail failed: it does not work"), ("All the same: done.", "All the same: done.")] {
        let script = [Scripted::call("fail", json!({})), Scripted::text(last)];
        let setup = Setup::new(ScriptedModel::new(script));
        let mut agent = setup.start().await;
        assert_eq!(agent.one.ask("alice", "go").await, said);
        let (mut one, _) = agent.shut_down().await;
        assert!(one.delivered.try_recv().is_err());
    }
}

fn sending(script: impl IntoIterator<Item = Scripted>) -> Setup {
    let mut setup = Setup::new(ScriptedModel::new(script));
    setup.config.send_message = true;
    setup
}

fn send(place: Option<&str>, text: &str) -> Scripted {
    let mut arguments = json!({ "text": text });
    if let Some(place) = place {
        arguments["place"] = place.into();
    }
    Scripted::call("send_message", arguments)
}

/// Says what was sent, and more.
const MORE: &str = "I have told them: the meeting is at ten. The room is not free before eleven.";

#[tokio::test(start_paused = true)]
async fn what_a_tool_has_sent_here_is_not_said_again() {
    let sent = "I have told them: the meeting is at ten.";
    for (last, said, evidence) in [
        ("The MEETING is at ten. 🎉", None, "said_by_tool"),
        ("", None, "said_by_tool"),
        ("NO_REPLY", None, "silent"),
        ("Anything else?", Some("Anything else?"), ""),
        (MORE, Some(MORE), ""),
    ] {
        let setup = sending([send(None, sent), Scripted::text(last)]);
        let mut agent = setup.start().await;
        let record = end_of(agent.one.accepted("alice", "go").await).await;
        assert_eq!(record.status, RunStatus::Completed, "{last}");
        assert!(evidence.is_empty() || record.evidence.get(evidence) == Some(&json!(true)), "{:?}", record.evidence);
        let first = agent.one.next_message().await;
        assert_eq!((first.text.as_str(), first.run_id), (sent, None));
        if let Some(said) = said {
            assert_eq!(agent.one.next().await, said);
        }
        let (mut one, _) = agent.shut_down().await;
        assert!(one.delivered.try_recv().is_err(), "{last}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_of_which_a_piece_is_out_is_finished_whatever_was_sent_before() {
    let mut setup = showing(Shows::Blocks, [send(None, &PARAGRAPHS.concat()), slowly(&PARAGRAPHS)]);
    setup.config.send_message = true;
    let mut agent = setup.start().await;
    let record = end_of(agent.one.accepted("alice", "go").await).await;
    assert_eq!(record.evidence.get("said_by_tool"), None);
    assert_eq!(agent.one.next().await, PARAGRAPHS.concat());
    for paragraph in PARAGRAPHS {
        assert_eq!(agent.one.next().await, paragraph.trim());
    }
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_message_to_another_conversation_needs_an_operator_a_yes_and_a_conversation() {
    // The conversation `two:bob` has written before.
    let text = format!("Come at ten.{}\u{202e}Bring the keys.", " ".repeat(300));
    let script = [Scripted::text("hello"), send(Some("two:bob"), &text), Scripted::text("done")];
    let setup = sending(script);
    let mut agent = setup.start().await;
    assert_eq!(agent.two.ask("two:bob", "hi").await, "hello");
    let mut accepted = agent.one.accepted("alice", "tell bob").await;
    rest_of(&mut accepted).await;
    let question = agent.one.next().await;
    assert!(question.contains(&format!("send to two:bob: {}", text.replace('\u{202e}', r"\u{202e}"))), "{question}");
    agent.one.text("alice", "yes").await;
    let to_bob = agent.two.next_message().await;
    assert!(to_bob.text.starts_with("Come at ten.") && to_bob.text.ends_with("Bring the keys."), "{}", to_bob.text);
    assert_eq!(&*to_bob.route.conversation, "bob");
    agent.shut_down().await;

    for (role, place, why) in [
        (PrincipalRole::User, "two:bob", "only an operator's request may write to other conversations"),
        (PrincipalRole::Operator, "two:nobody", "there is no such conversation"),
        (PrincipalRole::Operator, "nowhere", "there is no such conversation"),
    ] {
        let setup = setup.next_boot(ScriptedModel::new([send(Some(place), "Come at ten."), Scripted::text("no")]));
        let mut agent = setup.start().await;
        agent.one.text_as("carol", role, "tell bob").await;
        assert_eq!(agent.one.next().await, "no");
        let read = saw(&agent.model, 2);
        assert!(read.iter().any(|text| text.contains(why)), "{read:?}");
        let (_, mut two) = agent.shut_down().await;
        assert!(two.delivered.try_recv().is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_is_sent_with_the_result_of_its_call_and_once() {
    // The daemon dies right behind the commit of the result: the next one does not send it again.
    let setup = sending([send(None, "I am looking."), Scripted::hang()]);
    let mut agent = setup.start().await;
    agent.one.accepted("alice", "go").await;
    assert_eq!(agent.one.next().await, "I am looking.");
    agent.asked(2).await;
    agent.crash().await;
    let setup = setup.next_boot(ScriptedModel::new([Scripted::text("Found.")]));
    let mut agent = setup.start().await;
    assert_eq!(agent.one.next().await, "Found.");
    assert!(saw(&agent.model, 1).iter().any(|text| text == "sent"));
    let (mut one, _) = agent.shut_down().await;
    assert!(one.delivered.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn every_message_has_one_visible_ending_or_a_recorded_silence() {
    let error = |kind| Scripted::error(kind);
    let endings: Vec<(&str, Vec<Scripted>)> = vec![
        ("an answer", vec![Scripted::text("42")]),
        ("an answer in pieces", vec![Scripted::streamed(PARAGRAPHS)]),
        ("silence", vec![Scripted::text("NO_REPLY")]),
        ("silence behind a thought", vec![Scripted::text("<think>hm</think>NO_REPLY")]),
        ("a thought alone", vec![Scripted::text("<think>hm")]),
        ("nothing", vec![Scripted::text("")]),
        ("nothing behind an error", vec![Scripted::call("fail", json!({})), Scripted::text("")]),
        ("echoes", vec![Scripted::text("[called tool x]")]),
        ("said by a tool", vec![send(None, "It is at ten, as ever."), Scripted::text("It is at ten, as ever.")]),
        ("nothing behind a message", vec![send(None, "It is at ten, as ever."), Scripted::text("")]),
        ("cut off", vec![Scripted::text("too lo").truncated()]),
        ("the model is away", vec![error(ModelErrorKind::Network)]),
        ("the model refuses", vec![error(ModelErrorKind::BadRequest)]),
        ("broken off", vec![error(ModelErrorKind::Network).after_pieces(PARAGRAPHS)]),
        ("a crash", vec![Scripted::panic("the model of the test panics")]),
    ];
    for shows in [Shows::Nothing, Shows::Blocks, Shows::Preview] {
        for (name, script) in &endings {
            let mut setup = showing(shows, script.clone());
            setup.config.send_message = true;
            let agent = setup.start().await;
            let record = end_of(agent.one.accepted("alice", "go").await).await;
            let silent = ["silent", "said_by_tool"].iter().any(|word| record.evidence.contains_key(*word));
            let (mut one, _) = agent.shut_down().await;
            let mut said = Vec::new();
            while let Ok(message) = one.delivered.try_recv() {
                said.extend(message.run_id.map(|_| message.text));
            }
            assert_eq!(said.is_empty(), silent, "{shows:?}, {name}: {said:?} {:?}", record.evidence);
            let pieces = if shows == Shows::Blocks { 3 } else { 1 };
            assert!(said.len() <= pieces, "{shows:?}, {name}: {said:?}");
        }
    }
}
