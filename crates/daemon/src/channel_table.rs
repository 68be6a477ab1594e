//! The table of channels in the guide agrees with what the channels say.

use belay_protocol::Quality;

const PAGE: &str = include_str!("../../../docs/guide/promises.md");

/// The channels of this build, with what they promise.
fn promised() -> Vec<(&'static str, Quality)> {
    vec![
        ("http", belay_gateway::HTTP_QUALITY),
        #[cfg(feature = "telegram")]
        ("telegram", belay_channels::telegram::QUALITY),
        #[cfg(feature = "matrix")]
        ("matrix", belay_matrix::QUALITY),
        #[cfg(feature = "mail")]
        ("mail", belay_mail::QUALITY),
        ("stdin", belay_channels::stdin::QUALITY),
    ]
}

#[test]
fn the_guide_has_the_quality_of_each_channel() {
    let (_, table) = PAGE.split_once("\n## Channels\n").expect("the section");
    let table = table.split("\n## ").next().unwrap_or_default();
    for (channel, Quality { delivery, confirmed_by }) in promised() {
        let row = format!("| `{channel}` | {} | {} |", delivery.words(), confirmed_by.words());
        assert!(table.contains(&row), "no row {row:?} in docs/guide/promises.md");
    }
}
