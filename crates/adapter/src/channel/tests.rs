//! Tests of the adapter as a channel.

use belay_protocol::{AccessDecision, Cursor, StoreError};

use super::*;

/// A store that has no cursor.
struct NoCursors;

#[async_trait]
impl Cursors for NoCursors {
    async fn cursor(&self, _channel: &ChannelId, _name: &str) -> Result<Option<Arc<str>>, StoreError> {
        Ok(None)
    }

    async fn keep_cursor(&self, _channel: &ChannelId, _cursor: &Cursor) -> Result<(), StoreError> {
        Ok(())
    }
}

fn adapter() -> Adapter {
    let config = AdapterConfig { allow: vec!["ann".to_owned()], ..AdapterConfig::default() };
    let token = SecretString::from("0123456789abcdef".to_owned());
    Adapter::new("irc", &config, token, Arc::new(NoCursors)).expect("the token is long enough")
}

#[test]
fn somebody_who_is_on_no_list_any_more_loses_access() {
    let adapter = adapter();
    let admission = adapter.admission().expect("an adapter has lists");
    assert!(matches!(admission.standing_of("ann", None), AccessDecision::May(_)));
    assert!(matches!(admission.standing_of("eve", None), AccessDecision::NotAllowed(_)));
}
