//! The texts of the tools, read for names of tools that are not there.

#![allow(clippy::unwrap_used)]

use super::tests::parts;
use super::*;
use crate::config::{SearchConfig, SearchProvider, ShellConfig, WebConfig};

/// The tools with these settings: a bit for each.
fn built(settings: u32, dir: &std::path::Path) -> (Vec<&'static str>, Vec<Arc<dyn Tool>>) {
    let is = |bit: u32| settings & (1 << bit) != 0;
    let mut config = ToolsConfig {
        workspace: Some(dir.join("workspace")),
        web: WebConfig {
            enabled: is(0),
            send_methods: is(1).then(|| "POST".to_owned()).into_iter().collect(),
            ..WebConfig::default()
        },
        search: SearchConfig {
            provider: if is(2) { SearchProvider::Searxng } else { SearchProvider::None },
            ..SearchConfig::default()
        },
        shell: ShellConfig { enabled: is(3) },
        ..ToolsConfig::default()
    };
    if !is(4) {
        config.commands.allow.clear();
    }
    if is(5) {
        config.commands.background = 0;
    }
    let background = crate::testing::background_of(dir, config.commands.background);
    (offered(&config), builtin(&config, ToolsParts { background, ..parts(dir) }).unwrap())
}

#[test]
fn no_text_names_a_tool_that_the_settings_leave_out() {
    let dir = tempfile::tempdir().unwrap();
    crate::testing::install_tls();
    // A text that names a tool is seen with its own tool alone, and with all but the named one.
    let (one, all) = ((0..6).map(|bit| 1 << bit), (1 << 6) - 1);
    for settings in one.flat_map(|one| [one, all - one]).chain([0, all]) {
        let (there, tools) = built(settings, dir.path());
        for absent in BUILTIN.iter().filter(|name| !there.contains(name)) {
            // "process" is also a word of the language.
            let absent = if *absent == "process" { "tool process" } else { absent };
            for spec in tools.iter().map(|tool| tool.spec()) {
                let text = format!("{} {}", spec.description, spec.schema);
                assert!(!text.contains(absent), "{settings:b}: {} names {absent}: {text}", spec.name);
            }
        }
    }
}

#[test]
fn a_tool_that_reads_no_html_is_not_recommended_for_pages() {
    let dir = tempfile::tempdir().unwrap();
    crate::testing::install_tls();
    let (_, tools) = built(0b111, dir.path());
    for name in ["send_request", "web_search"] {
        let tool = tools.iter().find(|tool| tool.spec().name == name).unwrap();
        assert_eq!(tool.spec().description.contains("fetch_url"), cfg!(feature = "web"), "{name}");
    }
}
