//! Settings of `[channels.matrix]`.

use std::path::PathBuf;

use reqwest::Url;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};

/// Longest id of a user or a room, in bytes. Matrix: Appendices, "Common Identifier Format": 255. A room's id is
/// shorter here, because its session key has a prefix.
const ID_MAX_BYTES: usize = 249;

/// The variable of the access token.
pub const TOKEN_ENV: &str = "MATRIX_ACCESS_TOKEN";

/// Settings of `[channels.matrix]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MatrixConfig {
    /// The address of the homeserver's client-server API. Absent: the channel is off.
    pub homeserver: Option<String>,
    /// File with the access token. Absent: the variable [`TOKEN_ENV`].
    pub token_file: Option<PathBuf>,
    /// Ids of the users who may talk to Belay. Empty: only the operators may.
    pub allow: Vec<String>,
    /// Ids of users who may do everything. They may also talk to Belay.
    pub operators: Vec<String>,
    /// Ids of rooms with several people that Belay serves. In other rooms it talks to one person alone.
    pub rooms: Vec<String>,
}

/// The secret of the channel, which must not be in a settings file.
pub struct MatrixSecrets {
    /// The access token of Belay's account.
    pub token: SecretString,
}

impl MatrixConfig {
    /// Whether the channel is on.
    pub fn is_on(&self) -> bool {
        self.homeserver.is_some()
    }

    /// Whether nobody may talk to Belay.
    pub fn admits_nobody(&self) -> bool {
        self.allow.is_empty() && self.operators.is_empty()
    }

    /// Lists all problems, each starting with its key.
    pub fn validate(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut problem = |key: &str, what: String| problems.push(format!("channels.matrix.{key}: {what}"));
        if self.is_on() && !cfg!(feature = "client") {
            let absent = "this build of Belay has no Matrix channel (feature matrix); remove the setting, or use a build with it: \
                          `belay --version --long` lists the parts";
            problem("homeserver", absent.to_owned());
            return problems;
        }
        let is_address =
            |text: &str| Url::parse(text).is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        if self.homeserver.as_deref().is_some_and(|text| !is_address(text)) {
            problem("homeserver", "must begin with http:// or https:// and name a host".to_owned());
        }
        for (key, ids) in [("allow", &self.allow), ("operators", &self.operators)] {
            for id in ids.iter().filter(|id| !is_user(id)) {
                problem(key, format!("{id:?} is no user: the id of a user is @name:server"));
            }
        }
        for id in self.rooms.iter().filter(|id| !is_room(id)) {
            let how = "the id of a room begins with !; it is in the room's settings, and the log shows it";
            problem("rooms", format!("{id:?} is not the id of a room: {how}"));
        }
        problems
    }
}

/// Whether a text is the id of a user.
pub(crate) fn is_user(id: &str) -> bool {
    id.strip_prefix('@').and_then(|rest| rest.split_once(':')).is_some_and(|(_, server)| !server.is_empty())
        && is_clear(id)
}

/// Whether a text is the id of a room. Since version 12 of rooms it has no server part.
pub fn is_room(id: &str) -> bool {
    id.len() > 1 && id.starts_with('!') && is_clear(id)
}

fn is_clear(id: &str) -> bool {
    id.len() <= ID_MAX_BYTES && belay_text::is_clear(id) && !id.contains(|c: char| c.is_whitespace() || c.is_control())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_wrong_value_is_named_by_its_key() {
        for (written, key) in [
            ("", None),
            (
                "homeserver = \"https://matrix.example.org\"\nallow = [\"@ann:example.org\"]\nrooms = [\"!a:b\", \"!8IWA\"]",
                None,
            ),
            ("homeserver = \"matrix.example.org\"", Some("homeserver")),
            ("homeserver = \"ftp://example.org\"", Some("homeserver")),
            ("allow = [\"ann\"]", Some("allow")),
            ("operators = [\"@ann\"]", Some("operators")),
            ("operators = [\"@ann: b\"]", Some("operators")),
            ("rooms = [\"#club:example.org\"]", Some("rooms")),
        ] {
            let problems = toml::from_str::<MatrixConfig>(written).unwrap().validate();
            let keys =
                problems.iter().map(|line| line.split(':').next().unwrap().trim_start_matches("channels.matrix."));
            assert_eq!(keys.collect::<Vec<_>>(), key.into_iter().collect::<Vec<_>>(), "{written}");
        }
        assert!(toml::from_str::<MatrixConfig>("token = \"x\"").is_err(), "a secret is in no settings file");
    }
}
