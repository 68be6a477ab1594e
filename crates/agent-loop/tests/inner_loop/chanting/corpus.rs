//! The corpus: texts that chant and texts that do not, as files a person can read. It is the fuzz target's corpus too.

use std::path::{Path, PathBuf};

use super::target::{chanting_target, fed, pieces};

/// The files below a directory of the corpus, with their text.
fn files(directory: &str) -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/chanting").join(directory);
    let mut files: Vec<_> = std::fs::read_dir(root)
        .expect("the corpus")
        .map(|entry| entry.expect("an entry").path())
        .map(|path| (name(&path), std::fs::read_to_string(&path).expect("text")))
        .collect();
    files.sort();
    assert!(files.len() >= 20, "the corpus has moved");
    files
}

fn name(path: &Path) -> String {
    path.file_stem().expect("a name").to_string_lossy().into_owned()
}

/// Runs the target over a text in several slicings: by one and two characters, by lines' lengths, and at random.
fn slice(name: &str, text: &str) {
    let mut seed = name.bytes().fold(1_u32, |seed, byte| seed.wrapping_mul(31).wrapping_add(u32::from(byte)));
    let mut random = |most: u32| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ((seed >> 16) % most) as u8
    };
    let mut slicings = vec![vec![1], vec![2], vec![76, 1], vec![250]];
    for most in [3, 12, 90] {
        slicings.push((0..40).map(|_| random(most)).collect());
    }
    for lengths in slicings {
        let mut data = vec![lengths.len() as u8];
        data.extend(lengths);
        data.extend(text.as_bytes());
        chanting_target(&data);
    }
    chanting_target(text.as_bytes());
}

#[test]
fn every_text_of_the_corpus_is_judged_rightly_in_any_pieces() {
    let mut wrong = Vec::new();
    for (chants, directory) in [(true, "firing"), (false, "healthy")] {
        for (name, text) in files(directory) {
            let judged = fed([&*text]);
            if judged.found().is_some() != chants {
                wrong.push(format!("{directory}/{name}: at {}: {:?}", judged.position(), judged.found()));
            }
            slice(&name, &text);
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn a_healthy_text_stays_healthy_after_any_other() {
    let texts = files("healthy");
    let whole: String = texts.iter().map(|(_, text)| format!("{text}\n```\n```\n\n")).collect();
    let judged = fed(pieces(&whole, &[17]));
    assert_eq!(judged.found(), None, "at {}", judged.position());
}

#[test]
fn our_own_documents_and_licences_do_not_chant() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut paths: Vec<PathBuf> = ["", "docs", "docs/adr", "docs/reference"]
        .iter()
        .filter_map(|directory| std::fs::read_dir(root.join(directory)).ok())
        .flat_map(|entries| entries.flatten().map(|entry| entry.path()))
        .filter(|path| path.extension().is_some_and(|end| end == "md") || name(path).starts_with("LICENSE"))
        .collect();
    paths.sort();
    assert!(paths.len() > 5, "the documents have moved");
    for path in paths {
        let judged = fed([&*std::fs::read_to_string(&path).expect("text")]);
        assert_eq!(judged.found(), None, "{} at {}", path.display(), judged.position());
    }
}
