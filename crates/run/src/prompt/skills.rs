//! The list of skills in a prompt: names, paths and descriptions, within a budget. Names always stay; descriptions are
//! shortened, if necessary to nothing.

use belay_protocol::{Skill, SkillLocation, Skills, ToolSet};

const HEAD: &str = "Skills are instructions for kinds of tasks, stored in files. When a task matches a skill, read its \
instructions first and follow them. Read one skill at a time, and none that does not match.";

/// The list of the skills that these tools can read; `None`: the list is empty.
pub(super) fn part(skills: &Skills, tools: &ToolSet) -> Option<String> {
    let readable = |skill: &&Skill| tools.get(reader(skill)).is_some();
    let listed: Vec<&Skill> = skills.list.iter().filter(|skill| skill.listed).filter(readable).collect();
    if listed.is_empty() {
        return None;
    }
    let names: Vec<String> = listed.iter().map(|skill| name(skill)).collect();
    let fixed = chars(HEAD) + names.iter().map(|name| chars(name) + 1).sum::<usize>();
    let room = skills.max_prompt_chars.saturating_sub(fixed);
    let longest = longest_that_fits(&listed, room);
    let mut text = HEAD.to_owned();
    for (skill, name) in listed.iter().zip(names) {
        text.push('\n');
        text.push_str(&name);
        if let Some(description) = shortened(&skill.description, longest) {
            text.push_str(": ");
            text.push_str(&description);
        }
    }
    Some(text)
}

/// The tool that reads the instructions of a skill.
fn reader(skill: &Skill) -> &'static str {
    match skill.place {
        SkillLocation::Workspace(_) => "read_file",
        SkillLocation::Elsewhere => "read_skill",
    }
}

fn name(skill: &Skill) -> String {
    match &skill.place {
        SkillLocation::Workspace(path) => format!("- {} ({path})", skill.name),
        SkillLocation::Elsewhere => format!("- {} (read_skill)", skill.name),
    }
}

/// The maximum length of each description with which all of them fit.
fn longest_that_fits(listed: &[&Skill], room: usize) -> usize {
    let lengths: Vec<usize> = listed.iter().map(|skill| chars(&skill.description)).collect();
    let taken = |longest: usize| -> usize {
        // An empty description takes no space; each other one is preceded by ": ".
        lengths.iter().map(|length| (*length).min(longest)).filter(|length| *length > 0).map(|length| length + 2).sum()
    };
    let (mut low, mut high) = (0, lengths.iter().copied().max().unwrap_or(0));
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if taken(middle) <= room { low = middle } else { high = middle - 1 }
    }
    low
}

/// A description of at most `longest` characters; `None`: nothing useful would be left.
fn shortened(description: &str, longest: usize) -> Option<String> {
    if chars(description) <= longest {
        return Some(description.to_owned());
    }
    let kept = longest.checked_sub(1).filter(|kept| *kept > 0)?;
    let text: String = description.chars().take(kept).collect();
    Some(format!("{}…", text.trim_end()))
}

fn chars(text: &str) -> usize {
    text.chars().count()
}
