//! `belay channels`: the channels of the running daemon.

use belay_program::environment::Environment;
use belay_program::exit::{Exit, Failure};
use belay_program::output::{Cell, Output, Tone};
use belay_protocol::Quality;
use serde_json::{Value as Json, json};

use super::{Client, text};
use crate::args::{ClientArgs, LIST_MAX};

/// Lists the channels with their state, their newest message, and the quality of their deliveries.
pub async fn channels(args: &ClientArgs, env: &Environment, out: Output<'_>) -> Result<Exit, Failure> {
    let client = Client::find(args, env)?;
    let status = client.get(&["api", "v1", "status"], &[]).await?;
    // For operators alone: to others, the newest messages are unknown.
    let limit = LIST_MAX.to_string();
    let seen = client.get(&["api", "v1", "principals"], &[("limit", limit.as_str())]).await.unwrap_or_default();
    let channels = listed(&status, &seen);
    if args.json {
        out.json(&json!({ "channels": channels }));
        return Ok(Exit::Fine);
    }
    let head = ["CHANNEL", "STATE", "LAST MESSAGE", "REPLIES ARRIVE", "CONFIRMED BY", "TROUBLE"];
    let head = head.map(|name| Cell::new(name, Tone::Dim)).into();
    out.table(&std::iter::once(head).chain(channels.iter().map(row)).collect::<Vec<_>>());
    Ok(Exit::Fine)
}

/// The channels of a status, each with the date of its newest message. `seen`: principals, the most recently seen
/// first.
fn listed(status: &Json, seen: &Json) -> Vec<Json> {
    let list = |json: &Json, path: &str| json.pointer(path).and_then(Json::as_array).cloned().unwrap_or_default();
    let seen = list(seen, "/principals");
    let with_date = |mut channel: Json| {
        let newest = seen.iter().find(|principal| text(principal, "/channel") == text(&channel, "/channel"));
        channel["last_message_at"] = newest.map_or(Json::Null, |newest| json!(text(newest, "/last_seen_at")));
        channel
    };
    list(status, "/channel_states").into_iter().map(with_date).collect()
}

fn row(channel: &Json) -> Vec<Cell> {
    let (delivery, confirmed) = serde_json::from_value(channel.clone())
        .map_or(("?", "?"), |Quality { delivery, confirmed_by }| (delivery.words(), confirmed_by.words()));
    let state = match text(channel, "/state") {
        state @ "ready" => Cell::new(state, Tone::Good),
        state @ "troubled" => Cell::new(state, Tone::Bad),
        state => Cell::from(state),
    };
    let last = match text(channel, "/last_message_at") {
        "" => "-",
        date => date,
    };
    vec![
        text(channel, "/channel").into(),
        state,
        last.into(),
        delivery.into(),
        confirmed.into(),
        text(channel, "/trouble").into(),
    ]
}

#[cfg(test)]
mod tests {
    use belay_protocol::{Confirmation, DeliveryQuality};

    use super::*;

    #[test]
    fn each_channel_has_a_row_with_its_newest_message_and_its_quality() {
        let status = json!({"channel_states": [
            {"channel": "http", "state": "ready", "delivery": "exactly_once", "confirmed_by": "real_server"},
            {"channel": "telegram", "state": "troubled", "trouble": "401", "delivery": "once_or_unknown",
             "confirmed_by": "stand_in"}]});
        let seen = json!({"principals": [
            {"channel": "telegram", "last_seen_at": "T2"}, {"channel": "telegram", "last_seen_at": "T1"}]});
        let rows: Vec<_> = listed(&status, &seen).iter().map(row).collect();
        let cells = |state: Cell, row: [&str; 5]| {
            let mut cells: Vec<Cell> = row.map(Cell::from).into();
            cells.insert(1, state);
            cells
        };
        let (ready, troubled) = (Cell::new("ready", Tone::Good), Cell::new("troubled", Tone::Bad));
        let expected = [
            cells(ready, ["http", "-", DeliveryQuality::ExactlyOnce.words(), Confirmation::RealServer.words(), ""]),
            cells(
                troubled,
                ["telegram", "T2", DeliveryQuality::OnceOrUnknown.words(), Confirmation::StandIn.words(), "401"],
            ),
        ];
        assert_eq!(rows, expected);
        assert_eq!(listed(&status, &Json::Null)[1]["last_message_at"], Json::Null, "to others than operators");
    }
}
