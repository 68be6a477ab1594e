//! What is offered: names, words, pins.

use std::time::Duration;

use belay_protocol::{Ask, Effect, SessionKey};
use belay_tools::mcp::{Standing, Survey, SurveyMode};
use serde_json::json;

use super::support::{Bench, offered};

const TWO_TOOLS: &str = r#"
serve([
    tool("Read-File", "Reads\u200b a file.", {"path": {"type": "string"}}, annotations={"readOnlyHint": True}),
    tool("wipe", "", annotations={"destructiveHint": True}),
])
"#;

fn standings(survey: &Survey) -> Vec<(String, Standing)> {
    let tools = survey.reports.iter().flat_map(|report| &report.tools);
    tools.map(|tool| (tool.tool.clone(), tool.standing.clone())).collect()
}

#[tokio::test]
async fn a_servers_tools_are_offered_under_its_name_as_words_of_the_outside() {
    let bench = Bench::new();
    let tools = bench.one(TWO_TOOLS, json!({ "timeout_s": 5, "max_output_bytes": 2000 })).await;
    let [read, wipe] = [tools[0].spec(), tools[1].spec()];
    assert_eq!([&read.name, &wipe.name], ["mcp_s_read_file", "mcp_s_wipe"]);
    assert_eq!(read.description, "[from MCP server s] Reads a file.");
    assert_eq!(wipe.description, "[from MCP server s] No description; the server calls it wipe.");
    assert_eq!(read.schema["properties"]["path"]["type"], "string");
    for spec in [read, wipe] {
        assert_eq!((spec.effect, spec.untrusted, spec.max_output_bytes), (Effect::External, true, 2000));
        assert_eq!(spec.approval, Ask::UnlessApproved, "whatever it says of itself");
        assert_eq!(
            spec.timeout,
            Duration::from_secs(45 + 2 * 3600),
            "a call may wait for its turn, and go on as a task"
        );
    }
    assert_eq!([read.idempotent, wipe.idempotent], [true, false]);
}

#[tokio::test]
async fn a_person_is_shown_server_tool_and_arguments_and_always_holds_for_this_description() {
    let bench = Bench::new();
    let tools = bench.one(TWO_TOOLS, json!({})).await;
    let arguments = json!({ "path": "a\n\u{202e}b" });
    let weight = tools[1].preview(arguments.as_object().unwrap(), &SessionKey::new("x")).await.unwrap();
    assert_eq!(weight.summary, "wipe of the MCP server s (it says that it may destroy something)");
    assert!(weight.shows.is_empty(), "the question shows each argument");
    assert_eq!(weight.ask, None);
    let bound: Vec<_> = weight.bound.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(bound, ["mcp server", "mcp tool", "described as"]);
    let digest = &weight.bound[2].1;
    assert_eq!(weight.covers.unwrap(), format!("wipe of the MCP server s, as described now ({digest})"));
}

#[tokio::test]
async fn a_tool_that_has_changed_is_offered_no_more_until_it_is_approved_again() {
    let bench = Bench::new();
    let survey = async |description: &str, looking| {
        let script = format!("serve([tool('t', {description:?}), tool('u')])");
        let mcp = bench.mcp(&[bench.script("s", &script, json!({}))]);
        let survey = mcp.survey(looking).await.unwrap();
        (offered(&mcp, &survey), standings(&survey), mcp)
    };
    // Looking alone approves nothing.
    assert_eq!(survey("First.", SurveyMode::Only).await.1, [("t".into(), Standing::New), ("u".into(), Standing::New)]);
    assert_eq!(survey("First.", SurveyMode::ToUse).await.0, ["mcp_s_t", "mcp_s_u"]);
    assert_eq!(survey("First.", SurveyMode::Only).await.0, ["mcp_s_t", "mcp_s_u"]);

    let changed = Standing::Changed { what: vec!["description"], before: "First.".into() };
    let (names, standing, mcp) = survey("Second.", SurveyMode::ToUse).await;
    assert_eq!((names, &standing[0].1), (vec!["mcp_s_u".to_owned()], &changed));
    // Using it again changes nothing.
    assert_eq!(survey("Second.", SurveyMode::ToUse).await.1[0].1, changed);
    // The other one is approved already, so only the changed one is told.
    let approved = mcp.approve("s", None).await.unwrap();
    let approved: Vec<_> = approved.iter().map(|tool| (tool.tool.as_str(), tool.description.as_str())).collect();
    assert_eq!(approved, [("t", "Second.")]);
    assert_eq!(survey("Second.", SurveyMode::ToUse).await.0, ["mcp_s_t", "mcp_s_u"]);
    assert!(matches!(survey("First.", SurveyMode::ToUse).await.1[0].1, Standing::Changed { .. }));
}

#[tokio::test]
async fn a_start_offers_the_tools_of_a_known_server_without_asking_it() {
    let bench = Bench::new();
    let file = bench.path("mcp-tools.json");
    let mcp = |script: &str, settings| bench.mcp(&[bench.script("s", script, settings)]).remembering(file.clone());
    let first = mcp("serve([tool('t'), tool('u')])", json!({}));
    let (survey, known) = first.recall().await.unwrap();
    assert_eq!(offered(&first, &survey), ["mcp_s_t", "mcp_s_u"], "an unknown server is asked");
    first.refresh(known).await.unwrap();

    // A server that answers nothing for longer than a start may ask: if it were asked, its tools would be missing.
    let slow = mcp("import time; time.sleep(60)", json!({}));
    let (survey, known) = slow.recall().await.unwrap();
    assert_eq!(offered(&slow, &survey), ["mcp_s_t", "mcp_s_u"]);
    drop(known);

    // The next start offers the tools that it lists after the start, as the pins allow.
    let other = mcp("serve([tool('t', 'Something else.'), tool('v')])", json!({}));
    let (survey, known) = other.recall().await.unwrap();
    assert_eq!(offered(&other, &survey), ["mcp_s_t", "mcp_s_u"]);
    other.refresh(known).await.unwrap();
    let (survey, _) = other.recall().await.unwrap();
    assert_eq!(offered(&other, &survey), ["mcp_s_v"], "a changed description is not approved");
    other.approve("s", None).await.unwrap();
    assert_eq!(offered(&other, &other.recall().await.unwrap().0), ["mcp_s_t", "mcp_s_v"]);
}

#[tokio::test]
async fn a_server_that_fails_or_has_other_settings_is_asked_again_before_its_tools_are_offered() {
    let bench = Bench::new();
    let file = bench.path("mcp-tools.json");
    let mcp = |script: &str, settings| bench.mcp(&[bench.script("s", script, settings)]).remembering(file.clone());
    let first = mcp("serve([tool('t'), tool('u')])", json!({}));
    first.recall().await.unwrap();
    let chosen = mcp("serve([tool('t'), tool('u')])", json!({ "tools": ["u"] }));
    assert_eq!(offered(&chosen, &chosen.recall().await.unwrap().0), ["mcp_s_u"]);

    let broken = mcp("raise SystemExit('no')", json!({ "tools": ["u"] }));
    let (survey, known) = broken.recall().await.unwrap();
    assert_eq!(offered(&broken, &survey), ["mcp_s_u"], "it is known, and its calls will fail");
    broken.refresh(known).await.unwrap();
    let (survey, _) = broken.recall().await.unwrap();
    assert!(survey.reports[0].trouble.is_some() && offered(&broken, &survey).is_empty(), "{survey:?}");

    std::fs::write(&file, "{").unwrap();
    let mended = mcp("serve([tool('u')])", json!({}));
    assert_eq!(offered(&mended, &mended.recall().await.unwrap().0), ["mcp_s_u"], "a damaged file counts as empty");
}

#[tokio::test]
async fn where_trust_is_approved_a_tool_waits_for_its_approval() {
    let bench = Bench::new();
    let mcp = bench.mcp(&[bench.script("s", "serve([tool('t'), tool('u')])", json!({ "trust": "approved" }))]);
    let survey = mcp.survey(SurveyMode::ToUse).await.unwrap();
    assert_eq!(standings(&survey), [("t".into(), Standing::New), ("u".into(), Standing::New)]);
    mcp.approve("s", Some("u")).await.unwrap();
    let survey = mcp.survey(SurveyMode::ToUse).await.unwrap();
    assert_eq!(offered(&mcp, &survey), ["mcp_s_u"]);
}

#[tokio::test]
async fn what_cannot_be_approved_is_told_with_the_nearest_name() {
    let bench = Bench::new();
    let mcp = bench.mcp(&[bench.script("s", "serve([tool('read_file'), tool('a b')])", json!({}))]);
    for (server, tool, expected) in [
        ("t", None, "the MCP server t is not enabled"),
        ("s", Some("read_fil"), "the MCP server s offers no tool read_fil. Did you mean read_file?"),
        ("s", Some("a b"), "a b of the MCP server s cannot be offered: its name holds spaces"),
    ] {
        let error = mcp.approve(server, tool).await.unwrap_err();
        assert!(error.starts_with(expected), "{error}");
    }
}

#[tokio::test]
async fn only_wanted_tools_are_offered_and_pinned() {
    let bench = Bench::new();
    let script = "serve([tool('read_a'), tool('write_a')])";
    let mcp = bench.mcp(&[bench.script("s", script, json!({ "tools": ["read_*"] }))]);
    let survey = mcp.survey(SurveyMode::ToUse).await.unwrap();
    assert_eq!(standings(&survey), [("read_a".into(), Standing::Offered), ("write_a".into(), Standing::NotWanted)]);
    // Wanted later, it is new to us, and pinned then.
    let mcp = bench.mcp(&[bench.script("s", script, json!({}))]);
    assert_eq!(standings(&mcp.survey(SurveyMode::Only).await.unwrap())[1].1, Standing::New);
}

#[tokio::test]
async fn tools_that_share_a_name_are_told_apart() {
    let bench = Bench::new();
    let servers = [
        bench.script("a", "serve([tool('b_c')])", json!({})),
        bench.script("a_b", "serve([tool('c'), tool('x'), tool('x')])", json!({})),
    ];
    let mcp = bench.mcp(&servers);
    let survey = mcp.survey(SurveyMode::ToUse).await.unwrap();
    let names = offered(&mcp, &survey);
    assert_eq!(names.len(), 3, "{names:?}");
    assert!(names[0].starts_with("mcp_a_b_c_") && names[1].starts_with("mcp_a_b_c_") && names[0] != names[1]);
    assert_eq!(names[2], "mcp_a_b_x");
    let left_out = Standing::LeftOut { why: "the server lists another tool of that name".into() };
    assert_eq!(standings(&survey)[3].1, left_out);
}

#[tokio::test]
async fn a_list_in_pages_is_read_to_its_end() {
    let bench = Bench::new();
    let script = r#"
def page(message):
    at = int(message.get("params", {}).get("cursor", "0"))
    more = {"nextCursor": str(at + 1)} if at < 4 else {}
    answer(message, {"tools": [tool(f"t{at}")], **more})
serve([], on={"tools/list": page})
"#;
    let tools = bench.one(script, json!({})).await;
    assert_eq!(tools.len(), 5);
}

#[tokio::test]
async fn broken_pins_offer_nothing() {
    let bench = Bench::new();
    let mcp = bench.mcp(&[bench.script("s", "serve([tool('t')])", json!({}))]);
    std::fs::write(bench.path("mcp-pins.json"), "{").unwrap();
    let error = mcp.survey(SurveyMode::ToUse).await.unwrap_err().to_string();
    assert!(error.contains("mcp-pins.json") && error.contains("these are no pins"), "{error}");
}
