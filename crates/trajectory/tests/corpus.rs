//! The fuzzer's corpus, run as a plain test: hostile recordings are read to their end, or refused with a line.

use std::path::Path;

use belay_trajectory::trajectory_target;
use proptest::prelude::*;

#[test]
fn every_file_of_the_corpus_is_read_or_refused() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let mut count = 0;
    for entry in std::fs::read_dir(directory).expect("the corpus is there").flatten() {
        trajectory_target(&std::fs::read(entry.path()).expect("a readable file"));
        count += 1;
    }
    assert!(count >= 10, "{count} files");
}

/// Bytes that look like a recording more often than noise does.
fn nearly_a_recording() -> impl Strategy<Value = Vec<u8>> {
    let pieces = prop::sample::select(vec![
        "{\"tool\":{\"name\":\"",
        "{\"tool_result\":{\"name\":\"x\",\"text\":",
        "{\"text\":\"",
        "{\"turn\":true}",
        "\"args\":",
        "{\"label\":",
        "\"ok\":false",
        "\"}}",
        "\\ud83d",
        "\\",
        "\"",
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\n",
        "\r\n",
        "\u{feff}",
        "é",
        "1e999",
    ]);
    let bytes = prop_oneof![8 => pieces.prop_map(|piece| piece.as_bytes().to_vec()), 1 => prop::collection::vec(any::<u8>(), 0..4)];
    prop::collection::vec(bytes, 0..24).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(data in nearly_a_recording()) {
        trajectory_target(&data);
    }
}
