//! Commands in a conversation, and the texts that answer them.

use belay_protocol::{
    Ack, AckSender, BackgroundProcess, CommandReply, Inbound, PrincipalRole, Purpose, Refusal, RunId, RunProcesses,
    Sent, SessionKey, StatusReport, StillRunning, StopReport, StopTarget, ToolHealth, Trouble,
};

use super::control::operators_only;
use super::freeze::for_everybody;
use super::named::{Named, several};
use super::{Dispatcher, Flow, help};
use crate::figures;
use crate::mail::{LaneCommand, LaneMail, LaneOrder, PlanOrder};
use crate::queue::BUSY_RETRY;
use crate::stats;
use crate::stop_orders::StopRequest;
use crate::submission::{self, Command, HelpPart, ThreadCommand};
use crate::troubles;
use belay_run::live::RunOrigin;
use belay_run::tool_health;

impl Dispatcher {
    pub(super) fn command(
        &mut self,
        command: Command,
        text: &str,
        sent: Option<Sent>,
        inbound: Inbound,
        ack: AckSender,
    ) -> Flow {
        let word = submission::word_of(text);
        let reply = match command {
            Command::Quit if inbound.principal.is_operator() => {
                self.answer(&inbound, ack, &word, Ok("Shutting down.".into()));
                return Flow::ShutDown;
            }
            Command::Quit => Err(operators_only("shut Belay down").to_string()),
            Command::Stop(target) => return self.stop_command(target, word, inbound, ack),
            Command::Interrupt => {
                let target = StopTarget::Session(inbound.session.clone());
                let request = StopRequest { only_begun: true, ..StopRequest::of(&inbound) };
                return self.stop_in_conversation(target, request, word, inbound, ack);
            }
            Command::Thread(ThreadCommand::List | ThreadCommand::Summarize) if reads_nothing(&inbound) => Err(
                "This shows what others have said here. A sender who cannot read the conversation gets no list and no \
                     summary of it."
                    .to_owned(),
            ),
            Command::Thread(ThreadCommand::Hide) if !inbound.principal.is_operator() => {
                Err(operators_only("hide a conversation from lists").to_string())
            }
            // A compaction asks the model.
            Command::Thread(ThreadCommand::Compact(_)) if self.is_frozen(&inbound) => {
                Err("Everything here is frozen; repeat this after the thaw.".to_owned())
            }
            Command::Thread(command) => return self.lane_command(LaneOrder::Thread(command), word, sent, inbound, ack),
            Command::Setting(command) => {
                return self.lane_command(LaneOrder::Setting(command), word, sent, inbound, ack);
            }
            Command::Plan(_) | Command::Goal(_) if reads_nothing(&inbound) => {
                Err("A sender who cannot read the conversation gets no answer about its plan or its goal.".to_owned())
            }
            Command::Goal(command) => return self.lane_command(LaneOrder::Goal(command), word, sent, inbound, ack),
            Command::Plan(command) => {
                let order = PlanOrder { command, by_operator: inbound.principal.is_operator() };
                return self.lane_command(LaneOrder::Plan(order), word, sent, inbound, ack);
            }
            Command::Freeze(request) => {
                self.freeze_command(request, word, &inbound, ack);
                return Flow::Continue;
            }
            Command::Status => return self.status_command(word, inbound, ack),
            Command::Start => Ok(self.greeting(&inbound)),
            Command::Help(part) => Ok(help::text(part, &self.services.context.known_skills())),
            Command::Version => Ok(format!("Belay {}", self.services.version)),
            Command::Ping => Ok("pong".into()),
            Command::Decide(decision, approval) => {
                self.decide_in_conversation(decision, approval, word, sent, inbound, ack);
                return Flow::Continue;
            }
            Command::Job(command) => {
                self.job_command(command, word, sent, inbound, ack);
                return Flow::Continue;
            }
            Command::Tools(command) => {
                self.tools_command(command, word, sent, inbound, ack);
                return Flow::Continue;
            }
            Command::Routine(command) => {
                self.routine_command(command, word, sent, inbound, ack);
                return Flow::Continue;
            }
            Command::Memory(command) => return self.memory_command(command, word, sent, inbound, ack),
            Command::People(request) => {
                self.people_command(request, word, sent, inbound, ack);
                return Flow::Continue;
            }
            Command::Usage(usage) => Err(usage.into()),
        };
        self.answer(&inbound, ack, &word, reply);
        Flow::Continue
    }

    fn stop_command(&mut self, target: Option<String>, word: String, inbound: Inbound, ack: AckSender) -> Flow {
        let own = |name: &String| {
            *name == inbound.session.as_str()
                || match self.run_named(name, &inbound) {
                    Named::One(run) => self.sessions.get(&run) == Some(&inbound.session),
                    Named::Several => true,
                    Named::Nothing => false,
                }
        };
        let target = match target {
            None => StopTarget::Session(inbound.session.clone()),
            Some(name) if !inbound.principal.is_operator() && !own(&name) => {
                let reply = operators_only("stop another conversation").to_string();
                self.answer(&inbound, ack, &word, Err(reply));
                return Flow::Continue;
            }
            Some(name) if name.eq_ignore_ascii_case("all") => StopTarget::All,
            Some(name) => match self.run_named(&name, &inbound) {
                Named::One(run) => StopTarget::Run(run),
                Named::Several => {
                    self.answer(&inbound, ack, &word, Err(several("runs", &name)));
                    return Flow::Continue;
                }
                Named::Nothing => StopTarget::Session(SessionKey::new(name)),
            },
        };
        let request = StopRequest { may_stop_work: true, ..StopRequest::of(&inbound) };
        self.stop_in_conversation(target, request, word, inbound, ack)
    }

    fn stop_in_conversation(
        &mut self,
        target: StopTarget,
        request: StopRequest,
        word: String,
        inbound: Inbound,
        ack: AckSender,
    ) -> Flow {
        // A stop ends what conversations keep, and a sender that reads nothing is not told what that is.
        let stays = request.only_begun && !reads_nothing(&inbound);
        let stopping = self.stop_everywhere(target, request, None);
        let (notifier, services) = (self.notifier.clone(), self.services.clone());
        self.background(async move {
            let (report, at_work) = stopping.await;
            let kept = if stays { kept_line(&*services.processes, &inbound.session) } else { None };
            let reply = stop_text(&report, &at_work) + &kept.map_or_else(String::new, |line| format!(" {line}"));
            let said = CommandReply { command: word, reply: reply.clone(), resumes: None, refused: false };
            ack.send(Ack::Command(said));
            notifier.say(inbound.reply_to, reply);
        });
        Flow::Continue
    }

    pub(super) fn lane_command(
        &mut self,
        order: LaneOrder,
        word: String,
        sent: Option<Sent>,
        inbound: Inbound,
        ack: AckSender,
    ) -> Flow {
        let lane = self.lane(&inbound.session, inbound.lifetime);
        let (session, origin, reply_to) = (inbound.session.clone(), RunOrigin::of(&inbound), inbound.reply_to.clone());
        let mail = LaneMail::Command(Box::new(LaneCommand {
            session,
            order,
            origin,
            word,
            reply_to,
            sent,
            claimed: None,
            forwarded: None,
            ack,
        }));
        match lane.post(mail) {
            Ok(()) => lane.commands += 1,
            Err(mail) => {
                inbound.key.iter().for_each(|key| self.keys.not_acted_on(key));
                if let LaneMail::Command(command) = mail {
                    let what = "this conversation has too many commands waiting".to_owned();
                    self.refuse(&inbound, command.ack, Refusal::Busy { what, retry_after: BUSY_RETRY });
                }
            }
        }
        Flow::Continue
    }

    /// The greeting of the channel; without one, the most used commands.
    fn greeting(&self, inbound: &Inbound) -> String {
        let greeting = self.services.pairing.as_ref().and_then(|pairing| pairing.greeting(&inbound.channel));
        greeting.unwrap_or_else(|| help::text(HelpPart::MostUsed, &self.services.context.known_skills()))
    }

    fn model_text(&self) -> String {
        let info = self.services.run.model.info();
        let label = if info.rehearsal { " (the built-in stand-in, not a model)" } else { "" };
        format!("Model: {} by {}{label}.", info.model, info.provider)
    }

    /// `/status`.
    fn status_command(&mut self, word: String, inbound: Inbound, ack: AckSender) -> Flow {
        let (mut status, model) = (self.status(), self.model_text());
        let is_operator = inbound.principal.is_operator();
        if !is_operator {
            status.frozen = for_everybody(status.frozen);
            status.tools = status.tools.into_iter().map(ToolHealth::for_everybody).collect();
        }
        let (services, notifier) = (self.services.clone(), self.notifier.clone());
        self.background(async move {
            let status = troubles::added(&services, status, is_operator).await;
            let status = match services.run.cost.is_shared() {
                true => stats::with_money(&services, status).await,
                false => status,
            };
            let here = figures::line(&services, &inbound).await;
            let reply = status_text(&status, &model, &inbound, here);
            ack.send(Ack::Command(CommandReply { command: word, reply: reply.clone(), resumes: None, refused: false }));
            notifier.say(inbound.reply_to, reply);
        });
        Flow::Continue
    }
}

/// The status. Operators see all runs, others only those of their conversation. `here`: a line about the conversation.
fn status_text(status: &StatusReport, model: &str, inbound: &Inbound, here: Option<String>) -> String {
    let all = inbound.principal.is_operator();
    let shown = status.running.iter().filter(|run| all || run.session == inbound.session);
    let channels: Vec<_> = status.channels.iter().map(|channel| channel.as_str()).collect();
    let mut text = format!(
        "Belay {} is up. {}\n{} running, {} queued, {} awaiting approval, {} active conversation{}. Channels: {}.",
        status.version,
        model,
        status.running.len(),
        status.queued,
        status.paused,
        status.sessions_awake,
        if status.sessions_awake == 1 { "" } else { "s" },
        channels.join(", ")
    );
    if !status.degraded.is_empty() {
        text = format!("{}\n{text}", degraded_text(&status.degraded));
    }
    if let Some(line) = here {
        text.push_str(&format!("\n{line}"));
    }
    for run in shown.take(10) {
        text.push_str(&format!("\n- run {} of {}, {:.1} s", run.run_id, run.session, run.for_ms as f64 / 1000.0));
    }
    for process in status.beside.processes.iter().filter(|it| all || it.session == inbound.session).take(10) {
        let seconds = process.for_ms as f64 / 1000.0;
        let command = process.command.replace('`', "'"); // it would end the mark
        text.push_str(&format!("\n- process {} in the background, {seconds:.1} s: `{command}`", process.id));
    }
    for candidate in &status.candidates {
        if let (Some(until), Some(why)) = (candidate.cooling_until, &candidate.reason) {
            text.push_str(&format!("\n{} is not used until {} ({why}).", candidate.name, until.to_rfc3339()));
        }
    }
    for line in status.tools.iter().filter_map(tool_health::trouble_line) {
        text.push_str(&format!("\n{line}"));
    }
    text.push_str(&money_text(status));
    text
}

/// The troubles, a line each.
fn degraded_text(troubles: &[Trouble]) -> String {
    let lines: Vec<String> = troubles.iter().map(|trouble| format!("- {}", trouble.line())).collect();
    format!("Degraded:\n{}\n", lines.join("\n"))
}

/// Today's spending: against the limit of the day if there is one, and for each purpose that has a limit, or that has
/// cost something and is not people's own messages.
fn money_text(status: &StatusReport) -> String {
    let dollars = |micro_usd: u64| micro_usd as f64 / 1e6;
    let mut text = String::new();
    if let Some(limit) = status.limit_today_micro_usd {
        let spent = dollars(status.spent_today_micro_usd);
        text.push_str(&format!("\nSpent today: {spent:.4} of {:.2} US dollars.", dollars(limit)));
    }
    for purpose in Purpose::ALL {
        let (spent, limit) = (status.spent_today_for.of(*purpose), status.limit_today_for.get(purpose));
        let name = purpose.name();
        match limit {
            Some(limit) => {
                text.push_str(&format!("\nFor {name}: {:.4} of {:.2} US dollars.", dollars(spent), dollars(*limit)))
            }
            None if spent > 0 && purpose.is_autonomous() => {
                text.push_str(&format!("\nFor {name}: {:.4} US dollars.", dollars(spent)));
            }
            None => {}
        }
    }
    text
}

/// Whether the sender of a message writes here and reads nothing, as the signer of a webhook: neither a person to whom
/// replies go, nor a client.
fn reads_nothing(inbound: &Inbound) -> bool {
    inbound.reply_to.is_none() && inbound.principal.role == PrincipalRole::User
}

/// The line about background processes that a conversation keeps and an interrupt does not end; `None`: there are none.
fn kept_line(processes: &dyn RunProcesses, session: &SessionKey) -> Option<String> {
    let mut kept = processes.in_background();
    kept.retain(|process| process.kept && process.session == *session);
    let one = |process: &BackgroundProcess| format!("{} ({})", process.id, process.command);
    let some: Vec<String> = kept.iter().take(5).map(one).collect();
    let more = if kept.len() > 5 { format!(" and {} more", kept.len() - 5) } else { String::new() };
    let (what, them) = match kept.len() {
        1 => ("A background process lives on", "it"),
        _ => ("Background processes live on", "them"),
    };
    (!kept.is_empty()).then(|| format!("{what}: {}{more}. /stop ends {them}.", some.join(", ")))
}

/// The text about a stop. `at_work`: the runs that were running when they were stopped.
fn stop_text(report: &StopReport, at_work: &[RunId]) -> String {
    let pending = report.pending_line().map_or_else(String::new, |line| format!(" {line}"));
    let processes = report.processes_line();
    if report.stopped.is_empty() && report.still_running.is_empty() {
        return processes.unwrap_or_else(|| "Nothing is running.".to_owned()) + &pending;
    }
    // A process whose run did not work was kept by the conversation.
    let of_run = |still: &&StillRunning| {
        still.pid.is_none() || at_work.contains(&still.run_id) || report.stopped.contains(&still.run_id)
    };
    let ending = report.still_running.iter().filter(of_run).map(|still| &still.run_id);
    let mut runs: Vec<&RunId> = ending.chain(&report.stopped).collect();
    runs.sort_unstable();
    runs.dedup();
    let running = runs.iter().filter(|run| at_work.contains(run)).count();
    let waiting = runs.len() - running;
    let mut text = match (running, waiting) {
        (0, 0) => String::new(),
        (0, n) => format!("Cleared {}.", messages(n)),
        (1, 0) => "Interrupted.".to_owned(),
        (1, n) => format!("Interrupted; cleared {}.", messages(n)),
        (r, 0) => format!("Interrupted {r} runs."),
        (r, n) => format!("Interrupted {r} runs; cleared {}.", messages(n)),
    };
    if let Some(line) = processes {
        text = format!("{text} {line}").trim_start().to_owned();
    }
    if !report.still_running.is_empty() {
        let what = |still: &StillRunning| match still.pid {
            Some(pid) => format!("{} (process {pid})", still.what),
            None => still.what.clone(),
        };
        let some: Vec<String> = report.still_running.iter().take(5).map(what).collect();
        let more = report.still_running.len().saturating_sub(some.len());
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        text.push_str(&format!(" Still ending: {}{more}.", some.join(", ")));
    }
    text + &pending
}

fn messages(n: usize) -> String {
    format!("{n} waiting message{}", if n == 1 { "" } else { "s" })
}
