//! The menu of commands that Telegram shows: registered at the start where it differs, beside the messages.

use std::time::Duration;

use belay_protocol::CommandInfo;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::sleep;
use tracing::{debug, info};

use super::api::{ApiError, BotApi};
use super::people::AllowLists;
use super::setup::Pauses;

/// Deadline of each call.
const DEADLINE: Duration = Duration::from_secs(10);

/// Most commands of one menu. Bot API, setMyCommands: "At most 100 commands can be specified."
const COMMANDS_MAX: usize = 100;

/// Most operators who get a menu of their own. Each costs two calls at the start.
const OPERATORS_MAX: usize = 20;

/// Bot API: BotCommand.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct BotCommand {
    command: String,
    description: String,
}

/// The commands for one kind of chat.
#[derive(Debug)]
struct Menu {
    /// Bot API: BotCommandScope.
    scope: Value,
    commands: Vec<BotCommand>,
}

/// Registers the menus, each until it succeeds or Telegram refuses it.
pub(super) async fn register(api: &BotApi, people: &AllowLists, commands: &[CommandInfo]) {
    for menu in menus(commands, &people.operators()) {
        let mut pauses = Pauses::new();
        loop {
            match update(api, &menu).await {
                Ok(true) => info!(scope = %menu.scope, "telegram has the commands"),
                Ok(false) => debug!(scope = %menu.scope, "telegram knows the commands"),
                // An operator who has never written to the bot has no chat yet.
                Err(error @ ApiError::Refused { .. }) if !error.is_auth() => {
                    debug!(scope = %menu.scope, detail = %error, "telegram takes no commands here");
                }
                Err(error) => {
                    debug!(detail = %error, "telegram does not take the commands now");
                    sleep(pauses.after(&error)).await;
                    continue;
                }
            }
            break;
        }
    }
}

/// Sets the menu unless Telegram has it. Returns whether it was set.
async fn update(api: &BotApi, menu: &Menu) -> Result<bool, ApiError> {
    let scope = json!({ "scope": menu.scope });
    let known: Vec<BotCommand> = api.call("getMyCommands", &scope, DEADLINE).await?;
    if known == menu.commands {
        return Ok(false);
    }
    let wanted = json!({ "scope": menu.scope, "commands": menu.commands });
    api.call::<_, bool>("setMyCommands", &wanted, DEADLINE).await.map(|_| true)
}

/// The menus: for private chats, for groups, and for the private chat of each operator.
fn menus(commands: &[CommandInfo], operators: &[u64]) -> Vec<Menu> {
    let menu = |scope: Value, belongs: &dyn Fn(&CommandInfo) -> bool| Menu {
        scope,
        commands: commands.iter().filter(|it| belongs(it)).take(COMMANDS_MAX).map(listed).collect(),
    };
    let private = menu(json!({ "type": "all_private_chats" }), &|it| !it.operators_only);
    let groups = menu(json!({ "type": "all_group_chats" }), &|it| it.in_groups);
    let operators = operators.iter().take(OPERATORS_MAX);
    // A private chat has the id of its person (Bot API, Chat, `id`).
    let operators = operators.map(|id| menu(json!({ "type": "chat", "chat_id": id }), &|_| true));
    [private, groups].into_iter().chain(operators).collect()
}

fn listed(command: &CommandInfo) -> BotCommand {
    BotCommand { command: command.name.to_owned(), description: command.description.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_chat_has_the_commands_that_make_sense_there() {
        let command =
            |name, operators_only, in_groups| CommandInfo { name, description: "does it", operators_only, in_groups };
        let all = [command("stop", false, true), command("memory", false, false), command("freeze", true, false)];
        let shown: Vec<_> = menus(&all, &[7])
            .into_iter()
            .map(|menu| {
                let names: Vec<_> = menu.commands.into_iter().map(|it| it.command).collect();
                format!("{} {}: {}", menu.scope["type"], menu.scope["chat_id"], names.join(" "))
            })
            .collect();
        let expected = [
            "\"all_private_chats\" null: stop memory",
            "\"all_group_chats\" null: stop",
            "\"chat\" 7: stop memory freeze",
        ];
        assert_eq!(shown, expected);
    }
}
