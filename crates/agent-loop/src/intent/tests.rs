//! Texts that announce a tool call, and texts that do not.

use belay_testkit::clock::processor_time;
use proptest::prelude::*;

use super::announces_tool_use;

const ANNOUNCEMENTS: &[&str] = &[
    // English.
    "Let me search for that.",
    "let me search the web",
    "LET ME CHECK THE LOGS",
    "I'll fetch the page now.",
    "I’ll fetch the page now.",
    "I will look up the weather in Paris.",
    "I'm going to check the database.",
    "I’m going to check the database.",
    "I am going to query the API.",
    "Let me quickly look it up.",
    "Let me take a look at the file.",
    "I'll go ahead and read the file.",
    "Sure! Let me read `notes.txt` for you.",
    "I'll run `cargo test` to see.",
    "Let me run the tests first.",
    "I'll create the file now.",
    "I'll write the results to the file.",
    "I will update the configuration and restart.",
    "Let me delete the old entry.",
    "I'll remove the file from the workspace.",
    "I'll look into the issue.",
    "I'll use the search tool to find the latest release.",
    "Let me use the calculator tool.",
    "Let me use `search` to find it.",
    "I'll open the browser and search for it.",
    "Let me start by searching the documentation.",
    "I need to check the current price.",
    "I'm searching the web now.",
    "One moment while I check the calendar.",
    "Paris is lovely in spring. Let me check the weather there.",
    "Here is the plan:\n\n- First, I'll search the archive\n- then report",
    "Let me check if you have any meetings today.",
    "I'll now\nsearch the web for it.",
    "Let me find the answer:\n```\nsome code\n```",
    "> what is the time\n\nLet me check the clock.",
    "To answer that, I'll retrieve the latest figures.",
    "I'll check a.txt and b.txt.",
    // German.
    "Ich werde im Web danach suchen.",
    "Lass mich kurz nachsehen.",
    "Lassen Sie mich kurz nachsehen.",
    "Ich suche jetzt danach.",
    "Ich schaue kurz nach.",
    "Zuerst prüfe ich die Datei.",
    // French.
    "Je vais chercher cette information.",
    "Laissez-moi vérifier le fichier.",
    "Permettez-moi de consulter la documentation.",
    // Spanish.
    "Voy a buscar esa información.",
    "Déjame verificarlo.",
    "Permíteme consultar el archivo.",
    // Chinese.
    "让我搜索一下。",
    "好的，我来查一下最新的天气。",
    "我将读取这个文件。",
    // Japanese.
    "調べてみます。",
    "まずファイルを確認します。",
    "少々お待ちください。ただいま検索します。",
    // Russian.
    "Сейчас поищу.",
    "Позвольте мне проверить файл.",
    "Я посмотрю в интернете.",
];

const OTHERS: &[&str] = &[
    "",
    "391",
    "The search found nothing.",
    // Actions that need no tool.
    "Let me explain how search works.",
    "Let me know if you want me to search.",
    "Let me think about how to check this.",
    "Let me summarize what I found.",
    "Let me clarify: you can search there.",
    "Let me describe how to run the tests.",
    "Let me help you find a restaurant.",
    "Let me understand the question before we check anything.",
    "Let me break down how to fetch it.",
    "Let me outline a search strategy.",
    "Let me walk you through the check.",
    "Let me provide the query.",
    "Let me suggest a search term.",
    "Let me elaborate on the fetch call.",
    "Let me start by explaining the search.",
    "Let me check my understanding.",
    "Let me get back to you.",
    // Offers, conditions, promises.
    "I'll be happy to search for you.",
    "I’ll be happy to help. Tell me what to search.",
    "I will be glad to check that.",
    "I'll let you know what I find.",
    "I'll search for it once you confirm.",
    "If you like, I'll search the web.",
    "I'll check it tomorrow.",
    "I'd search the archive.",
    "From now on I'll check twice.",
    "I could check the logs.",
    // Questions to the person.
    "Shall I search?",
    "Should I check the file for you?",
    "Do you want me to look it up?",
    "I'll search the web, okay?",
    // Past.
    "I searched the web and found nothing.",
    "I've checked the file.",
    "I was going to check, but there was no need.",
    // Refusals.
    "I need to search the web for that, which I cannot do.",
    "I won't delete the file.",
    // Another subject.
    "Please let me check out first, she said.",
    "You will find the file there.",
    "They'll search the web.",
    "If you let me search, I could tell.",
    // The words are in two sentences.
    "I'll be brief. You can search the web yourself.",
    "I will say this. People check their mail too often.",
    // Text instead of a tool.
    "I'll write a function to read the file:",
    "I'll create a plan for you.",
    "I'll use a loop to find the maximum.",
    "Let me check: 2 + 2 is 4.",
    // Code.
    "```\nLet me search for that.\n```",
    "~~~text\nI'll fetch the page.\n~~~",
    "Done.\n\n    Let me search for that.",
    "Done.\n\n\tI'll fetch it.",
    "The prompt was `let me search the web`.",
    "``I'll check `x` now`` is the text.",
    "```\nunclosed fence\nLet me search.",
    // Quotations.
    "He said \"let me search the web\" and left.",
    "He said “let me search the web” and left.",
    "He said ‘I’ll check the file’ and left.",
    "He said 'let me search the web' and left.",
    "Sie sagte „Lass mich nachsehen“ und ging.",
    "Il a dit « je vais chercher » puis rien.",
    "> Let me search for that.",
    "> I'll check\n> the file.\n\nThat is what you wrote.",
    // Other languages.
    "Ich werde es dir erklären.",
    "Ich werde gerne für dich suchen.",
    "Wenn du willst, werde ich danach suchen.",
    "Soll ich nachsehen?",
    "Ich habe nachgesehen.",
    "Je vais vous expliquer comment chercher.",
    "Je peux chercher si vous voulez.",
    "J'ai vérifié le fichier.",
    "Voy a explicarte cómo buscar.",
    "Puedo buscar si quieres.",
    "He buscado el archivo.",
    "让我解释一下如何搜索。",
    "需要我搜索吗？",
    "我查过了。",
    "この関数は値を検索します。",
    "必要であれば調べてみます。",
    "検索しました。",
    "検索しましょうか？",
    "Если хотите, я поищу.",
    "Я проверил файл.",
    "Позвольте мне объяснить, как искать.",
];

#[test]
fn an_announcement_is_recognised() {
    let missed: Vec<_> = ANNOUNCEMENTS.iter().filter(|text| !announces_tool_use(text)).collect();
    assert!(missed.is_empty(), "{missed:#?}");
}

#[test]
fn what_is_no_announcement_is_let_through() {
    let wrong: Vec<_> = OTHERS.iter().filter(|text| announces_tool_use(text)).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn an_announcement_stays_one_among_other_sentences() {
    for text in ANNOUNCEMENTS {
        for around in [format!("Good question.\n\n{text}\n\nMore below."), format!("{text}\n\n> quoted\n\n```\nx\n```")]
        {
            assert!(announces_tool_use(&around), "{around:?}");
        }
    }
}

#[test]
fn a_long_text_of_beginnings_takes_linear_time() {
    for beginning in ["let me ", "while i moment ", "if i'll use ", "让我", "ich werde ", "i'm now "] {
        let text = beginning.repeat(200_000 / beginning.len());
        let before = processor_time();
        announces_tool_use(&text);
        let used = processor_time() - before;
        // Quadratic time would take minutes. The limit leaves a margin for a slow machine.
        assert!(used.as_secs() < 20, "{beginning:?} took {used:?}");
    }
}

/// Lines of prose in which no fence begins.
fn prose_line() -> impl Strategy<Value = String> {
    prop_oneof![
        proptest::sample::select([ANNOUNCEMENTS, OTHERS].concat()).prop_map(|text| text
            .lines()
            .next()
            .unwrap_or_default()
            .replace(['`', '~'], "")),
        "[ -_a-z{|}а-яぁ-ん“”‘’«»]{0,40}",
        proptest::sample::select(vec!["", "I'll now", "let me", "search the web.", "and check it", "> said", "- item"])
            .prop_map(String::from),
    ]
}

proptest! {
    #[test]
    fn a_fenced_block_between_two_lines_changes_nothing(
        lines in proptest::collection::vec(prose_line(), 0..6),
        code in proptest::collection::vec(prose_line(), 0..3),
        fence in proptest::sample::select(vec!["```", "~~~", "````", "```rust", "   ```"]),
        at in any::<proptest::sample::Index>(),
    ) {
        let mut with = lines.clone();
        let at = at.index(lines.len() + 1);
        let close = fence.trim_end_matches("rust");
        with.insert(at, format!("{fence}\n{}\n{close}", code.join("\n")));
        prop_assert_eq!(announces_tool_use(&with.join("\n")), announces_tool_use(&lines.join("\n")), "{:?}", with);
    }

    #[test]
    fn any_text_at_all_is_judged(text in any::<String>()) {
        announces_tool_use(&text);
    }

    #[test]
    fn any_mixture_of_marks_and_announcements_is_judged(
        parts in proptest::collection::vec(
            proptest::sample::select(vec![
                "`", "``", "```", "\n", "~~~", "'", "\"", "“", "”", "«", "»", "‘", "’", "I'll ", "let me ", "search", " ",
                "\u{FFFC}", "é", "让我", "查一下", "。", "\u{301}", "🗝", "\t", "> ", ".", "?",
            ]),
            0..60,
        )
    ) {
        announces_tool_use(&parts.concat());
    }
}
