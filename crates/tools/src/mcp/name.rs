//! Assigns the names by which models call the tools of servers: `mcp_<server>_<tool>`.

use std::collections::HashMap;

/// Longest name of a tool for models: [`belay_protocol::ToolSpec::name`].
const MAX_NAME: usize = 64;

/// Digits of the digest in a name. 8: 32 bits, so that two tools do not collide by chance.
const DIGEST_DIGITS: usize = 8;

/// Assigns a name to each pair of server and tool, in the same order. `None`: another pair has the same name, including
/// the digest, so neither is offered.
///
/// A pair whose plain name is too long or not unique gets a digest of the pair as a suffix. So no server can take over
/// the name of another server's tool by its position.
pub(super) fn assign(pairs: &[(&str, &str)]) -> Vec<Option<String>> {
    let plain: Vec<String> = pairs.iter().map(|(server, tool)| plain(server, tool)).collect();
    let count = counts(&plain);
    let names: Vec<String> = pairs
        .iter()
        .zip(&plain)
        .map(|(pair, plain)| {
            if plain.len() <= MAX_NAME && count[plain.as_str()] == 1 { plain.clone() } else { with_digest(plain, pair) }
        })
        .collect();
    let count = counts(&names);
    names.iter().map(|name| (count[name.as_str()] == 1).then(|| name.clone())).collect()
}

fn counts(names: &[String]) -> HashMap<&str, usize> {
    let mut counts = HashMap::new();
    for name in names {
        *counts.entry(name.as_str()).or_default() += 1;
    }
    counts
}

/// The name, with `_` for every character outside of `[a-z0-9]`.
fn plain(server: &str, tool: &str) -> String {
    let fits = |c: char| if c.is_ascii_lowercase() || c.is_ascii_digit() { c } else { '_' };
    format!("mcp_{server}_{tool}").to_lowercase().chars().map(fits).collect()
}

fn with_digest(plain: &str, (server, tool): &(&str, &str)) -> String {
    // The separator is a zero byte, which neither name contains.
    let digest = blake3::hash(format!("{server}\0{tool}").as_bytes()).to_hex();
    let kept = &plain[..plain.len().min(MAX_NAME - DIGEST_DIGITS - 1)]; // ASCII
    format!("{kept}_{}", &digest[..DIGEST_DIGITS])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_name_has_only_allowed_characters() {
        for (server, tool, expected) in [
            ("files", "read", "mcp_files_read"),
            ("files", "Read-File.v2", "mcp_files_read_file_v2"),
            ("files", "größe", "mcp_files_gr__e"),
            ("files", "a b\nc", "mcp_files_a_b_c"),
        ] {
            assert_eq!(assign(&[(server, tool)]), [Some(expected.to_owned())]);
        }
    }

    #[test]
    fn a_long_name_is_cut_and_gets_a_digest() {
        let (one, two) = (format!("{}1", "x".repeat(90)), format!("{}2", "x".repeat(90)));
        let names = assign(&[("s", &one), ("s", &two)]);
        for name in &names {
            assert_eq!(name.as_ref().unwrap().len(), MAX_NAME);
        }
        assert_ne!(names[0], names[1]);
    }

    #[test]
    fn of_two_tools_with_one_name_neither_gets_it() {
        let names = assign(&[("a", "b_c"), ("a_b", "c"), ("a", "d")]);
        assert_eq!(names[2].as_deref(), Some("mcp_a_d"));
        let [one, two] = [&names[0], &names[1]].map(|name| name.as_deref().unwrap());
        assert!(one.starts_with("mcp_a_b_c_") && two.starts_with("mcp_a_b_c_") && one != two, "{one} {two}");
        // The names do not depend on the order.
        let turned = assign(&[("a_b", "c"), ("a", "b_c")]);
        assert_eq!([turned[1].as_deref(), turned[0].as_deref()], [Some(one), Some(two)]);
    }

    #[test]
    fn a_name_made_to_look_like_anothers_digest_wins_nothing() {
        let digest = assign(&[("a", "b_c"), ("a_b", "c")])[0].clone().unwrap();
        let forged = digest.strip_prefix("mcp_a_").unwrap().to_owned();
        let names = assign(&[("a", "b_c"), ("a_b", "c"), ("a", &forged)]);
        assert_eq!([&names[0], &names[2]], [&None, &None]);
        assert!(names[1].is_some());
    }
}
