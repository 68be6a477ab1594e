//! The people of message platforms. A start builds them from the settings, and a reload replaces them.

use belay_channels::AllowLists;
use belay_mail::MailPeople;
use belay_matrix::MatrixPeople;
use belay_program::causes::words;
use belay_program::exit::{Exit, Failure};
use belay_protocol::{MoveStore, StoreError};
use belay_settings::ChannelsConfig;

/// The people who may talk to Belay, by platform. They are known while a channel is off too.
#[derive(Clone)]
pub(crate) struct PlatformPeople {
    pub(crate) telegram: AllowLists,
    pub(crate) matrix: MatrixPeople,
    pub(crate) mail: MailPeople,
}

impl PlatformPeople {
    /// The people of these settings, and the stored moves of their groups.
    pub(crate) async fn load(channels: &ChannelsConfig, moves: &dyn MoveStore) -> Result<Self, Failure> {
        let people = Self {
            telegram: AllowLists::of(&channels.telegram),
            matrix: MatrixPeople::of(&channels.matrix),
            mail: MailPeople::of(&channels.mail),
        };
        let out_of_reach = |error: StoreError| Failure::new(Exit::OutOfReach, words(&error));
        people.telegram.load_moves(moves).await.map_err(out_of_reach)?;
        people.matrix.load_moves(moves).await.map_err(out_of_reach)?;
        Ok(people)
    }

    /// Replaces what comes from the settings.
    pub(crate) fn replace(&self, channels: &ChannelsConfig) {
        self.telegram.replace(&channels.telegram);
        self.matrix.replace(&channels.matrix);
        self.mail.replace(&channels.mail);
    }
}
