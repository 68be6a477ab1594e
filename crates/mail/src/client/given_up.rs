//! Tells people about mails that were given up because too many of their messages wait.

use std::collections::HashSet;
use std::time::Duration;

use belay_protocol::{Ack, Outbound, Refusal, ReplyRoute};
use tokio::time::timeout;
use tracing::info;

use super::deliver::deliver;
use super::mailbox::Mailbox;
use crate::NAME;
use crate::people::Conversation;

/// The line for the sender of a mail that was given up.
const GIVEN_UP: &str = "This mail was not read: too many of your messages wait. Please send it again later.";

/// Longest time for all notices of a page. No mail is read meanwhile.
const LIMIT: Duration = Duration::from_secs(60);

/// Tells each sender whose mails of a page were given up, once. Best effort: the notices are in no store.
pub(crate) async fn tell(mailbox: &Mailbox, acks: &[Ack], routes: Vec<Option<ReplyRoute>>) {
    let notices = async {
        for route in first_of_each(acks, routes) {
            let line = mailbox.parts.texts.checked(&NAME.into(), GIVEN_UP.to_owned()).await;
            if let Err(error) = deliver(mailbox, &Outbound::new(None, route, line).checked()).await {
                info!(detail = %error, "the sender of a mail that was given up was not told");
            }
        }
    };
    if timeout(LIMIT, notices).await.is_err() {
        info!("not each sender of a mail that was given up was told: the server takes too long");
    }
}

/// The route of the first mail of each sender that was given up.
fn first_of_each(acks: &[Ack], routes: Vec<Option<ReplyRoute>>) -> Vec<ReplyRoute> {
    let busy = acks.iter().zip(routes).filter(|(ack, _)| matches!(ack, Ack::Refused(Refusal::Busy { .. })));
    let routes = busy.filter_map(|(_, route)| route);
    let mut told = HashSet::new();
    let is_first = |route: &ReplyRoute| {
        Conversation::parse(&route.conversation).is_some_and(|to| told.insert(to.address.to_owned()))
    };
    routes.filter(is_first).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_gets_one_notice_for_a_page() {
        let busy = || Ack::Refused(Refusal::Busy { what: "session".to_owned(), retry_after: Duration::ZERO });
        let route = |conversation: &str| {
            Some(ReplyRoute { channel: NAME.into(), conversation: conversation.into(), reply_to: None })
        };
        let acks = [busy(), busy(), Ack::Refused(Refusal::ConflictWithCommand), busy()];
        let routes = ["ann@example.org", "ann@example.org", "tom@example.org", "eve@example.org"].map(route).to_vec();
        let told = first_of_each(&acks, routes);
        let told: Vec<&str> = told.iter().map(|route| &*route.conversation).collect();
        assert_eq!(told, ["ann@example.org", "eve@example.org"]);
    }
}
