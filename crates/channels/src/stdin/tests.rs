#![allow(clippy::unwrap_used)]

use std::sync::mpsc as std_mpsc;
use std::time::Duration;

use belay_protocol::{
    Accepted, Ack, AckSender, ApprovalId, ApprovalKind, Body, CommandReply, OutboxId, Question, Refusal, ReplyRoute,
    RunId, RunRecord, RunStatus, RunWatch, SessionKey, StopReason, UnixMillis, WaitingFor, run::RunUsage,
};
use futures_util::StreamExt;
use tokio::sync::watch;
use tokio::time::timeout;

use super::*;

/// A writer whose output the test reads.
#[derive(Clone, Default)]
struct Paper(Arc<Mutex<String>>);

impl Paper {
    fn text(&self) -> String {
        self.0.lock().unwrap().clone()
    }
}

impl Write for Paper {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().push_str(std::str::from_utf8(bytes).unwrap());
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A reader that returns the text that the test sends, and ends when the test drops its sender.
struct Typed(std_mpsc::Receiver<&'static str>);

impl Read for Typed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Ok(text) = self.0.recv() else { return Ok(0) };
        buffer[..text.len()].copy_from_slice(text.as_bytes());
        Ok(text.len())
    }
}

/// A run that the test ends.
struct Run {
    id: RunId,
    finished: watch::Sender<Option<Arc<RunRecord>>>,
}

impl Run {
    fn accept(ack: AckSender) -> Self {
        let id = RunId::new();
        let (finished, seen) = watch::channel(None);
        ack.send(Ack::Accepted(Accepted {
            run_id: id,
            session: SessionKey::new("stdin"),
            accepted_at: UnixMillis(0),
            duplicate: false,
            frozen: None,
            watch: Some(RunWatch {
                run_id: id,
                finished: seen,
                deltas: None,
                so_far: belay_protocol::Partial::default(),
            }),
        }));
        Self { id, finished }
    }

    fn finish(&self, reply: Option<&str>) {
        self.finished.send_replace(Some(Arc::new(self.record(RunStatus::Completed, reply))));
    }

    /// Pauses it with an approval request, which is shown.
    async fn ask(&self, channel: &StdinChannel) -> ApprovalId {
        let approval = ApprovalId::new();
        let waiting_for = WaitingFor {
            approval,
            kind: ApprovalKind::Approval,
            tool: "run_command".into(),
            summary: "ls".into(),
            expires_at: UnixMillis(1),
        };
        let record = RunRecord { waiting_for: Some(waiting_for), ..self.record(RunStatus::Paused, None) };
        self.finished.send_replace(Some(Arc::new(record)));
        let question = Some(Question { approval, offers_always: false, decidable: true });
        channel.deliver(&Outbound { question, ..outbound(Some(self.id), "May I?") }).await.unwrap();
        approval
    }

    fn record(&self, status: RunStatus, reply: Option<&str>) -> RunRecord {
        RunRecord {
            run_id: self.id,
            session: SessionKey::new("stdin"),
            status,
            reason: Some(StopReason::FinalText),
            evidence: serde_json::Map::new(),
            reply: reply.map(str::to_owned),
            usage: RunUsage::default(),
            cost_micro_usd: 0,
            attempt: 1,
            accepted_at: UnixMillis(0),
            started_at: None,
            ended_at: None,
            waiting_for: None,
            files: Vec::new(),
        }
    }

    async fn answer(&self, channel: &StdinChannel, reply: &str) {
        self.finish(Some(reply));
        channel.deliver(&outbound(Some(self.id), reply)).await.unwrap();
    }
}

fn outbound(run_id: Option<RunId>, text: &str) -> Outbound {
    let route = ReplyRoute { channel: ChannelId::new("stdin"), conversation: "stdin".into(), reply_to: None };
    Outbound {
        id: OutboxId::new(),
        run_id,
        route,
        text: text.into(),
        pieces_sent: 0,
        question: None,
        preview: None,
        callback: None,
        unchecked: None,
        file: None,
    }
}

fn command(ack: AckSender, word: &str) {
    ack.send(Ack::Command(CommandReply { command: word.into(), reply: "done".into(), resumes: None, refused: false }));
}

fn text(envelope: &Envelope) -> &str {
    match &envelope.inbound.body {
        Body::Text(text) => text,
        other => panic!("not a text: {other:?}"),
    }
}

async fn open(input: &'static [u8]) -> (StdinChannel, InboundStream, Paper) {
    let paper = Paper::default();
    let channel = StdinChannel::over(input, paper.clone()).unwrap();
    let stream = channel.start(CancellationToken::new()).await.unwrap();
    (channel, stream, paper)
}

/// Returns the next envelope.
async fn next(stream: &mut InboundStream) -> Option<Envelope> {
    timeout(Duration::from_secs(300), stream.next()).await.expect("the channel went on in time")
}

/// Whether the channel sends nothing for 50 ms of real time: a thread may be about to send.
async fn is_silent(stream: &mut InboundStream) -> bool {
    timeout(Duration::from_millis(50), stream.next()).await.is_err()
}

#[tokio::test]
async fn a_line_becomes_an_operators_message_of_the_one_session() {
    let (_channel, mut stream, _) = open(b"  \n\nhello\n").await;
    let envelope = next(&mut stream).await.unwrap();
    assert_eq!(
        envelope.inbound,
        belay_protocol::Inbound {
            reply_to: Some(outbound(None, "").route),
            ..belay_protocol::Inbound::new(
                ChannelId::new("stdin"),
                SessionKey::new("stdin"),
                belay_protocol::Principal::operator("stdin"),
                Body::Text("hello".into())
            )
        }
    );
}

#[tokio::test]
async fn commands_go_at_once_but_quit_waits_for_the_answer_before_it() {
    let (channel, mut stream, paper) = open(b"calculate 17*23\n/status\n/quit\nlater\n").await;
    let question = next(&mut stream).await.unwrap();
    let status = next(&mut stream).await.unwrap();
    assert_eq!((text(&question), text(&status)), ("calculate 17*23", "/status"));
    command(status.ack, "/status");
    let run = Run::accept(question.ack);
    assert!(is_silent(&mut stream).await, "the run goes on");
    run.finish(Some("391"));
    assert!(is_silent(&mut stream).await, "the answer has not been shown");
    channel.deliver(&outbound(Some(run.id), "391")).await.unwrap();
    let quit = next(&mut stream).await.unwrap();
    assert_eq!(text(&quit), "/quit");
    assert_eq!(paper.text(), "391\n");
    command(quit.ack, "/quit");
    assert!(next(&mut stream).await.is_none(), "what follows a quit is not sent");
}

#[tokio::test]
async fn the_end_of_input_waits_for_answers_and_does_not_need_the_last_newline() {
    let (channel, mut stream, _) = open(b"one\ntwo").await;
    let one = Run::accept(next(&mut stream).await.unwrap().ack);
    let two = Run::accept(next(&mut stream).await.unwrap().ack);
    one.answer(&channel, "1").await;
    assert!(is_silent(&mut stream).await, "the second run goes on");
    two.finish(None); // ended without a reply: nothing to wait for
    assert!(next(&mut stream).await.is_none());
}

#[tokio::test]
async fn a_run_the_daemon_lets_go_of_and_a_line_without_an_ack_do_not_hold_the_end() {
    let (_channel, mut stream, _) = open(b"one\ntwo\n").await;
    drop(Run::accept(next(&mut stream).await.unwrap().ack));
    drop(next(&mut stream).await.unwrap().ack);
    assert!(next(&mut stream).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_is_never_shown_holds_the_end_for_five_seconds() {
    let (sender, typed) = std_mpsc::sync_channel(1000);
    let channel = StdinChannel::over(Typed(typed), Paper::default()).unwrap();
    let mut stream = channel.start(CancellationToken::new()).await.unwrap();
    sender.send("one\n").unwrap();
    let run = Run::accept(stream.next().await.unwrap().ack);
    run.finish(Some("never shown"));
    drop(sender);
    let begun = tokio::time::Instant::now();
    assert!(stream.next().await.is_none());
    assert!(begun.elapsed() >= Duration::from_secs(5) && begun.elapsed() < Duration::from_secs(6));
}

#[tokio::test]
async fn a_thousand_piped_lines_are_answered_in_order_and_never_more_than_fifteen_at_a_time() {
    let input: String = (0..1000).map(|n| format!("line {n}\n")).collect();
    let (channel, mut stream, paper) = open(input.leak().as_bytes()).await;
    let (mut open_runs, mut most, mut seen) = (std::collections::VecDeque::new(), 0, 0);
    loop {
        match timeout(Duration::from_millis(200), stream.next()).await {
            Ok(Some(envelope)) => {
                assert_eq!(text(&envelope), format!("line {seen}"));
                open_runs.push_back((seen, Run::accept(envelope.ack)));
                seen += 1;
                most = most.max(open_runs.len());
                if open_runs.len() < 15 {
                    continue;
                }
            }
            Ok(None) => break,
            Err(_) => {}
        }
        let (number, run): (usize, Run) = open_runs.pop_front().expect("silent only while something is open");
        run.answer(&channel, &format!("answer {number}")).await;
    }
    assert_eq!((seen, most), (1000, 15));
    let expected: String = (0..1000).map(|n| format!("answer {n}\n")).collect();
    assert_eq!(paper.text(), expected);
}

#[tokio::test]
async fn while_fifteen_runs_are_open_the_next_text_waits() {
    let input: String = (0..16).map(|n| format!("{n}\n")).collect();
    let (channel, mut stream, _) = open(input.leak().as_bytes()).await;
    let mut runs = Vec::new();
    for _ in 0..15 {
        runs.push(Run::accept(next(&mut stream).await.unwrap().ack));
    }
    assert!(is_silent(&mut stream).await);
    runs[3].answer(&channel, "x").await;
    assert_eq!(text(&next(&mut stream).await.unwrap()), "15");
}

#[tokio::test]
async fn a_busy_line_is_tried_again_before_the_next_text() {
    let (channel, mut stream, _) = open(b"one\ntwo\n").await;
    let refused = next(&mut stream).await.unwrap();
    refused.ack.send(Ack::Refused(Refusal::Busy { what: "queue".into(), retry_after: Duration::from_millis(20) }));
    let again = next(&mut stream).await.unwrap();
    assert_eq!(text(&again), "one");
    let one = Run::accept(again.ack);
    let two = next(&mut stream).await.unwrap();
    assert_eq!(text(&two), "two");
    two.ack.send(Ack::Refused(Refusal::Invalid("no".into())));
    one.answer(&channel, "1").await;
    assert!(next(&mut stream).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn lines_that_were_busy_at_the_same_time_are_all_sent_again() {
    let printer = Printer::start(Plain(Paper::default())).unwrap();
    let (lines, taken) = mpsc::channel(TYPED_LINES);
    let (_interrupts, interrupted) = mpsc::channel(1);
    let deliveries = Arc::new(Deliveries::new());
    let mut pump = Pump::new(taken, interrupted, printer, deliveries, Ending::AfterAnswers, CancellationToken::new());
    for line in ["/status", "/jobs"] {
        lines.try_send(Line::Text(line.into())).unwrap();
    }
    for _ in 0..2 {
        let busy = Refusal::Busy { what: "queue".into(), retry_after: Duration::from_millis(20) };
        pump.next().await.unwrap().ack.send(Ack::Refused(busy));
    }
    let mut again = Vec::new();
    for _ in 0..2 {
        let sent = timeout(Duration::from_secs(300), pump.next()).await.expect("no line is lost").unwrap();
        again.push(text(&sent).to_owned());
    }
    again.sort();
    assert_eq!(again, ["/jobs", "/status"]);
}

#[tokio::test]
async fn lines_that_cannot_be_messages_are_named_and_the_rest_is_sent() {
    let (_channel, mut stream, paper) = open(b"a\xff\nok\n").await;
    assert_eq!(text(&next(&mut stream).await.unwrap()), "ok");
    assert_eq!(paper.text(), "Line 1 was skipped: it is not UTF-8 (first wrong byte at position 2).\n");
}

#[tokio::test]
async fn the_end_of_intake_ends_the_stream_though_the_reader_is_blocked() {
    let (sender, typed) = std_mpsc::sync_channel(1000);
    let paper = Paper::default();
    let channel = StdinChannel::over(Typed(typed), paper.clone()).unwrap();
    let intake = CancellationToken::new();
    let mut stream = channel.start(intake.clone()).await.unwrap();
    assert!(is_silent(&mut stream).await);
    intake.cancel();
    assert!(next(&mut stream).await.is_none());
    channel.deliver(&outbound(None, "still able to speak")).await.unwrap();
    assert_eq!(paper.text(), "still able to speak\n");
    drop(sender);
}

#[tokio::test]
async fn a_closed_output_refuses_the_delivery_and_does_not_hold_the_end() {
    struct Closed;
    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let channel = StdinChannel::over(&b"one\n"[..], Closed).unwrap();
    let mut stream = channel.start(CancellationToken::new()).await.unwrap();
    let run = Run::accept(next(&mut stream).await.unwrap().ack);
    run.finish(Some("1"));
    let refused = channel.deliver(&outbound(Some(run.id), "1")).await;
    assert!(matches!(refused, Err(DeliverError::Refused { .. })), "{refused:?}");
    assert!(next(&mut stream).await.is_none());
}

#[tokio::test]
async fn a_channel_starts_once() {
    let (channel, _stream, _) = open(b"").await;
    assert!(channel.start(CancellationToken::new()).await.is_err());
}

#[tokio::test]
async fn an_interrupt_stops_what_runs_else_it_warns_and_the_second_one_quits() {
    let paper = Paper::default();
    let printer = Printer::start(Plain(paper.clone())).unwrap();
    let (lines, taken) = mpsc::channel(LINES);
    let (interrupts, interrupted) = mpsc::channel(1);
    let deliveries = Arc::new(Deliveries::new());
    let mut pump = Pump::new(taken, interrupted, printer, deliveries, Ending::AtOnce, CancellationToken::new());
    lines.send(Line::Text("work".into())).await.unwrap();
    let run = Run::accept(pump.next().await.unwrap().ack);
    interrupts.send(()).await.unwrap();
    let stop = pump.next().await.unwrap();
    assert_eq!(text(&stop), "/interrupt");
    command(stop.ack, "/interrupt");
    run.finish(None);
    assert!(timeout(Duration::from_millis(50), pump.next()).await.is_err());
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(2)).await; // sooner, it would be the second of two
    tokio::time::resume();
    interrupts.send(()).await.unwrap();
    assert!(timeout(Duration::from_millis(50), pump.next()).await.is_err());
    assert_eq!(paper.text(), "Nothing is running. Press Ctrl-C again, or type /quit, to end.\n");
    interrupts.send(()).await.unwrap();
    assert_eq!(text(&pump.next().await.unwrap()), "/quit");
    drop(lines);
    assert!(pump.next().await.is_none(), "at a terminal the end of input acts at once");
}

#[tokio::test]
async fn two_interrupts_stop_what_runs_and_quit() {
    let printer = Printer::start(Plain(Paper::default())).unwrap();
    let (lines, taken) = mpsc::channel(LINES);
    let (interrupts, interrupted) = mpsc::channel(1);
    let deliveries = Arc::new(Deliveries::new());
    let mut pump = Pump::new(taken, interrupted, printer, deliveries, Ending::AtOnce, CancellationToken::new());
    lines.send(Line::Text("work".into())).await.unwrap();
    let _run = Run::accept(pump.next().await.unwrap().ack);
    for expected in ["/interrupt", "/quit"] {
        interrupts.send(()).await.unwrap();
        assert_eq!(text(&pump.next().await.unwrap()), expected);
    }
}

#[tokio::test]
async fn a_scripts_yes_waits_for_its_approval_request_and_the_end_for_the_resumed_run() {
    let (channel, mut stream, paper) = open(b"run ls\nyes\n/quit\n").await;
    let run = Run::accept(next(&mut stream).await.unwrap().ack);
    assert!(is_silent(&mut stream).await, "nothing is asked yet");
    run.ask(&channel).await;
    let yes = next(&mut stream).await.unwrap();
    assert_eq!(text(&yes), "yes");
    let reply =
        CommandReply { command: "/approve".into(), reply: "Approved.".into(), resumes: Some(run.id), refused: false };
    yes.ack.send(Ack::Command(reply));
    assert!(is_silent(&mut stream).await, "the run is about to go on");
    run.finished.send_replace(None);
    assert!(is_silent(&mut stream).await, "it goes on");
    run.answer(&channel, "a b c").await;
    let quit = next(&mut stream).await.unwrap();
    assert_eq!((text(&quit), paper.text().as_str()), ("/quit", "May I?\na b c\n"));
}

#[tokio::test]
async fn an_answer_from_another_channel_resumes_the_run_here_too_and_a_second_request_is_waited_for() {
    let (channel, mut stream, _) = open(b"run ls\n/deny\n").await;
    let run = Run::accept(next(&mut stream).await.unwrap().ack);
    let first = run.ask(&channel).await;
    let deny = next(&mut stream).await.unwrap();
    assert_eq!(text(&deny), "/deny");
    deny.ack.send(Ack::Refused(Refusal::Decided("This was approved before.".into())));
    run.finished.send_replace(None);
    assert_ne!(run.ask(&channel).await, first);
    assert!(next(&mut stream).await.is_none(), "a question that nobody answers does not hold the end of input");
}

#[tokio::test]
async fn a_question_does_not_end_the_input_while_another_line_has_no_answer() {
    let (channel, mut stream, paper) = open(b"run ls\ncount\n").await;
    let asking = Run::accept(next(&mut stream).await.unwrap().ack);
    let counting = Run::accept(next(&mut stream).await.unwrap().ack);
    asking.ask(&channel).await;
    assert!(is_silent(&mut stream).await, "the other line has no answer");
    counting.answer(&channel, "three").await;
    assert!(next(&mut stream).await.is_none());
    assert_eq!(paper.text(), "May I?\nthree\n");
}

#[tokio::test]
async fn a_question_of_a_part_does_not_hold_the_end_of_input() {
    let (channel, mut stream, _) = open(b"run ls\n").await;
    let _run = Run::accept(next(&mut stream).await.unwrap().ack);
    let question = Some(Question { approval: ApprovalId::new(), offers_always: false, decidable: true });
    channel.deliver(&Outbound { question, ..outbound(Some(RunId::new()), "May I?") }).await.unwrap();
    assert!(next(&mut stream).await.is_none());
}

#[tokio::test]
async fn at_a_keyboard_a_hundred_lines_wait_or_are_refused_and_controls_and_answers_pass_them() {
    let paper = Paper::default();
    let printer = Printer::start(Plain(paper.clone())).unwrap();
    let (lines, taken) = mpsc::channel(TYPED_LINES);
    let (_interrupts, interrupted) = mpsc::channel(1);
    let deliveries = Arc::new(Deliveries::new());
    let mut pump = Pump::new(taken, interrupted, printer, deliveries.clone(), Ending::AtOnce, CancellationToken::new());
    let type_line = |line: String| lines.try_send(Line::Text(line)).expect("the keyboard is never blocked");
    (1..=100).for_each(|n| type_line(format!("line {n}")));
    let first = pump.next().await.unwrap();
    assert_eq!(text(&first), "line 1");
    // Its acceptance is awaited, so the other lines wait: one is the next, 16 are behind it.
    type_line("/status".into());
    assert_eq!(text(&pump.next().await.unwrap()), "/status");
    let refused: String = (19..=100)
        .map(|n| format!("Not sent, because 16 lines wait already; /stop ends the work: line {n}\n"))
        .collect();
    assert_eq!(paper.text(), refused);
    deliveries.note((RunId::new(), Some(ApprovalId::new())));
    type_line("yes".into());
    assert_eq!(text(&pump.next().await.unwrap()), "yes", "the answer to the question");
    type_line("yes".into()); // no question waits: a text, for which there is no room
    type_line("/stop".into());
    assert_eq!(text(&pump.next().await.unwrap()), "/stop");
    let last =
        "Not sent, because 16 lines wait already; /stop ends the work: yes\n17 lines that waited were not sent.\n";
    assert_eq!(paper.text(), format!("{refused}{last}"));
    type_line("next".into());
    let _run = Run::accept(first.ack);
    assert_eq!(text(&pump.next().await.unwrap()), "next");
}

#[tokio::test]
async fn typed_lines_that_a_quit_overtakes_are_not_dropped_without_a_word() {
    let paper = Paper::default();
    let printer = Printer::start(Plain(paper.clone())).unwrap();
    let (lines, taken) = mpsc::channel(TYPED_LINES);
    let (_interrupts, interrupted) = mpsc::channel(1);
    let deliveries = Arc::new(Deliveries::new());
    let mut pump = Pump::new(taken, interrupted, printer, deliveries, Ending::AtOnce, CancellationToken::new());
    for line in ["one", "two", "three", "/quit"] {
        lines.try_send(Line::Text(line.into())).unwrap();
    }
    let _one = pump.next().await.unwrap();
    assert_eq!(text(&pump.next().await.unwrap()), "/quit");
    assert_eq!(paper.text(), "2 lines that waited were not sent.\n");
}

#[tokio::test]
async fn typed_lines_before_the_end_of_input_or_a_second_ctrl_c_are_not_dropped_without_a_word() {
    for by_interrupt in [false, true] {
        let paper = Paper::default();
        let printer = Printer::start(Plain(paper.clone())).unwrap();
        let (lines, taken) = mpsc::channel(TYPED_LINES);
        let (interrupts, interrupted) = mpsc::channel(2);
        let deliveries = Arc::new(Deliveries::new());
        let mut pump = Pump::new(taken, interrupted, printer, deliveries, Ending::AtOnce, CancellationToken::new());
        for line in ["one", "two", "three", "/status"] {
            lines.try_send(Line::Text(line.into())).unwrap();
        }
        let _one = pump.next().await.unwrap();
        assert_eq!(text(&pump.next().await.unwrap()), "/status"); // the lines before it have been read, and wait
        if by_interrupt {
            interrupts.try_send(()).unwrap();
            assert_eq!(text(&pump.next().await.unwrap()), "/interrupt");
            interrupts.try_send(()).unwrap();
            assert_eq!(text(&pump.next().await.unwrap()), "/quit");
        } else {
            drop(lines);
            assert!(pump.next().await.is_none());
        }
        assert_eq!(paper.text(), "2 lines that waited were not sent.\n", "by an interrupt: {by_interrupt}");
    }
}
