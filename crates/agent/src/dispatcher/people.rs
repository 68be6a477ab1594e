//! Requests about people, by programs and by `/pair`. Each is a background task, because an admission is stored.

use belay_protocol::{
    AccessDecision, Ack, AckSender, ChannelId, FreezeScope, Inbound, PeopleReport, PeopleRequest, Refusal, ReplyRoute,
    Sent, StopReason, Stranger, Topic, plain_line,
};

use tokio::sync::mpsc;

use super::Dispatcher;
use super::control::operators_only;
use crate::agent_services::AgentServices;
use crate::mail::LaneNote;
use crate::notifier::Notifier;
use crate::pairing::Admission;
use belay_run::live::StopCause;

/// Longest name of a person in an answer, in characters.
const NAME_MAX_CHARS: usize = 64;

/// The first line to a person who was admitted.
const ADMITTED: &str = "An operator has admitted you: you can write to me now.";

impl Dispatcher {
    /// Handles a request of a program.
    pub(super) fn people_request(&mut self, request: PeopleRequest, inbound: &Inbound, ack: AckSender) {
        let work = self.people_work(request, inbound.clone());
        let services = self.services.clone();
        self.background(async move {
            ack.send(match work.await {
                Ok(_) => Ack::People(Box::new(
                    services.pairing.as_ref().map_or_else(PeopleReport::default, |it| it.report()),
                )),
                Err(refusal) => Ack::Refused(refusal),
            });
        });
    }

    /// Handles `/pair`.
    pub(super) fn people_command(
        &mut self,
        request: PeopleRequest,
        word: String,
        sent: Option<Sent>,
        inbound: Inbound,
        ack: AckSender,
    ) {
        let work = self.people_work(request, inbound.clone());
        let answer = self.answer_of(word, sent, inbound, ack);
        self.background(answer.carry_out(true, work));
    }

    /// The future answer to a request about people.
    fn people_work(
        &self,
        request: PeopleRequest,
        by: Inbound,
    ) -> impl Future<Output = Result<String, Refusal>> + Send + use<> {
        let (services, notifier, notes) = (self.services.clone(), self.notifier.clone(), self.notes.clone());
        async move {
            if !by.principal.is_operator() {
                return Err(operators_only("admit, list or remove people"));
            }
            carry_out(&services, request, &by, &notifier, &notes).await
        }
    }

    /// Begins to read whom other nodes admit and remove, if this is a node of a cluster.
    pub(super) fn watch_people(&mut self) {
        if self.services.pairing.is_none() {
            return;
        }
        self.watch("people", Topic::People, |services, notes| async move {
            let Some(pairing) = &services.pairing else { return Ok(()) };
            for Stranger { channel, id, .. } in pairing.reload().await? {
                // Fails only when the dispatcher ends.
                let _ = notes.send(LaneNote::Removed { channel, id }).await;
            }
            Ok(())
        });
    }

    /// Whether a person has no access through a channel that knows its persons.
    pub(super) fn is_revoked(&self, channel: &ChannelId, principal: &str, conversation: Option<&str>) -> bool {
        let access = self.services.channels.get(channel).and_then(|channel| channel.admission());
        access.is_some_and(|access| {
            let decision = || access.standing_of(principal, conversation);
            access.tells_persons_apart() && !matches!(decision(), AccessDecision::May(_))
        })
    }

    /// Stops the runs of an earlier start whose person has no access any more: the daemon may have ended before the
    /// removal had stopped them.
    pub(super) fn stop_revoked(&mut self) {
        let runs = self.lanes.values().flat_map(|lane| &lane.runs).filter(|run| run.origin.source.is_none());
        let revoked = |run: &&std::sync::Arc<belay_run::live::LiveRun>| {
            self.is_revoked(&run.origin.channel, &run.origin.principal, None)
        };
        let runs: Vec<_> = runs.filter(revoked).cloned().collect();
        self.stop(&runs, |_| StopCause::of(StopReason::OperatorStop));
    }

    /// Stops everything of a person whose admission was revoked: running, waiting and paused runs. Does nothing if the
    /// settings admit the person as well.
    pub(super) fn stop_removed(&mut self, channel: ChannelId, id: String) {
        let access = self.services.channels.get(&channel).and_then(|channel| channel.admission());
        if access.is_some_and(|access| matches!(access.standing_of(&id, None), AccessDecision::May(_))) {
            return;
        }
        let scope = FreezeScope::Person { channel: Some(channel), id };
        let runs = self.lanes.values().flat_map(|lane| &lane.runs);
        let runs: Vec<_> = runs.filter(|run| run.origin.is_covered_by(&scope)).cloned().collect();
        self.stop(&runs, |_| StopCause::of(StopReason::OperatorStop));
    }
}

async fn carry_out(
    services: &AgentServices,
    request: PeopleRequest,
    by: &Inbound,
    notifier: &Notifier,
    notes: &mpsc::Sender<LaneNote>,
) -> Result<String, Refusal> {
    let nobody = || Refusal::Unknown("No channel here admits people by pairing.".to_owned());
    let pairing = || services.pairing.as_ref().ok_or_else(nobody);
    match request {
        PeopleRequest::List => Ok(String::new()),
        PeopleRequest::Pair { code } => {
            let Admission { person, greeting } = pairing()?.admit(&code, &by.principal, &by.channel).await?;
            let (channel, conversation) = (person.channel.clone(), person.conversation.as_str().into());
            let greeting = greeting.map_or_else(|| ADMITTED.to_owned(), |greeting| format!("{ADMITTED}\n\n{greeting}"));
            notifier.say(Some(ReplyRoute { channel, conversation, reply_to: None }), greeting);
            let name = shown_name(&person.name);
            Ok(format!("`{}:{}` ({name}) may write in the private chat from now on.", person.channel, person.id))
        }
        PeopleRequest::Remove { channel, id } => {
            pairing()?.remove(&channel, &id, &by.principal).await?;
            let said = format!("The admission of `{channel}:{id}` is revoked.");
            // Fails only when the agent has ended.
            let _ = notes.send(LaneNote::Removed { channel, id }).await;
            Ok(said)
        }
    }
}

/// The name that a platform shows, on one line and without the characters that would end the code around it.
fn shown_name(name: &str) -> String {
    let line = plain_line(&name.replace('`', ""), NAME_MAX_CHARS);
    if line.is_empty() { "no name".to_owned() } else { format!("`{line}`") }
}
