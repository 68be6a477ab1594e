//! Replies on their way.

use std::collections::HashSet;

use belay_protocol::{Outbound, OutboxId, OutboxRow, OutboxState, ReplyRoute, StoreError, UnixMillis};

use super::state::{Delivery, Stage, State};

impl State {
    pub(super) fn check_outbound(&self, message: &Outbound) -> Result<(), StoreError> {
        if self.outbox.iter().any(|other| other.message.id == message.id) {
            return Err(StoreError::Unavailable(format!("message {} is in the outbox already", message.id)));
        }
        Ok(())
    }

    pub(super) fn enqueue(&mut self, message: Outbound) -> Result<(), StoreError> {
        self.check_outbound(&message)?;
        self.outbox.push(Delivery { message, attempts: 0, stage: Stage::Waiting(None) });
        Ok(())
    }

    /// The heads of the conversations that may be sent now. A head that is being sent, or not due, keeps what is
    /// behind it waiting.
    pub(super) fn due(&self, now: UnixMillis, busy: &[ReplyRoute], limit: u32) -> Vec<OutboxRow> {
        let mut seen: HashSet<_> = busy.iter().map(conversation).collect();
        let undelivered = self.outbox.iter().filter(|delivery| delivery.stage != Stage::Over);
        let heads = undelivered.filter(|delivery| seen.insert(conversation(&delivery.message.route)));
        let due = heads.filter(|head| match head.stage {
            Stage::Waiting(until) => until.is_none_or(|until| until <= now),
            Stage::Sending | Stage::Over => false,
        });
        due.take(limit as usize).map(Delivery::row).collect()
    }

    pub(super) fn next_due(&self) -> Option<UnixMillis> {
        let dates = self.outbox.iter().filter_map(|delivery| match delivery.stage {
            Stage::Waiting(until) => until,
            Stage::Sending | Stage::Over => None,
        });
        dates.min()
    }

    pub(super) fn mark(&mut self, id: OutboxId, state: OutboxState) -> Result<(), StoreError> {
        let open = self.outbox.iter_mut().find(|delivery| delivery.message.id == id && delivery.stage != Stage::Over);
        let delivery = open.ok_or_else(|| StoreError::NotFound(format!("undelivered message {id}")))?;
        delivery.stage = match state {
            OutboxState::Sending => {
                delivery.attempts += 1;
                Stage::Sending
            }
            OutboxState::Waiting { until, pieces_sent } => {
                delivery.message.pieces_sent = pieces_sent;
                Stage::Waiting(Some(until))
            }
            OutboxState::Sent | OutboxState::Ambiguous | OutboxState::Failed => Stage::Over,
        };
        Ok(())
    }

    pub(super) fn settle_interrupted(&mut self) -> Vec<OutboxRow> {
        let interrupted = self.outbox.iter_mut().filter(|delivery| delivery.stage == Stage::Sending);
        interrupted
            .map(|delivery| {
                delivery.stage = Stage::Over;
                delivery.row()
            })
            .collect()
    }
}

impl Delivery {
    fn row(&self) -> OutboxRow {
        OutboxRow { message: self.message.clone(), attempts: self.attempts }
    }
}

fn conversation(route: &ReplyRoute) -> (&str, &str) {
    (route.channel.as_str(), &route.conversation)
}
