//! What a message says without a text: a place, a contact, a poll, a list of tasks, a die. One line each, which the model
//! reads as data. Pure.

use super::facts::visible;
use super::wire::{Checklist, Contact, Content, Dice, Location, Poll, Venue};

/// The lines about a content.
pub(super) fn lines(content: &Content) -> Vec<String> {
    parts(content).into_iter().filter_map(|(_, line)| line.flatten()).map(|line| visible(&line)).collect()
}

/// The kind of the first part that is there and can be read.
pub(super) fn kind(content: &Content) -> Option<&'static str> {
    parts(content).into_iter().find_map(|(kind, line)| line.flatten().map(|_| kind))
}

/// The kinds of parts that are there, and of which nothing can be read.
pub(super) fn unread(content: &Content) -> impl Iterator<Item = &'static str> {
    parts(content).into_iter().filter_map(|(kind, line)| (line == Some(None)).then_some(kind))
}

/// Each kind of part, and its line if it is there. A venue comes with its location.
fn parts(content: &Content) -> [(&'static str, Option<Option<String>>); 6] {
    let Content { checklist, contact, dice, location, poll, venue, .. } = content;
    let location = location.as_ref().filter(|_| venue.is_none());
    [
        ("venue", venue.as_ref().map(venue_line)),
        ("location", location.map(location_line)),
        ("contact", contact.as_ref().map(contact_line)),
        ("poll", poll.as_ref().map(poll_line)),
        ("checklist", checklist.as_ref().map(checklist_line)),
        ("dice", dice.as_ref().map(dice_line)),
    ]
}

fn venue_line(Venue { location, title, address }: &Venue) -> Option<String> {
    let place = location_line(location).map(|place| format!(" ({place})")).unwrap_or_default();
    let named: Vec<&str> = [title.as_str(), address].into_iter().filter(|part| !part.is_empty()).collect();
    (!named.is_empty() || !place.is_empty()).then(|| format!("venue: {}{place}", named.join(", ")))
}

fn location_line(location: &Location) -> Option<String> {
    let (latitude, longitude) = location.latitude.zip(location.longitude)?;
    let accuracy = location.horizontal_accuracy.map(|metres| format!(", accurate to {metres} m")).unwrap_or_default();
    let live = if location.live_period.is_some() { ", which the sender keeps up to date" } else { "" };
    Some(format!("location: latitude {latitude}, longitude {longitude}{accuracy}{live}"))
}

fn contact_line(contact: &Contact) -> Option<String> {
    let last = contact.last_name.as_deref().unwrap_or_default();
    let name = format!("{} {last}", contact.first_name).trim().to_owned();
    let id = contact.user_id.map(|id| format!("Telegram id {id}"));
    let parts: Vec<String> =
        [name, contact.phone_number.clone()].into_iter().chain(id).filter(|part| !part.is_empty()).collect();
    (!parts.is_empty()).then(|| format!("contact: {}", parts.join(", ")))
}

fn poll_line(poll: &Poll) -> Option<String> {
    let options: Vec<String> = poll
        .options
        .iter()
        .map(|option| {
            let votes = option.voter_count.filter(|votes| *votes > 0).map(|votes| format!(" (votes: {votes})"));
            format!("{}{}", option.text, votes.unwrap_or_default())
        })
        .collect();
    let kind = if poll.kind.as_deref() == Some("quiz") { "quiz" } else { "poll" };
    let closed = if poll.is_closed { ", closed" } else { "" };
    (!poll.question.is_empty()).then(|| format!("{kind}{closed}: {} Options: {}", poll.question, options.join("; ")))
}

fn checklist_line(list: &Checklist) -> Option<String> {
    let tasks: Vec<String> = list
        .tasks
        .iter()
        .map(|task| {
            let is_done = task.completion_date.is_some_and(|date| date > 0) || task.completed_by_user.is_some();
            format!("[{}] {}", if is_done { "x" } else { " " }, task.text)
        })
        .collect();
    (!list.title.is_empty() || !tasks.is_empty())
        .then(|| format!("checklist: {} Tasks: {}", list.title, tasks.join("; ")))
}

fn dice_line(dice: &Dice) -> Option<String> {
    dice.value.map(|value| format!("dice {}: {value}", dice.emoji))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::telegram::wire::Read;

    #[test]
    fn what_a_message_shares_is_one_line() {
        let place = json!({"latitude": 52.52, "longitude": 13.405});
        let option = |text: &str, votes: u32| json!({"text": text, "voter_count": votes});
        for (fields, expected) in [
            (json!({"location": place}), "location: latitude 52.52, longitude 13.405"),
            (
                json!({"location": {"latitude": 1, "longitude": -2.5, "horizontal_accuracy": 20.0, "live_period": 60}}),
                "location: latitude 1, longitude -2.5, accurate to 20 m, which the sender keeps up to date",
            ),
            (
                json!({"venue": {"location": place, "title": "Museum", "address": "Main St 1"}, "location": place}),
                "venue: Museum, Main St 1 (location: latitude 52.52, longitude 13.405)",
            ),
            (
                json!({"contact": {"phone_number": "+49 30 1", "first_name": "Ann", "last_name": "Lee", "user_id": 9}}),
                "contact: Ann Lee, +49 30 1, Telegram id 9",
            ),
            (json!({"contact": {"phone_number": "1", "first_name": "A\u{202e}nn"}}), "contact: Ann, 1"),
            (
                json!({"poll": {"question": "When?", "options": [option("Mon", 2), option("Tue", 0)], "type": "ranked"}}),
                "poll: When? Options: Mon (votes: 2); Tue",
            ),
            (
                json!({"poll": {"question": "2+2?", "options": [option("4", 0)], "type": "quiz", "is_closed": true}}),
                "quiz, closed: 2+2? Options: 4",
            ),
            (
                json!({"checklist": {"title": "Trip", "tasks": [
                    {"id": 1, "text": "pack"}, {"id": 2, "text": "book", "completion_date": 5},
                ]}}),
                "checklist: Trip Tasks: [ ] pack; [x] book",
            ),
            (json!({"dice": {"emoji": "🎲", "value": 4}}), "dice 🎲: 4"),
            // What cannot be read is no line.
            (json!({"location": {"latitude": "x"}, "poll": 5, "dice": {}, "contact": [], "checklist": "x"}), ""),
            (json!({"venue": {}}), ""),
        ] {
            let content = Content::read(&fields).expect("a content");
            assert_eq!(lines(&content).join("\n"), expected, "{fields}");
        }
    }
}
