//! Requests about tools, by programs and by commands. Each is a background task, because a change is stored.

use belay_protocol::{Ack, AckSender, Inbound, Sent, ToolRequest, Topic};

use super::Dispatcher;
use belay_run::tool_health::{self, ToolsCommand};

impl Dispatcher {
    /// Begins to read which tools other nodes disable and enable, if this is a node of a cluster.
    pub(super) fn watch_tools(&mut self) {
        self.watch("tool_health", Topic::Tools, |services, _notes| async move { services.run.health.reload().await });
    }

    pub(super) fn tools_request(&mut self, request: ToolRequest, inbound: Inbound, ack: AckSender) {
        let services = self.services.clone();
        self.background(async move {
            ack.send(match tool_health::request(&services.run.health, request, &inbound).await {
                Ok(tools) => Ack::Tools(tools),
                Err(refusal) => Ack::Refused(refusal),
            });
        });
    }

    pub(super) fn tools_command(
        &mut self,
        command: ToolsCommand,
        word: String,
        sent: Option<Sent>,
        inbound: Inbound,
        ack: AckSender,
    ) {
        let (services, by) = (self.services.clone(), inbound.clone());
        let answer = self.answer_of(word, sent, inbound, ack);
        self.background(async move {
            let reasoning = services.run.reasoning.load_full();
            let tools = reasoning.tools();
            answer.carry_out(true, tool_health::command(&services.run.health, tools, command, &by)).await;
        });
    }
}
