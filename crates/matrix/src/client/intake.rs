//! The content of an event: its text, whom it addresses, its file, its answer to a question. Pure.

use belay_protocol::{CommandInfo, Decision, Unread};

use super::content::MARK;
use super::wire::Event;

/// Belay's own account.
#[derive(Clone, Debug, Default)]
pub(crate) struct Me {
    pub(crate) user: String,
    /// The display name; empty: it has none.
    pub(crate) name: String,
}

/// A file of a message, on the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RemoteFile {
    /// Its server and its id, from `mxc://SERVER/ID`.
    pub(crate) server: String,
    pub(crate) media: String,
    pub(crate) kind: &'static str,
    pub(crate) name: String,
}

impl RemoteFile {
    pub(crate) fn unread(&self, reason: String) -> Unread {
        Unread { kind: self.kind.into(), file_name: Some(self.name.clone()), reason: Some(reason), ..Unread::default() }
    }
}

/// Whether a message was written by a program. Matrix: `m.notice`, "bots should not respond to" it. Belay's own
/// messages have a mark beside that, so that two Belays in a room never answer each other.
pub(crate) fn is_a_programs(event: &Event) -> bool {
    event.text("msgtype") == "m.notice" || event.content.contains_key(MARK)
}

/// The event whose text this one replaces.
pub(crate) fn edited(event: &Event) -> Option<&str> {
    event.relation("event_id").filter(|_| event.relation("rel_type") == Some("m.replace"))
}

/// The text of a message, without the part that quotes another one for old clients, and without Belay's name at its
/// beginning. `!stop` is `/stop`: some clients keep texts with a slash for themselves.
pub(crate) fn text(event: &Event, me: &Me, commands: &[CommandInfo]) -> String {
    let new = event.content.get("m.new_content").filter(|_| edited(event).is_some());
    let body = new.map_or(event.text("body"), |new| new.get("body").and_then(|body| body.as_str()).unwrap_or_default());
    let name = event.text("filename");
    if file(event).is_some() && (name.is_empty() || name == body) {
        return String::new(); // the body is the name of the file
    }
    let body = if event.replied().is_some() { without_quote(body) } else { body };
    let body = belay_text::removed(body);
    let text = without_name(body.trim(), me);
    let word = text.strip_prefix('!').and_then(|rest| rest.split_whitespace().next());
    match word.filter(|word| commands.iter().any(|command| command.name.eq_ignore_ascii_case(word))) {
        Some(_) => text.replacen('!', "/", 1),
        None => text.to_owned(),
    }
}

/// Matrix: "Fallbacks for rich replies": lines that begin with `> `, and an empty one.
pub(crate) fn without_quote(body: &str) -> &str {
    let mut rest = body;
    while rest.starts_with("> ") {
        rest = rest.split_once('\n').map_or("", |(_, rest)| rest);
    }
    if rest.len() < body.len() { rest.trim_start_matches('\n') } else { body }
}

fn without_name<'t>(text: &'t str, me: &Me) -> &'t str {
    let names = [me.user.as_str(), me.name.as_str()].into_iter().filter(|name| !name.is_empty());
    let rest =
        names.filter_map(|name| text.strip_prefix('@').unwrap_or(text).strip_prefix(name).or(text.strip_prefix(name)));
    let rest = rest.filter(|rest| !rest.starts_with(|c: char| c.is_alphanumeric())).min_by_key(|rest| rest.len());
    rest.map_or(text, |rest| rest.trim_start_matches([':', ',', ' ']).trim_start())
}

/// Whether a message of a group is for Belay. Matrix: `m.mentions` decides where it is; older clients write the name.
pub(crate) fn addresses(event: &Event, me: &Me) -> bool {
    if let Some(mentions) = event.content.get("m.mentions") {
        let users = mentions.get("user_ids").and_then(|users| users.as_array());
        return users.is_some_and(|users| users.iter().any(|user| user.as_str() == Some(&me.user)));
    }
    let (body, html) = (event.text("body").to_lowercase(), event.text("formatted_body"));
    let names = [me.user.to_lowercase(), me.name.to_lowercase()];
    names.iter().any(|name| !name.is_empty() && has_word(&body, name))
        || html.contains(&format!("matrix.to/#/{}", me.user))
}

fn has_word(text: &str, word: &str) -> bool {
    let is_border = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric());
    text.match_indices(word).any(|(at, found)| {
        is_border(text[..at].chars().next_back()) && is_border(text[at + found.len()..].chars().next())
    })
}

/// Whether a text acts at once and waits for no earlier message of its room.
pub(crate) fn is_stop(text: &str) -> bool {
    let word = text.split_whitespace().next().unwrap_or_default().to_ascii_lowercase();
    matches!(word.as_str(), "/stop" | "/interrupt" | "/freeze")
}

/// Whether a text ends the daemon. One from before its start was meant for an earlier one.
pub(crate) fn ends_the_daemon(text: &str) -> bool {
    let word = text.split_whitespace().next().unwrap_or_default().to_ascii_lowercase();
    matches!(word.as_str(), "/quit" | "/exit" | "/shutdown")
}

/// The answer that a reaction is.
pub(crate) fn decision(key: &str) -> Option<Decision> {
    match key.trim_end_matches('\u{fe0f}') {
        "✅" | "✔" | "👍" => Some(Decision::Approve),
        "♾" => Some(Decision::Always),
        "❌" | "✖" | "👎" => Some(Decision::Deny),
        _ => None,
    }
}

/// The file of a message.
pub(crate) fn file(event: &Event) -> Option<RemoteFile> {
    let kind = match event.text("msgtype") {
        "m.image" => "photo",
        "m.audio" => "recording",
        "m.video" => "video",
        "m.file" => "file",
        _ => return None,
    };
    let (server, media) = event.text("url").strip_prefix("mxc://")?.split_once('/')?;
    let is_plain =
        |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || "-._:[]=".contains(c));
    let name = Some(event.text("filename")).filter(|name| !name.is_empty()).unwrap_or(event.text("body")).to_owned();
    let (server, media) = (server.to_owned(), media.to_owned());
    (is_plain(&server) && is_plain(&media) && media != "..").then_some(RemoteFile { server, media, kind, name })
}

#[cfg(test)]
mod tests;
