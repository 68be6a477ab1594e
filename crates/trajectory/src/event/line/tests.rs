use belay_protocol::Arguments;

use super::*;

fn ok(line: &str) -> TrajectoryEvent {
    TrajectoryEvent::parse(line).unwrap_or_else(|error| panic!("{line}: {error:?}"))
}

#[test]
fn the_thirteen_forms_are_read_and_written_as_they_stand() {
    for line in [
        r#"{"tool":{"name":"read_file","args":{"path":"a.txt","deep":{"z":[1,2.50],"a":null}}}}"#,
        r#"{"tool":{"name":"bash","args":"ls -la"}}"#,
        r#"{"tool":{"name":"bash","args":{},"id":"c1"}}"#,
        r#"{"tool_result":{"name":"read_file","ok":false,"text":"no such file"}}"#,
        r#"{"tool_result":{"name":"read_file","ok":true,"text":"…","id":"c1"}}"#,
        r#"{"tool_result":{"name":"rm","ok":false,"text":"no","outcome":"denied"}}"#,
        r#"{"text":"a piece\n"}"#,
        r#"{"assistant":"whole 😀"}"#,
        r#"{"user":""}"#,
        r#"{"turn":true}"#,
        r#"{"usage":{"input":812,"output":64}}"#,
        r#"{"clock_ms":1500}"#,
        r#"{"other":"a thought"}"#,
        r#"{"reset":true}"#,
        r#"{"recover":true}"#,
        r#"{"disable":true}"#,
        r#"{"other":"compacted","compacted":{"before":90000,"after":4000}}"#,
    ] {
        assert_eq!(ok(line).to_line(), line);
    }
}

#[test]
fn reading_is_lenient_where_a_person_would_be() {
    for (line, plain) in [
        (r#" { "turn" : 7 } "#, r#"{"turn":true}"#),
        (r#"{"turn":"yes"}"#, r#"{"turn":true}"#),
        (r#"{"tool":"clock"}"#, r#"{"tool":{"name":"clock","args":{}}}"#),
        (r#"{"tool":{"name":"x","args":null,"since":3}}"#, r#"{"tool":{"name":"x","args":{}}}"#),
        (r#"{"tool":{"name":"x","args":"{\"b\": 1, \"a\": 2}"}}"#, r#"{"tool":{"name":"x","args":{"b":1,"a":2}}}"#),
        (r#"{"tool":{"name":"x","args":[1,2],"id":7}}"#, r#"{"tool":{"name":"x","args":"[1,2]","id":"7"}}"#),
        (r#"{"tool":{"name":"x","arguments":{"a":1}}}"#, r#"{"tool":{"name":"x","args":{"a":1}}}"#),
        (r#"{"tool_result":{"name":"x"}}"#, r#"{"tool_result":{"name":"x","ok":true,"text":""}}"#),
        (
            r#"{"tool_result":{"name":"x","text":{"a":1}}}"#,
            r#"{"tool_result":{"name":"x","ok":true,"text":"{\"a\":1}"}}"#,
        ),
        (r#"{"usage":{"input":3,"cached":1}}"#, r#"{"usage":{"input":3,"output":0}}"#),
        (r#"{"usage":{"prompt_tokens":3,"completion_tokens":4}}"#, r#"{"usage":{"input":3,"output":4}}"#),
        (r#"{"clock_ms":1500.75}"#, r#"{"clock_ms":1500}"#),
        (r#"{"other":{"cite":1}}"#, r#"{"other":"{\"cite\":1}"}"#),
        (r#"{"compacted":true}"#, r#"{"other":"compacted","compacted":{"before":0,"after":0}}"#),
        (
            r#"{"compacted":{"before":9},"other":"shorter"}"#,
            r#"{"other":"compacted","compacted":{"before":9,"after":0}}"#,
        ),
        (r#"{"turn":true,"note":"the third"}"#, r#"{"turn":true}"#),
        (r#"{"text":"half \ud83d of \\ud83d \ud83d\ude00"}"#, r#"{"text":"half � of \\ud83d 😀"}"#),
    ] {
        assert_eq!(ok(line).to_line(), plain, "{line}");
    }
}

#[test]
fn arguments_that_cannot_be_held_are_malformed_and_not_an_error() {
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    for args in [format!("{{\"a\":{deep}}}"), "{\"n\":1e999}".to_owned()] {
        let event = ok(&format!("{{\"tool\":{{\"name\":\"x\",\"args\":{args}}}}}"));
        assert!(matches!(event.arguments(), Some(Arguments::Malformed(_))), "{args}");
        assert_eq!(ok(&event.to_line()), event);
    }
}

#[test]
fn a_line_that_would_be_misread_is_refused_with_its_reason() {
    let unknown = |key: &str, nearest| Fault::UnknownEvent { key: key.into(), nearest };
    let bad = |event, what: &str| Fault::BadValue { event, what: what.into() };
    let did = "says that it did not happen; leave the line out";
    for (line, column, fault) in [
        (r#"{"tol":{"name":"x"}}"#, None, unknown("tol", Some("tool"))),
        (r#"{"asistant":"x"}"#, None, unknown("asistant", Some("assistant"))),
        (r#"{"tool_results":{"name":"x"}}"#, None, unknown("tool_results", Some("tool_result"))),
        (r#"{"zzz":1}"#, None, unknown("zzz", None)),
        (r#"{"label":"healthy"}"#, None, unknown("label", None)),
        (r#"{"turn":true,"text":"x"}"#, None, Fault::TwoEvents("turn", "text")),
        (r#"{"text":"y","text":"x"}"#, None, Fault::TwoEvents("text", "text")),
        ("{}", None, Fault::NoEvent),
        ("[1]", None, Fault::NotAnObject),
        ("\"turn\"", None, Fault::NotAnObject),
        (r#"{"turn":true"#, Some(12), Fault::NotJson("EOF while parsing an object".into())),
        ("turn", Some(2), Fault::NotJson("expected ident".into())),
        (r#"{"turn":true} {}"#, Some(15), Fault::NotJson("trailing characters".into())),
        (r#"{"turn":false}"#, Some(9), bad("turn", did)),
        (r#"{"reset":null}"#, Some(10), bad("reset", did)),
        (r#"{"compacted":false}"#, Some(14), bad("compacted", did)),
        (r#"{"compacted":{"after":-1}}"#, Some(14), bad("compacted", "token counts are 0 or more")),
        (r#"{"turn":true,"compacted":true}"#, None, Fault::TwoEvents("turn", "compacted")),
        (r#"{"text":7}"#, Some(9), bad("text", "must be a string")),
        (r#"{"clock_ms":-1}"#, Some(13), bad("clock_ms", "must be a number of milliseconds, 0 or more")),
        (r#"{"usage":{"input":-2}}"#, Some(10), bad("usage", "token counts are 0 or more")),
        (r#"{"tool":{"args":{}}}"#, Some(9), bad("tool", "missing field `name`")),
        (r#"{"tool_result":{"name":"x","outcome":"odd"}}"#, Some(16), bad("tool_result", "there is no outcome `odd`")),
    ] {
        assert_eq!(TrajectoryEvent::parse(line), Err(LineError { column, fault }), "{line}");
    }
}

#[test]
fn mistakes_are_told_with_what_is_near() {
    let told = |line: &str| TrajectoryEvent::parse(line).unwrap_err().fault.to_string();
    assert_eq!(told(r#"{"tol":1}"#), "there is no event `tol`; did you mean `tool`?");
    assert!(told(r#"{"zzz":1}"#).contains("there are tool, tool_result, text"), "{}", told(r#"{"zzz":1}"#));
}
