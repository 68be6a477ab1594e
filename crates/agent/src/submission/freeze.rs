//! `/freeze` and `/thaw`: the options of the command line, `belay freeze` and `belay thaw`. Without one, they are about
//! everything.

use belay_protocol::{ChannelId, FreezeRequest, FreezeScope};

pub(super) const USAGE: &str = "/freeze REASON freezes everything. /freeze --person ID, /freeze --channel CHANNEL or \
/freeze --routine NAME freezes only that, with --reason TEXT or a text behind it; /freeze --list shows what is frozen. \
/thaw ends the freeze of everything, or with the same option that of a part.";

/// The request of `/freeze`; `None`: an option is unknown, has no value, or is there twice.
pub(super) fn freeze(argument: Option<&str>) -> Option<FreezeRequest> {
    let argument = argument.unwrap_or_default();
    if argument == "--list" {
        return Some(FreezeRequest::List);
    }
    let (scope, rest) = scope(argument)?;
    let detail = Some(rest.to_owned()).filter(|rest| !rest.is_empty());
    Some(FreezeRequest::Freeze { scope, detail })
}

/// The request of `/thaw`; `None` as with [`freeze`], or a text is left.
pub(super) fn thaw(argument: Option<&str>) -> Option<FreezeRequest> {
    let (scope, rest) = scope(argument.unwrap_or_default())?;
    // Without an option, a text was never an error: the freeze of everything ends.
    (rest.is_empty() || scope == FreezeScope::All).then_some(FreezeRequest::Thaw(scope))
}

/// The scope, and the text that is left.
fn scope(mut text: &str) -> Option<(FreezeScope, &str)> {
    let mut scope = None;
    while let Some((option, rest)) = option(text) {
        let (name, inline) = option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value)));
        if name == "reason" {
            let reason = match inline {
                Some(value) if rest.is_empty() => value,
                Some(_) => text.trim_start_matches(['-', '—']).strip_prefix("reason=")?,
                None => rest,
            };
            return (!reason.is_empty()).then_some((scope.unwrap_or(FreezeScope::All), reason));
        }
        let (value, rest) = match inline {
            Some(value) => (value, rest),
            None => rest.split_once(char::is_whitespace).unwrap_or((rest, "")),
        };
        if value.is_empty() || value.starts_with("--") || scope.is_some() {
            return None;
        }
        scope = Some(match name {
            "person" => FreezeScope::person(value),
            "channel" => FreezeScope::Channel { channel: ChannelId::new(value) },
            "routine" => FreezeScope::Routine { name: value.to_owned() },
            _ => return None,
        });
        text = rest.trim_start();
    }
    Some((scope.unwrap_or(FreezeScope::All), text))
}

/// The option at the beginning of a text, without its dashes, and the text behind it. Keyboards of phones make one long
/// dash of two.
fn option(text: &str) -> Option<(&str, &str)> {
    let text = text.strip_prefix("--").or_else(|| text.strip_prefix('—'))?;
    let (option, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    Some((option, rest.trim_start()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_options_are_those_of_the_command_line() {
        let all = FreezeScope::All;
        let person = |text: &str| FreezeScope::person(text);
        let routine = || FreezeScope::Routine { name: "report".into() };
        let channel = || FreezeScope::Channel { channel: "telegram".into() };
        for (text, expected) in [
            ("", Some((all.clone(), None))),
            ("the pump leaks", Some((all.clone(), Some("the pump leaks")))),
            ("--reason the pump leaks", Some((all.clone(), Some("the pump leaks")))),
            ("--person telegram:42", Some((person("telegram:42"), None))),
            ("—person 42 because", Some((person("42"), Some("because")))),
            ("--person=42 --reason=too loud", Some((person("42"), Some("too loud")))),
            ("--routine report --reason  late", Some((routine(), Some("late")))),
            ("--channel telegram", Some((channel(), None))),
            ("--channel", None),
            ("--person --reason x", None),
            ("--person 42 --routine report", None),
            ("--everything", None),
            ("--reason", None),
            ("-- x", None),
        ] {
            let expected =
                expected.map(|(scope, detail)| FreezeRequest::Freeze { scope, detail: detail.map(str::to_owned) });
            assert_eq!(freeze(Some(text)), expected, "{text}");
        }
        assert_eq!(freeze(Some("--list")), Some(FreezeRequest::List));
        assert_eq!(thaw(Some("--routine report")), Some(FreezeRequest::Thaw(routine())));
        assert_eq!(thaw(Some("please")), Some(FreezeRequest::Thaw(FreezeScope::All)));
        for text in ["--routine", "--routine report now", "--all"] {
            assert_eq!(thaw(Some(text)), None, "{text}");
        }
    }
}
