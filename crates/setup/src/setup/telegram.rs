//! The questions about Telegram: the bot's token, which `getMe` checks, and the person, who sends a code to the bot.

use std::time::Duration;

use belay_channels::{FirstContact, FirstContactError, TelegramConfig, TelegramMode};
use belay_program::causes::words;
use belay_program::exit::{Exit, Failure};
use belay_program::net::{is_plain_loopback, plain_client};
use secrecy::SecretString;
use uuid::Uuid;

use super::document::{Change, Setting};
use super::model::missing;
use super::person::{Person, Terminal};

/// How long the bot waits for the code.
const CODE_LIMIT: Duration = Duration::from_secs(10 * 60);

/// Longest time to connect.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// The answers that flags have given.
#[derive(Default)]
pub(super) struct Given {
    /// The content of `--telegram-token-file`
    pub(super) token: Option<SecretString>,
    /// `--telegram-user`
    pub(super) users: Vec<u64>,
    /// `--telegram-api`
    pub(super) api: Option<String>,
}

/// The answers about Telegram.
pub(super) struct Answer {
    /// A new token.
    pub(super) token: Option<SecretString>,
    /// The bot's user name, if its token was checked.
    pub(super) bot: Option<String>,
    /// The ids of all operators.
    pub(super) operators: Vec<u64>,
    api: Option<String>,
    mode: Option<&'static str>,
}

impl Answer {
    /// The changes of the settings. The token is written by its owner.
    pub(super) fn changes(&self) -> Vec<Change> {
        let mut changes = vec![Change { key: "channels.telegram.enabled", value: Some(Setting::Flag(true)) }];
        changes.extend(self.mode.map(|mode| Change::text("channels.telegram.mode", mode)));
        changes.extend(self.api.as_deref().map(|api| Change::text("channels.telegram.api_base", api)));
        changes.push(Change { key: "channels.telegram.operators", value: Some(Setting::Ids(self.operators.clone())) });
        changes
    }
}

/// Asks for the bot and its operator. `None`: the person wants no bot.
///
/// # Errors
/// Without a person, the first answer that is missing or wrong.
pub(super) async fn telegram(
    now: &TelegramConfig,
    is_mode_set: bool,
    given: Given,
    asked: bool,
    person: &mut Person,
) -> Result<Option<Answer>, Failure> {
    let Given { mut token, users, api } = given;
    let base = api.clone().unwrap_or_else(|| now.api_base.clone());
    if asked && token.is_none() && users.is_empty() {
        let Person::Present(terminal) = &mut *person else { return Ok(None) };
        let question = if now.enabled { "Connect another Telegram bot?" } else { "Connect a Telegram bot?" };
        if !terminal.yes(question, false).await? {
            return Ok(None);
        }
    }
    let is_new = !now.enabled || asked || token.is_some();
    let contact = loop {
        let Some(candidate) = token.take() else {
            match person {
                Person::Present(terminal) if is_new => {
                    token = terminal.secret("Token of the bot, from @BotFather (not shown)").await?;
                    continue;
                }
                _ if now.enabled => break None,
                _ => return Err(missing("--telegram-token-file FILE")),
            }
        };
        match (open(&base, candidate.clone()).await, &mut *person) {
            (Ok(contact), _) => break Some((contact, candidate)),
            (Err(failure), Person::Present(terminal)) => terminal.say(&failure.to_string()),
            (Err(failure), Person::Absent) => return Err(failure),
        }
    };
    let mut operators = now.operators.clone();
    operators.extend(users.iter().filter(|id| !now.operators.contains(id)));
    if users.is_empty()
        && let Some((contact, _)) = &contact
    {
        match person {
            Person::Present(terminal) => {
                let id = operator(contact, terminal).await?;
                operators.extend(Some(id).filter(|id| !now.operators.contains(id)));
            }
            Person::Absent if operators.is_empty() && now.allow.is_empty() => {
                return Err(missing("--telegram-user ID"));
            }
            Person::Absent => {}
        }
    }
    let bot = contact.as_ref().map(|(contact, _)| contact.username().to_owned());
    let mode = (!now.enabled && !is_mode_set && now.mode != TelegramMode::Polling).then_some("polling");
    Ok(Some(Answer { token: contact.map(|(_, token)| token), bot, operators, api, mode }))
}

/// Checks a token.
async fn open(base: &str, token: SecretString) -> Result<FirstContact, Failure> {
    let builder = if is_plain_loopback(base) { plain_client().no_proxy() } else { reqwest::Client::builder() };
    let http = builder.connect_timeout(CONNECT_LIMIT).build();
    let http = http.map_err(|error| Failure::new(Exit::Internal, words(&error)))?;
    FirstContact::open(http, base, token).await.map_err(|error| failure(&error))
}

fn failure(error: &FirstContactError) -> Failure {
    let (exit, next) = match error {
        FirstContactError::NoToken(_) => (Exit::UnusableInput, "copy the whole token of the bot from @BotFather"),
        FirstContactError::TokenRefused(_) => {
            (Exit::Refused, "ask @BotFather for the present token of the bot, and check --telegram-api")
        }
        FirstContactError::Unreachable(_) => (Exit::OutOfReach, "check the network and --telegram-api, and try again"),
        FirstContactError::Taken(_) => {
            (Exit::OutOfReach, "stop that program, or give your numeric id with --telegram-user")
        }
        FirstContactError::Crowded | FirstContactError::TimedOut(_) => {
            (Exit::OutOfReach, "give your numeric id with --telegram-user")
        }
    };
    Failure::new(exit, format!("Telegram: {error}")).next(format!("{next}; nothing was changed"))
}

/// Finds the id of the person: who sends the code, or the id that is typed instead.
async fn operator(contact: &FirstContact, terminal: &mut Terminal) -> Result<u64, Failure> {
    let (bot, code) = (contact.username(), code());
    terminal.say(&format!("Now send {code} to @{bot}, or open https://t.me/{bot}?start={code}"));
    terminal.say("The person who sends it becomes an operator of this Belay. You may type your numeric id instead.");
    loop {
        let typed = tokio::select! {
            sender = contact.sender_of(&code, CODE_LIMIT) => match sender {
                Ok(sender) => {
                    if terminal.yes(&format!("{} (id {}) sent the code. Is this you?", sender.name, sender.id), true).await? {
                        return Ok(sender.id);
                    }
                    return Err(Failure::new(Exit::Refused, "another person sent the code; nothing was changed"));
                }
                Err(error) => {
                    terminal.say(&failure(&error).to_string());
                    terminal.text("Your numeric id", None).await?
                }
            },
            typed = terminal.line() => typed?,
        };
        match typed.parse::<u64>() {
            Ok(id) if id > 0 => return Ok(id),
            _ if typed.is_empty() => {}
            _ => terminal.say("This is no numeric id. @userinfobot tells yours."),
        }
    }
}

/// A code of eight digits that nobody can guess in the time that it is valid.
fn code() -> String {
    // RFC 9562, 5.7: the last 62 bits of a version 7 UUID are random.
    let random = u64::from_be_bytes(Uuid::now_v7().as_bytes()[8..].try_into().unwrap_or_default()) & ((1 << 62) - 1);
    format!("{:08}", random % 100_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_has_eight_digits_and_is_new_each_time() {
        let codes: Vec<String> = (0..4).map(|_| code()).collect();
        assert!(
            codes.iter().all(|code| code.len() == 8 && code.bytes().all(|byte| byte.is_ascii_digit())),
            "{codes:?}"
        );
        assert!(codes.windows(2).all(|pair| pair[0] != pair[1]), "{codes:?}");
    }
}
