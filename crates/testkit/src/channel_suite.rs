//! The suite that every channel with a platform passes. Each function is a test over a platform of its own, and drives
//! the channel by its port, as the agent does.

mod deliveries;
mod intake;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use belay_protocol::{Channel, ReplyRoute};

pub use self::deliveries::*;
pub use self::intake::*;

/// A platform, real or a stand-in, with one person whom the channel admits.
#[async_trait]
pub trait Platform: Send + Sync {
    /// The channel as a start of the daemon makes it. Each call is another start on the same platform and store.
    fn channel(&self) -> Arc<dyn Channel>;
    /// The person writes.
    async fn says(&self, text: &str);
    /// The conversation with the person.
    fn route(&self) -> ReplyRoute;
    /// The texts that the platform shows in it of the bot, oldest first, without marks.
    async fn saw(&self) -> Vec<String>;
    /// The platform shows so many messages, and the answer to the one after them is lost.
    async fn lose_answer_after(&self, shown: usize);
    /// The platform refuses the next message for now, and says for how long if it can.
    async fn limit_next(&self, after: Option<Duration>);
    /// The length of a text in the unit of the platform.
    fn length(&self, text: &str) -> usize;
    /// The longest message.
    fn longest(&self) -> usize;
}
