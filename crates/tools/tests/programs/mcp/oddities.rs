//! Servers that differ from the specification in one place: everything else of them works. The rows are those of
//! `docs/reference/mcp-servers.md`.

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use belay_tools::mcp::{Standing, SurveyMode};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::http::{serve, server};
use super::support::{Bench, Run, offered};

/// What a server lists: the offered tools, and the lines about the others.
async fn listed(script: &str) -> (Vec<String>, Vec<String>) {
    let bench = Bench::new();
    let mcp = bench.mcp(&[bench.script("s", script, json!({}))]);
    let survey = mcp.survey(SurveyMode::ToUse).await.unwrap();
    let report = &survey.reports[0];
    assert_eq!(report.trouble, None, "{script}");
    let lines = report.tools.iter().filter_map(|tool| match &tool.standing {
        Standing::LeftOut { why } => Some(format!("{}: {why}", tool.tool)),
        _ => None,
    });
    (offered(&mcp, &survey), lines.collect())
}

#[tokio::test]
async fn a_tool_that_works_only_as_a_task_is_left_out_where_the_server_has_none() {
    let (offered, lines) = listed(
        "serve([tool('research', execution={'taskSupport': 'required'}), tool('may', execution={'taskSupport': 'optional'}),
                tool('no', execution={'taskSupport': 'forbidden'}), tool('odd', execution={'taskSupport': 'sometimes'}),
                tool('none', execution=None), tool('text', execution='required')])",
    )
    .await;
    assert_eq!(offered, ["mcp_s_may", "mcp_s_no", "mcp_s_odd", "mcp_s_none", "mcp_s_text"]);
    assert_eq!(
        lines,
        ["research: it works only as a task (taskSupport: required), and the server does not say that it has tasks"]
    );
}

#[tokio::test]
async fn an_odd_optional_part_of_a_tool_costs_that_part() {
    let (offered, lines) = listed(
        "serve([tool('a', annotations='none', icons='x', title=7), tool('b', annotations={'readOnlyHint': 'yes', 'title': None}),
                tool('c', outputSchema=[], _meta=3), dict(tool('d'), description=['x']), dict(tool('e'), description=None)])",
    )
    .await;
    assert_eq!((offered, lines), (["a", "b", "c", "d", "e"].map(|name| format!("mcp_s_{name}")).to_vec(), vec![]));
}

#[tokio::test]
async fn a_list_without_an_end_is_ended_and_its_tools_are_kept() {
    let page = |body: &str| {
        format!(
            "pages = [0]
def page(message):
    pages[0] += 1
    n, cursor = pages[0], (message.get('params') or {{}}).get('cursor')
    {body}
serve([], on={{'tools/list': page}})"
        )
    };
    let more = |why: &str| format!("(more tools): the list of the server was ended: {why}");
    for (body, tools, line) in [
        // The cursor is ignored: the same page again and again.
        (
            "answer(message, {'tools': [tool('a'), tool('b')], 'nextCursor': 'x'})",
            "a b",
            more("its cursor repeats on page 2"),
        ),
        (
            "answer(message, {'tools': [tool(f't{n}')], 'nextCursor': 'x'})",
            "t1 t2",
            more("its cursor repeats on page 2"),
        ),
        // A cycle of three.
        (
            "answer(message, {'tools': [tool(f't{n}')], 'nextCursor': 'abc'[n % 3]})",
            "t1 t2 t3 t4",
            more("its cursor repeats on page 4"),
        ),
        (
            "answer(message, {'tools': [tool('a')] if n == 1 else [], 'nextCursor': str(n)})",
            "a",
            more("it has more than 32 pages"),
        ),
        (
            "answer(message, {'tools': [tool('a')], 'nextCursor': 'x'}) if not cursor else send({'jsonrpc': '2.0', 'id': message['id'], 'error': {'code': -32602, 'message': 'Invalid cursor'}})",
            "a",
            more("page 2 is an error: Invalid cursor"),
        ),
    ] {
        let (offered, lines) = listed(&page(body)).await;
        let names: Vec<_> = tools.split(' ').map(|tool| format!("mcp_s_{tool}")).collect();
        assert_eq!((offered, lines), (names, vec![line]), "{body}");
    }
    // An empty cursor is none.
    for cursor in ["''", "None"] {
        let (offered, lines) =
            listed(&page(&format!("answer(message, {{'tools': [tool('a')], 'nextCursor': {cursor}}})"))).await;
        assert_eq!((offered, lines), (vec!["mcp_s_a".to_owned()], vec![]), "{cursor}");
    }
    let (offered, lines) = listed("serve([tool(f't{n}') for n in range(200)])").await;
    assert_eq!((offered.len(), lines), (128, vec![more("it has more than 128 tools")]));
}

#[tokio::test]
async fn an_odd_part_of_an_answer_costs_that_part() {
    let bench = Bench::new();
    let script = "serve([tool('t', properties={'result': {}})], lambda message: answer(message, message['params']['arguments']['result']))";
    let tools = bench.one(script, json!({})).await;
    let run = Run::new();
    let text = json!({ "type": "text", "text": "beside" });
    for (result, expected) in [
        (
            json!({ "content": [text, { "type": "hologram", "data": "x" }] }),
            "beside\n[left out: a part of the type hologram]",
        ),
        (json!({ "content": [{ "type": "error", "text": "no" }] }), "[a part of the type error]\nno"),
        (json!({ "content": [{ "type": "json", "json": { "n": 1 } }] }), "[a part of the type json]\n{\"n\":1}"),
        (json!({ "toolResult": { "content": [text] } }), "beside"),
        (json!({ "content": [{}, text] }), "[left out: a part without a type]\nbeside"),
        (
            json!({ "content": [null, text, 7] }),
            "[left out: a part without a type]\nbeside\n[left out: a part without a type]",
        ),
        (json!({ "content": [{ "text": "untyped" }] }), "untyped"),
        (json!({ "content": [{ "type": "text", "text": null }, text] }), "[left out: a text without text]\nbeside"),
        (
            json!({ "content": [{ "type": "text", "text": "a", "annotations": { "audience": "all", "priority": "high" } }] }),
            "a",
        ),
        (json!({ "content": null }), "[the tool answered nothing]"),
        (json!({}), "[the tool answered nothing]"),
        (json!({ "content": null, "structuredContent": { "n": 1 } }), r#"{"n":1}"#),
        (json!({ "structuredContent": { "n": 1 } }), r#"{"n":1}"#),
        (json!({ "content": [text], "structuredContent": null }), "beside"),
        (json!({ "content": "a text" }), "a text"),
        (json!({ "content": text }), "beside"),
        (json!({ "content": ["a", text] }), "a\nbeside"),
        (json!({ "content": [text], "isError": null }), "beside"),
        (json!({ "content": [text], "isError": "false" }), "beside"),
        (
            json!({ "content": [text, { "type": "resource_link", "uri": "file:///a" }] }),
            "beside\n[resource file:///a: file:///a]",
        ),
        (json!({ "content": [text, { "type": "resource" }] }), "beside\n[left out: a resource without contents]"),
        (
            json!({ "content": [text, { "type": "image", "data": "?!", "mimeType": "image/png" }] }),
            "beside\n[picture left out: its base64 is broken]",
        ),
        (
            json!({ "content": [text, { "type": "image", "mimeType": "image/png" }] }),
            "beside\n[picture left out: it has no data]",
        ),
    ] {
        assert_eq!(run.text(&tools[0], json!({ "result": result })).await, expected, "{result}");
    }
    for is_error in [json!(true), json!("true")] {
        let result = json!({ "content": [{}, text], "isError": is_error });
        let failure = run.failure(&tools[0], json!({ "result": result })).await;
        assert_eq!(failure, "[left out: a part without a type]\nbeside");
    }
}

#[tokio::test]
async fn an_odd_error_is_an_error_and_its_words_are_told() {
    for (error, expected) in [
        ("{'code': 'ENOENT', 'message': 'no such file'}", "answered with an error: ENOENT: no such file"),
        ("{'code': '-32000', 'message': 'busy'}", "answered with an error: busy"),
        ("{'code': -32000.0, 'message': 'busy'}", "answered with an error: busy"),
        ("{'code': None, 'message': 'busy'}", "answered with an error: busy"),
        ("{'code': 99999999999, 'message': 'busy'}", "answered with an error: 99999999999: busy"),
        ("{'message': 'busy'}", "answered with an error: busy"),
        ("{'code': 1}", "answered with an error: it does not say which"),
        ("{'code': 1, 'message': {'why': 'busy'}}", "answered with an error: {\"why\":\"busy\"}"),
        ("'busy'", "answered with an error: busy"),
    ] {
        let bench = Bench::new();
        let script = format!(
            "serve([tool('t')], lambda message: send({{'jsonrpc': '2.0', 'id': message['id'], 'error': {error}, 'result': None}}))"
        );
        let tools = bench.one(&script, json!({})).await;
        let failure = Run::new().failure(&tools[0], json!({})).await;
        assert_eq!(failure, format!("The MCP server s {expected}."), "{error}");
    }
    let bench = Bench::new();
    let script = "serve([tool('t')], lambda m: send({'jsonrpc': '2.0', 'id': m['id'], 'error': None, 'result': {'content': [{'type': 'text', 'text': 'ok'}]}}))";
    let tools = bench.one(script, json!({})).await;
    assert_eq!(Run::new().text(&tools[0], json!({})).await, "ok");
}

#[tokio::test]
async fn a_server_that_refuses_our_revision_is_told_with_those_that_it_speaks() {
    let bench = Bench::new();
    let error = "{'code': -32602, 'message': 'Unsupported protocol version', 'data': {'supported': ['2027-01-01', '2028-01-01'], 'requested': '2025-11-25'}}";
    let script = format!(
        "serve([], on={{'initialize': lambda m: send({{'jsonrpc': '2.0', 'id': m['id'], 'error': {error}}})}})"
    );
    let mcp = bench.mcp(&[bench.script("s", &script, json!({}))]);
    let survey = mcp.survey(SurveyMode::ToUse).await.unwrap();
    let expected = "speaks MCP 2027-01-01, 2028-01-01, and this Belay speaks 2024-11-05 to 2026-07-28";
    assert_eq!(survey.reports[0].trouble.as_deref(), Some(expected));
}

#[tokio::test]
async fn what_we_refuse_a_server_is_told_as_our_refusal() {
    let script = |method: &str, then: &str| {
        format!(
            "def call(message):
    send({{'jsonrpc': '2.0', 'id': 'q', 'method': '{method}', 'params': {{'message': 'sure?', 'mode': 'form', 'requestedSchema': {{'type': 'object', 'properties': {{}}}}, 'messages': [], 'maxTokens': 1}}}})
    error = json.loads(sys.stdin.readline())['error']
    {then}
serve([tool('t')], call)"
        )
    };
    let failed = "say(message, 'MCP error -32601: ' + error['message'], isError=True)";
    let error = "send({'jsonrpc': '2.0', 'id': message['id'], 'error': {'code': -32603, 'message': 'client error'}})";
    for (method, then, expected) in [
        (
            "elicitation/create",
            failed,
            "wanted to ask a person something, and nobody was asked: this run cannot ask anybody",
        ),
        (
            "elicitation/create",
            error,
            "wanted to ask a person something, and nobody was asked: this run cannot ask anybody",
        ),
        ("sampling/createMessage", error, "asked for a model (sampling/createMessage), which Belay refuses to servers"),
        ("roots/list", failed, "asked for directories (roots/list), which Belay refuses to servers"),
        ("made/up", failed, "asked for made/up, which Belay refuses to servers"),
    ] {
        let bench = Bench::new();
        let tools = bench.one(&script(method, then), json!({})).await;
        let failure = Run::new().failure(&tools[0], json!({})).await;
        assert!(failure.starts_with(&format!("The MCP server s {expected}. ")), "{failure}");
        let words = if then == error { "client error" } else { "MCP error -32601" };
        assert!(failure.contains(words), "{failure}");
    }
    // A tool that works without it is no failure.
    let bench = Bench::new();
    let tools = bench.one(&script("roots/list", "say(message, 'without')"), json!({})).await;
    assert_eq!(Run::new().text(&tools[0], json!({})).await, "without");
}

/// The same over HTTP, with an answer as JSON and as a stream of events.
#[tokio::test]
async fn oddities_over_http_are_those_over_pipes() {
    for streamed in [false, true] {
        let respond = async move |request: Request| -> Response {
            let body = axum::body::to_bytes(request.into_body(), 1 << 20).await.unwrap();
            let Ok(message) = serde_json::from_slice::<Value>(&body) else {
                return StatusCode::METHOD_NOT_ALLOWED.into_response();
            };
            let schema = json!({ "type": "object" });
            let answer = match message["method"].as_str().unwrap_or_default() {
                "initialize" => json!({ "result": {
                    "protocolVersion": "2025-06-18", "capabilities": { "tools": {} }, "serverInfo": { "name": "x", "version": "1" },
                } }),
                "tools/list" => json!({ "result": { "nextCursor": "x", "tools": [
                    { "name": "t", "inputSchema": schema, "annotations": 1 },
                    { "name": "research", "inputSchema": schema, "execution": { "taskSupport": "required" } },
                ] } }),
                "tools/call" => json!({ "error": { "code": "EBUSY", "message": "later" } }),
                _ => return StatusCode::ACCEPTED.into_response(),
            };
            let mut answer = answer;
            answer["jsonrpc"] = "2.0".into();
            answer["id"] = message["id"].clone();
            let (kind, body) = match streamed {
                false => ("application/json", answer.to_string()),
                true => ("text/event-stream", format!("event: message\ndata: {answer}\n\n")),
            };
            ([("mcp-session-id", "1"), ("content-type", kind)], body).into_response()
        };
        let mut tasks = JoinSet::new();
        let address = serve(&mut tasks, Router::new().route("/mcp", any(respond))).await;
        let bench = Bench::new();
        let mcp = bench.of(vec![server(format!("http://{address}/mcp"), None)]);
        let survey = mcp.survey(SurveyMode::ToUse).await.unwrap();
        assert_eq!(offered(&mcp, &survey), ["mcp_s_t"], "{survey:?}");
        let left_out: Vec<_> = survey.reports[0].tools[1..].iter().map(|tool| tool.tool.as_str()).collect();
        assert_eq!(left_out, ["research", "(more tools)"]);
        let failure = Run::new().failure(&mcp.tools(&survey)[0], json!({})).await;
        assert!(failure.contains("EBUSY") && failure.contains("later"), "{streamed}: {failure}");
        if streamed {
            assert_eq!(failure, "The MCP server s answered with an error: EBUSY: later.");
        }
    }
}
