//! The texts of `/help`. Every channel gets the same one.

use belay_protocol::Skills;

use crate::submission::{GROUPS, HelpPart};

/// The commands that people use most, with what they do.
const MOST_USED: [(&str, &str); 8] = [
    ("/status", "what runs and what waits"),
    ("/stop", "end the turn, clear the queue"),
    ("/new", "begin a new conversation"),
    ("/undo", "take the last turn back"),
    ("/retry", "send the last message again"),
    ("/model", "show or choose the model"),
    ("/job TASK", "work in the background"),
    ("/memory", "list your notes"),
];

/// The text about this part of the commands.
pub(super) fn text(part: HelpPart, skills: &Skills) -> String {
    match part {
        HelpPart::MostUsed => most_used(),
        HelpPart::All => all(skills),
    }
}

/// The most used commands in two columns. They are a block of code, since a channel keeps the spaces of nothing else.
fn most_used() -> String {
    let widest = MOST_USED.iter().map(|(usage, _)| usage.len()).max().unwrap_or(0);
    let lines = MOST_USED.iter().map(|(usage, what)| format!("{usage:<widest$}  {what}\n"));
    format!("```\n{}```\n`/help all` lists all commands.", lines.collect::<String>())
}

/// All commands, a line for each group, then the skills that people may call.
fn all(skills: &Skills) -> String {
    let commands = GROUPS.iter().map(|(group, commands)| {
        let all: Vec<String> = commands.iter().map(|(usage, what)| format!("`{usage}` {what}")).collect();
        format!("**{group}**: {}", all.join(" · "))
    });
    let commands = commands.collect::<Vec<_>>().join("\n");
    let asked_for = skills.list.iter().filter(|skill| skill.user_invocable);
    let skills = asked_for.map(|skill| format!("- `/{}`: {}", skill.command(), skill.description));
    let skills: Vec<String> = skills.collect();
    if skills.is_empty() { commands } else { format!("{commands}\n\n{}", skills.join("\n")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_has_the_eight_most_used_commands_in_columns() {
        let usages: Vec<&str> =
            GROUPS.iter().flat_map(|(_, commands)| commands.iter().map(|(usage, _)| *usage)).collect();
        assert!(MOST_USED.iter().all(|(usage, _)| usages.contains(usage)), "{MOST_USED:?}");
        assert_eq!(
            text(HelpPart::MostUsed, &Skills::default()),
            "```\n\
             /status    what runs and what waits\n\
             /stop      end the turn, clear the queue\n\
             /new       begin a new conversation\n\
             /undo      take the last turn back\n\
             /retry     send the last message again\n\
             /model     show or choose the model\n\
             /job TASK  work in the background\n\
             /memory    list your notes\n\
             ```\n\
             `/help all` lists all commands."
        );
        let all = text(HelpPart::All, &Skills::default());
        assert!(usages.iter().all(|usage| all.contains(&format!("`{usage}`"))), "{all}");
    }
}
