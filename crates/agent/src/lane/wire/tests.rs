//! Mail that is written and read again.

use belay_protocol::inbound::HistoryRole;
use belay_protocol::{Attachment, AttachmentContent, IdPrefix, PlanCommand, PrincipalRole as Role, QueueMode};
use proptest::prelude::*;

use super::*;
use crate::submission::{Change, Setting};

fn provenance() -> impl Strategy<Value = Provenance> {
    (any::<bool>(), ".{0,8}").prop_map(|(forwarded, name)| Provenance {
        forwarded_from: forwarded.then(|| name.clone()),
        attachments: vec![Attachment {
            name,
            media_type: "text/plain".into(),
            bytes: 1,
            digest: "a".repeat(64).parse().expect("a digest"),
            content: AttachmentContent::Named { detail: String::new() },
        }],
        ..Provenance::default()
    })
}

fn principal() -> impl Strategy<Value = Principal> {
    let role = prop_oneof![Just(Role::User), Just(Role::Client), Just(Role::Operator)];
    (".{0,8}", role).prop_map(|(id, role)| Principal { id: id.as_str().into(), role })
}

fn sent() -> impl Strategy<Value = Option<Sent>> {
    proptest::option::of((".{1,8}", ".{0,8}").prop_map(|(id, digest)| {
        let key = IdempotencyKey { channel: "c".into(), account: "a".into(), message_id: id.as_str().into() };
        Sent { key, digest }
    }))
}

fn route() -> impl Strategy<Value = Option<ReplyRoute>> {
    proptest::option::of(".{0,8}".prop_map(|place: String| ReplyRoute {
        channel: "c".into(),
        conversation: place.as_str().into(),
        reply_to: None,
    }))
}

fn repeat() -> impl Strategy<Value = Option<Repeat>> {
    proptest::option::of(prop_oneof![Just(Repeat::Same), ".{0,8}".prop_map(Repeat::Other)])
}

prop_compose! {
    fn inbound()(
        principal in principal(), sent in sent(), reply_to in route(), text in ".{0,20}", edit in any::<bool>(),
        line in ".{0,8}", flags in any::<[bool; 3]>(), provenance in proptest::option::of(provenance()),
        routine in proptest::option::of(".{0,8}"),
    ) -> Inbound {
        let body = if edit { Body::Edit(text) } else { Body::Text(text) };
        let source = routine.map(|routine| WorkSource { channel: "t".into(), routine: Some(routine), asked_in: "s".into() });
        Inbound {
            source: source.map(Arc::new),
            lifetime: if flags[0] { SessionLifetime::Ephemeral } else { SessionLifetime::Lasting },
            key: sent.map(|sent| sent.key),
            reply_to,
            history: vec![HistoryLine { role: HistoryRole::System, text: line }],
            want_deltas: flags[0],
            only_now: flags[1],
            outputs: vec![DeclaredOutput { name: "n".into(), schema: serde_json::json!({"type": "string"}), description: None }],
            relayed: flags[2],
            provenance: provenance.map(Arc::new),
            options: RunOptions { queue: Some(QueueMode::Collect), ..RunOptions::default() },
            ..Inbound::new("c".into(), "s".into(), principal, body)
        }
    }
}

prop_compose! {
    fn input()(
        inbound in inbound(), text in ".{0,20}", sent in sent(), repeat in repeat(), checked in any::<bool>(),
    ) -> LaneInput {
        let origin = RunOrigin::of(&inbound);
        let run = LiveRun::new(RunId::new(), inbound.session.clone(), origin, inbound.want_deltas);
        LaneInput { run, inbound, text, sent, repeat, checked, forwarded: None, ack: AckSender::nobody() }
    }
}

fn plan_command() -> impl Strategy<Value = PlanCommand> {
    prop_oneof![
        Just(PlanCommand::Show),
        Just(PlanCommand::Approve),
        Just(PlanCommand::Hold),
        Just(PlanCommand::Cancel),
        (any::<u64>(), ".{0,8}").prop_map(|(step, text)| PlanCommand::Change { step, text }),
        (any::<u64>(), ".{0,8}").prop_map(|(step, text)| PlanCommand::Add { step, text }),
        any::<u64>().prop_map(|step| PlanCommand::Drop { step }),
    ]
}

fn order() -> impl Strategy<Value = LaneOrder> {
    let prefix = IdPrefix::parse("0199e3a0-7b1c").expect("a prefix");
    let change = prop_oneof![
        Just(Change::Show),
        Just(Change::Default),
        Just(Change::To(RunOptions { verbose: Some(true), ..RunOptions::default() }))
    ];
    let thread = prop_oneof![
        Just(ThreadCommand::Undo),
        Just(ThreadCommand::Redo),
        Just(ThreadCommand::Clear),
        Just(ThreadCommand::New),
        Just(ThreadCommand::List),
        Just(ThreadCommand::Resume(prefix)),
        Just(ThreadCommand::Fork),
        proptest::option::of(".{0,8}").prop_map(ThreadCommand::Compact),
        Just(ThreadCommand::Summarize),
        any::<bool>().prop_map(ThreadCommand::Loops),
        Just(ThreadCommand::Hide),
        Just(ThreadCommand::Delete),
    ];
    prop_oneof![
        thread.prop_map(LaneOrder::Thread),
        change.prop_map(|change| LaneOrder::Setting(SettingCommand { setting: Setting::Queue, change })),
        (plan_command(), any::<bool>())
            .prop_map(|(command, by_operator)| LaneOrder::Plan(PlanOrder { command, by_operator })),
    ]
}

prop_compose! {
    fn command()(
        order in order(), principal in principal(), word in ".{0,8}", reply_to in route(), sent in sent(),
        claimed in proptest::option::of(Just(BootId::new())),
    ) -> LaneCommand {
        let origin = RunOrigin { work: Work::Chat, source: None, channel: "c".into(), principal: principal.id };
        let (forwarded, ack) = (None, AckSender::nobody());
        LaneCommand { session: "s".into(), order, origin, word, reply_to, sent, claimed, forwarded, ack }
    }
}

prop_compose! {
    fn answer()(
        decision in prop_oneof![Just(Decision::Approve), Just(Decision::Always), Just(Decision::Deny)],
        secret in proptest::option::of("canary.{0,8}"), who in principal(), word in ".{0,8}", reply_to in route(),
        sent in sent(),
    ) -> LaneAnswer {
        LaneAnswer {
            approval: ApprovalId::new(),
            reply: secret.map_or(LaneReply::Decision(decision), |text| LaneReply::Secret(Secret::new(text))),
            who,
            from: "f".into(),
            through: "c".into(),
            word,
            reply_to,
            sent,
            claimed: None,
            forwarded: None,
            ack: AckSender::nobody(),
        }
    }
}

/// The mail at the owner of its lane.
fn delivered(mail: &LaneMail) -> LaneMail {
    let json = serde_json::to_string(&WireMail::of(mail).expect("a form")).expect("JSON");
    let wire = WireMail::of_json(&serde_json::from_str(&json).expect("JSON")).expect("the same form");
    wire.into_mail(MailId::new(), mail.secret().cloned(), AckSender::nobody()).expect("not sealed")
}

proptest! {
    #[test]
    fn a_message_arrives_as_it_was_sent(input in input()) {
        let mail = LaneMail::Input(Box::new(input));
        let (LaneMail::Input(sent), LaneMail::Input(arrived)) = (&mail, delivered(&mail)) else { unreachable!() };
        prop_assert_eq!(&sent.inbound, &arrived.inbound);
        prop_assert_eq!((sent.run.id, &sent.run.session), (arrived.run.id, &arrived.run.session));
        prop_assert_eq!((&sent.text, &sent.sent, &sent.repeat), (&arrived.text, &arrived.sent, &arrived.repeat));
        prop_assert_eq!(sent.checked, arrived.checked);
    }

    #[test]
    fn a_command_arrives_as_it_was_sent(command in command()) {
        let mail = LaneMail::Command(Box::new(command));
        prop_assert_eq!(WireMail::of(&mail), WireMail::of(&delivered(&mail)));
    }

    #[test]
    fn an_answer_arrives_as_it_was_sent_and_its_secret_does_not_travel(answer in answer()) {
        let mail = LaneMail::Answer(Box::new(answer));
        let arrived = delivered(&mail);
        prop_assert_eq!(WireMail::of(&mail), WireMail::of(&arrived));
        prop_assert_eq!(mail.secret(), arrived.secret());
        let json = serde_json::to_string(&WireMail::of(&mail)).expect("JSON");
        prop_assert!(!json.contains("canary"), "{}", json);
    }

    #[test]
    fn an_acknowledgement_arrives_as_it_was_given(text in ".{0,20}", refused in any::<bool>(), ms in 0..100_000_u64) {
        let retry_after = std::time::Duration::from_millis(ms);
        let reply = CommandReply { command: "/x".into(), reply: text.clone(), resumes: Some(RunId::new()), refused };
        for ack in [
            WireAck::Accepted {
                run: RunId::new(),
                session: "s".into(),
                at: 1,
                duplicate: refused,
                frozen: Some("why".to_owned()).filter(|_| !refused),
            },
            WireAck::Command(reply),
            WireAck::Removed(Removed { sessions: ms, ..Removed::default() }),
            WireAck::Refused(Refusal::Busy { what: text.clone(), retry_after }),
            WireAck::Refused(Refusal::Conflict { run_id: RunId::new() }),
            WireAck::Refused(Refusal::ShuttingDown),
            WireAck::Refused(Refusal::Decided(text)),
        ] {
            let json = serde_json::to_string(&ack).expect("JSON");
            prop_assert_eq!(&serde_json::from_str::<WireAck>(&json).expect("the same form"), &ack);
            prop_assert_eq!(WireAck::of(ack.clone().into_ack()), Some(ack));
        }
    }
}
