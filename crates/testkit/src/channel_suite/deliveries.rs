//! Messages that go out.

use std::time::Duration;

use belay_protocol::{DeliverError, LookUp, Outbound, Repeat, UnixMillis};

use super::Platform;

fn reply(platform: &dyn Platform, text: &str) -> Outbound {
    Outbound::new(None, platform.route(), text).checked()
}

/// # Panics
/// The channel does not pass.
pub async fn a_lost_answer_shows_nothing_twice(platform: &dyn Platform) {
    let channel = platform.channel();
    let message = reply(platform, "the answer");
    platform.lose_answer_after(0).await;
    let lost = channel.deliver(&message).await;
    assert!(matches!(lost, Err(DeliverError::Ambiguous { pieces_sent: 0, .. })), "{lost:?}");
    if matches!(channel.profile().repeat, Repeat::Harmless { .. }) {
        // Also by the next start: the key is of the message.
        platform.channel().deliver(&message).await.expect("delivered");
    }
    if let Some(sent) = platform.channel().sent() {
        let found = sent.look_up(&message, UnixMillis(0)).await;
        assert_eq!(found, LookUp::Sent { pieces: 1 });
    }
    assert_eq!(platform.saw().await, ["the answer"]);
}

/// # Panics
/// The channel does not pass.
pub async fn a_rate_limit_shows_nothing_and_says_when_to_try_again(platform: &dyn Platform) {
    let (channel, message) = (platform.channel(), reply(platform, "the answer"));
    platform.limit_next(Some(Duration::from_secs(7))).await;
    let limited = channel.deliver(&message).await;
    let Err(DeliverError::Retry { after: Some(after), pieces_sent: 0, .. }) = limited else { panic!("{limited:?}") };
    assert!((Duration::from_secs(7)..Duration::from_secs(9)).contains(&after), "{after:?}");
    platform.limit_next(None).await;
    let limited = channel.deliver(&message).await;
    assert!(matches!(limited, Err(DeliverError::Retry { pieces_sent: 0, .. })), "{limited:?}");
    assert_eq!(platform.saw().await, [""; 0]);
    channel.deliver(&message).await.expect("delivered");
    assert_eq!(platform.saw().await, ["the answer"]);
}

/// # Panics
/// The channel does not pass.
pub async fn a_long_text_is_split_in_the_unit_of_the_platform_and_goes_on_where_it_was_interrupted(
    platform: &dyn Platform,
) {
    let channel = platform.channel();
    let words: Vec<String> = (0..platform.longest()).map(|number| format!("🗝ß{number}")).collect();
    let message = reply(platform, &words.join(" "));
    platform.lose_answer_after(1).await;
    let lost = channel.deliver(&message).await;
    assert!(matches!(lost, Err(DeliverError::Ambiguous { pieces_sent: 1, .. })), "{lost:?}");
    // As the delivery goes on where the platform is known to have both.
    let rest = Outbound { pieces_sent: 2, ..message.clone() };
    platform.channel().deliver(&rest).await.expect("delivered");
    let saw = platform.saw().await;
    assert!(
        saw.len() > 2 && saw.iter().all(|piece| platform.length(piece) <= platform.longest()),
        "{} pieces",
        saw.len()
    );
    assert_eq!(saw.join(" ").split_whitespace().collect::<Vec<_>>(), words, "nothing is lost or doubled");
    let nothing = Outbound { pieces_sent: saw.len() as u32, ..message };
    channel.deliver(&nothing).await.expect("nothing is left to send");
    assert_eq!(platform.saw().await.len(), saw.len());
}
