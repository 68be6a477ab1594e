//! A build without the feature `matrix` has no Matrix channel: settings that name a homeserver are refused.

use std::sync::Arc;

use belay_protocol::{Channel, ChannelError};

use crate::NAME;
use crate::config::{MatrixConfig, MatrixSecrets};
pub use crate::parts::MatrixParts;

/// Why there is no channel.
const ABSENT: &str = "this build of Belay has no Matrix channel (feature matrix)";

/// Opens no channel.
///
/// # Errors
/// Always.
pub fn open(
    _config: &MatrixConfig,
    _secrets: MatrixSecrets,
    _http: reqwest::Client,
    _parts: MatrixParts,
) -> Result<Arc<dyn Channel>, ChannelError> {
    Err(ChannelError { channel: NAME.into(), detail: ABSENT.to_owned() })
}

/// Asks nobody.
///
/// # Errors
/// Always.
pub async fn who_am_i(_: &MatrixConfig, _: MatrixSecrets, _: reqwest::Client) -> Result<String, (bool, String)> {
    Err((true, ABSENT.to_owned()))
}
