//! Settings of `[channels.telegram.groups]`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Longest persona, in bytes.
const PERSONA_MAX_BYTES: usize = 20_000;

/// Settings of `[channels.telegram.groups]`: the groups that the bot serves, and the messages that it answers there.
/// `allow` and `operators` of [`TelegramConfig`](super::TelegramConfig) apply in groups too.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GroupsConfig {
    /// Ids of the groups, all negative. Empty: the bot serves no group.
    pub allow: Vec<i64>,
    /// Which messages of these groups are for the bot.
    pub answer: GroupAnswer,
    /// Number of the newest messages that were not for the bot, and that the model reads with the next message that is.
    /// 0: none. At most [`CONTEXT_MESSAGES_MAX`].
    pub context_messages: usize,
    /// Settings of single groups and topics, by `<group>` or `<group>:<topic>`.
    pub overrides: BTreeMap<String, GroupOverrides>,
}

/// Settings of a group or a topic. Absent: a topic has those of its group, and a group has those of all groups.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GroupOverrides {
    /// Which messages are for the bot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<GroupAnswer>,
    /// Like [`GroupsConfig::context_messages`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_messages: Option<usize>,
    /// The persona, in place of `agent.system_prompt`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persona: Option<String>,
    /// Names of the tools that runs get here; `*` fits any characters. Never more than the tools of the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
}

/// Most messages that were not for the bot, and that the model reads.
pub const CONTEXT_MESSAGES_MAX: usize = 50;

/// Which messages of a group are for the bot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GroupAnswer {
    /// Messages that mention the bot, reply to it, or are a command that names it.
    #[default]
    Mention,
    /// All messages that Telegram shows to the bot: every message if its privacy mode is off. Except a command that
    /// names another bot.
    All,
}

impl GroupsConfig {
    /// Reports all problems, each with its key within `channels.telegram`.
    pub(super) fn validate(&self, problem: &mut impl FnMut(&str, &str)) {
        let check_context = |count: usize| count <= CONTEXT_MESSAGES_MAX;
        let too_many = format!("at most {CONTEXT_MESSAGES_MAX}; 0: none");
        if !check_context(self.context_messages) {
            problem("groups.context_messages", &too_many);
        }
        for (name, own) in &self.overrides {
            let key = |field: &str| format!("groups.overrides.\"{name}\"{field}");
            match group_of(name) {
                None => problem(
                    &key(""),
                    "must be the id of a group, such as -1001234567890, or of a topic, such as \
                                           -1001234567890:7",
                ),
                Some(group) if !self.allow.contains(&group) => {
                    problem(
                        &key(""),
                        "the bot does not serve this group: add its id to channels.telegram.groups.allow",
                    );
                }
                Some(_) => {}
            }
            if !own.context_messages.is_none_or(check_context) {
                problem(&key(".context_messages"), &too_many);
            }
            if own.persona.as_ref().is_some_and(|text| text.trim().is_empty() || text.len() > PERSONA_MAX_BYTES) {
                problem(&key(".persona"), &format!("must have text, at most {PERSONA_MAX_BYTES} bytes"));
            }
            let is_name = |name: &String| {
                let fits = |c: char| c.is_ascii_alphanumeric() || "_-*".contains(c);
                !name.is_empty() && name.len() <= 128 && name.chars().all(fits)
            };
            if own.tools.as_ref().is_some_and(|tools| !tools.iter().all(is_name)) {
                problem(&key(".tools"), "must be names of tools: letters, digits, _ and -; * fits any characters");
            }
        }
    }
}

/// The group of a key `<group>` or `<group>:<topic>`.
fn group_of(key: &str) -> Option<i64> {
    let (group, topic) = key.split_once(':').map_or((key, None), |(group, topic)| (group, Some(topic)));
    let is_topic = |topic: &str| topic.parse::<i32>().is_ok_and(|id| id > 0 && id.to_string() == topic);
    let id: i64 = group.parse().ok()?;
    (id < 0 && id.to_string() == group && topic.is_none_or(is_topic)).then_some(id)
}
