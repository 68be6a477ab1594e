//! The completion of the line editor.

use std::sync::Arc;

use reedline::{ColumnarMenu, Completer, CompletionResult, MenuBuilder, ReedlineEvent, ReedlineMenu, Span, Suggestion};

use super::complete::Completions;

/// The name of the menu of completions.
const MENU: &str = "completions";

/// The completion of the line editor.
pub(super) struct Words(pub(super) Arc<dyn Completions>);

impl Completer for Words {
    fn complete(&mut self, line: &str, pos: usize) -> CompletionResult {
        let typed = &line[..pos];
        let start = typed.char_indices().rfind(|(_, c)| c.is_whitespace()).map_or(0, |(at, c)| at + c.len_utf8());
        let suggestion = |value| Suggestion {
            value,
            span: Span { start, end: pos },
            append_whitespace: true,
            ..Suggestion::default()
        };
        CompletionResult::fresh(self.0.complete(typed).into_iter().map(suggestion).collect::<Vec<_>>())
    }
}

/// The menu below the line.
pub(super) fn menu() -> ReedlineMenu {
    ReedlineMenu::EngineCompleter(Box::new(ColumnarMenu::default().with_name(MENU)))
}

/// What TAB does: completes the word, or shows the menu and goes through it.
pub(super) fn tab() -> ReedlineEvent {
    ReedlineEvent::UntilFound(vec![ReedlineEvent::Menu(MENU.into()), ReedlineEvent::MenuNext])
}
