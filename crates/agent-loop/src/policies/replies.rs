//! Detects an answer that equals, or nearly equals, earlier answers.

use std::collections::VecDeque;

use belay_protocol::{Finding, StopReason};
use serde::{Deserialize, Serialize};

use super::digest::Digest;
use super::observation::Observation;
use super::shingles::Shingles;

/// Answers that are stored. 16: repetitions occur within a few answers.
const MAX_TEXTS: usize = 16;

/// Characters of an answer that are stored for the evidence. One more than a quote shows, so that the quote shows that
/// it was cut.
const QUOTE_CHARS: usize = belay_protocol::stop::QUOTE_MAX_CHARS + 1;

/// Compares each answer with the ones before it in this request.
///
/// An answer is judged only when the loop continues after it without a tool call. So the answer that ends a run is
/// never judged, nor is a text before a call. Blank answers, and answers that a guardrail has handled, are ignored.
/// (OpenManus calls an agent stuck when the newest text equals two earlier ones. Near duplicates are our addition.)
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default)]
#[serde(default)]
pub struct Replies {
    /// Judged answers, oldest first.
    #[serde(skip_serializing_if = "VecDeque::is_empty")]
    texts: VecDeque<Text>,
    /// The newest answer, while a call may still follow it.
    #[serde(skip_serializing_if = "Option::is_none")]
    open: Option<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    found: Option<Finding>,
}

/// The stored form of an answer.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
struct Text {
    /// Digest of its words in order. White space does not matter.
    digest: u64,
    shingles: Shingles,
    quote: String,
}

impl Replies {
    /// Processes an observation. A repetition needs `equal` earlier answers that are equal, or one more if they are
    /// only nearly equal. Returns whether an answer was judged.
    pub fn observe(&mut self, equal: u64, seen: &Observation<'_>) -> bool {
        match seen {
            Observation::ToolCall { .. } => {
                self.open = None;
                false
            }
            Observation::Step | Observation::Text(_) | Observation::User(_) => self.judge(equal),
            Observation::Assistant { text, nudged } => {
                let judged = self.judge(equal);
                if !nudged && !text.trim().is_empty() {
                    self.open = Some(Text::of(text));
                }
                judged
            }
            _ => false,
        }
    }

    fn judge(&mut self, equal: u64) -> bool {
        let Some(newest) = self.open.take() else { return false };
        let same = self.texts.iter().filter(|text| text.digest == newest.digest).count() as u64;
        let near = self.texts.iter().filter(|text| text.is_near(&newest)).count() as u64;
        let finding = |count, threshold, kind: &str| {
            Finding::new(StopReason::RepeatedReplies, "repeated_replies", count, threshold)
                .quoting(&newest.quote)
                .with("similarity", kind)
        };
        self.found = if same >= equal {
            Some(finding(same, equal, "equal"))
        } else if near > equal {
            Some(finding(near, equal + 1, "near"))
        } else {
            None
        };
        if self.texts.len() == MAX_TEXTS {
            self.texts.pop_front();
        }
        // The quote of an earlier answer is never shown.
        self.texts.push_back(Text { quote: String::new(), ..newest });
        true
    }

    /// The current repetition. It remains until a judged answer repeats nothing.
    pub fn found(&self) -> Option<&Finding> {
        self.found.as_ref()
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

impl Text {
    fn of(text: &str) -> Self {
        let mut digest = Digest::new();
        text.split_whitespace().for_each(|word| digest.text(word));
        let quote = text.trim_start().chars().take(QUOTE_CHARS).collect();
        Self { digest: digest.end(), shingles: Shingles::of(text), quote }
    }

    /// Whether the answers are equal or nearly equal. The digests also match answers that are too short for shingles.
    fn is_near(&self, other: &Self) -> bool {
        self.digest == other.digest || self.shingles.is_near(&other.shingles)
    }
}

#[cfg(test)]
mod tests {
    use belay_protocol::Arguments;
    use proptest::prelude::*;

    use super::*;

    /// Observes an answer in a step of its own, after which the loop continues. Returns whether there is a repetition.
    fn say(replies: &mut Replies, text: &str) -> bool {
        replies.observe(2, &Observation::Assistant { text, nudged: false });
        replies.observe(2, &Observation::Step);
        replies.found().is_some()
    }

    fn check(texts: &[&str], expected: Option<(u64, u64, &str)>) {
        let mut replies = Replies::default();
        texts.iter().for_each(|text| {
            say(&mut replies, text);
        });
        let found = replies.found().map(|f| (f.count, f.threshold, f.facts["similarity"].as_str().expect("a word")));
        assert_eq!(found, expected, "{texts:?}");
    }

    const PLAN: &str = "I will now look at the configuration of the server, then change the port, then start it again, \
        and at the end I will look whether it answers on the new port as it should.";

    #[test]
    fn the_third_equal_answer_is_a_repetition() {
        check(&["Done.", "Done.", "Done."], Some((2, 2, "equal")));
        check(&["Done.", "Done."], None);
        check(&["Done.", "Next.", "Done.", "More.", "Done."], Some((2, 2, "equal")));
        check(&["Done.", " Done.\n", "Done."], Some((2, 2, "equal")));
        check(&["It is  done.", "It is done.", "It\nis done."], Some((2, 2, "equal")));
        check(&["Done.", "done.", "DONE."], None);
        check(&["Done.", "Done.", "Done.", "Something else."], None);
        check(&["", " ", ""], None);
    }

    #[test]
    fn the_fourth_answer_that_differs_in_a_few_words_is_a_repetition() {
        let near = |word: &str| PLAN.replace("as it should", word);
        let [a, b, c, d] = ["as it should", "As it should", "as it must", "as it ought"].map(near);
        check(&[&a, &b, &c, &d], Some((3, 3, "near")));
        check(&[&a, &b, &c], None);
        let other =
            "The port is 8080 in the file and 9090 in the unit, so one of the two has to be changed by hand first.";
        check(&[&a, other, &b, other, &c, &d], Some((3, 3, "near")));
        // Many words differ.
        let far =
            |n: usize| format!("{PLAN} {}", ["alpha beta gamma delta epsilon zeta eta theta iota "; 4][..n].concat());
        check(&[&far(0), &far(1), &far(3), &far(2)], None);
        // Short answers are never nearly equal: they must be equal.
        check(&["Page 1 is done.", "Page 2 is done.", "Page 3 is done.", "Page 4 is done."], None);
        // Reports on a batch differ in one of a dozen words.
        let report = |n| format!("File {n} of 300 is converted and checked. I go on with the next one in the list.");
        let reports: Vec<String> = (0..8).map(report).collect();
        check(&reports.iter().map(String::as_str).collect::<Vec<_>>(), None);
    }

    #[test]
    fn scripts_without_spaces_are_compared_by_characters() {
        let base = "我现在先看一下服务器的配置文件,然后修改端口,再重新启动服务,最后检查新的端口是否能够正常地响应请求,如果不行就再来一次";
        let [a, b, c, d] = ["。", "!", "?", "…"].map(|end| format!("{base}{end}"));
        check(&[&a, &b, &c, &d], Some((3, 3, "near")));
        let other = "这个文件里写的端口是八零八零,而单元文件里写的是九零九零,所以必须先把其中一个改掉,否则服务不会在预期的端口上启动的";
        check(&[&a, other, &b, other], None);
    }

    #[test]
    fn only_a_text_after_which_the_loop_went_on_without_a_call_is_judged() {
        let arguments = Arguments::parse("{}");
        let call = Observation::ToolCall { name: "t", arguments: &arguments, spec: None };
        let text = Observation::Assistant { text: "Let me look.", nudged: false };
        let nudged = Observation::Assistant { text: "Let me look.", nudged: true };
        let table: &[(&str, &[Observation<'_>], bool)] = &[
            ("steps", &[text, Observation::Step, text, Observation::Step, text, Observation::Step], true),
            ("the last one may be the end", &[text, Observation::Step, text, Observation::Step, text], false),
            ("one after another", &[text, text, text, text], true),
            (
                "a message of the person",
                &[text, Observation::User("go on"), text, Observation::User("go on"), text, Observation::User("go on")],
                true,
            ),
            (
                "the next answer streams",
                &[text, Observation::Step, text, Observation::Step, text, Observation::Text("L")],
                true,
            ),
            (
                "each with a call",
                &[text, call, Observation::Step, text, call, Observation::Step, text, call, Observation::Step],
                false,
            ),
            (
                "one with a call",
                &[text, Observation::Step, text, call, Observation::Step, text, Observation::Step],
                false,
            ),
            ("nudged", &[nudged, Observation::Step, nudged, Observation::Step, nudged, Observation::Step], false),
        ];
        for (why, seen, expected) in table {
            let mut replies = Replies::default();
            seen.iter().for_each(|seen| {
                replies.observe(2, seen);
            });
            assert_eq!(replies.found().is_some(), *expected, "{why}");
        }
    }

    #[test]
    fn after_a_recovery_the_next_equal_answer_is_the_first() {
        let mut replies = Replies::default();
        assert!((0..3).any(|_| say(&mut replies, "Done.")));
        replies.clear();
        assert_eq!([0; 3].map(|_| say(&mut replies, "Done.")), [false, false, true]);
    }

    #[test]
    fn the_state_stays_small() {
        let mut replies = Replies::default();
        for n in 0..40 {
            let words: Vec<String> = (0..400).map(|i| format!("w{}", n * 1_000 + i)).collect();
            say(&mut replies, &words.join(" "));
        }
        let stored = serde_json::to_string(&replies).expect("serialises");
        assert!(stored.len() < 12_000, "{} bytes", stored.len());
        assert_eq!(serde_json::from_str::<Replies>(&stored).expect("reads back"), replies);
    }

    const UNRELATED: &[&str] = &[
        "The build fails since the linker is missing; I install it and try once more with the same flags.",
        "There are twelve invoices in the folder, and three of them have no date on their first page.",
        "Please tell me which of the two accounts is meant: the one in euro or the one in francs.",
        "The train at 9:14 arrives before the meeting, the next one a quarter of an hour too late.",
        "I have written the summary to notes.md and left out what was said about salaries.",
        "Der Test schlägt fehl, weil die Uhr des Rechners um eine Stunde nachgeht; ich stelle sie.",
        "这个函数没有处理空列表的情况,我先补上检查,再把测试重新跑一遍看看结果如何。",
        "No such table: the migration has not been run on this machine, so I run it first.",
        "Both patches touch the same line, so the second one has to be rebased by hand.",
        "Done with chapter four; chapter five needs the figures that the printer has not sent.",
    ];

    proptest! {
        #[test]
        fn unrelated_answers_in_any_order_are_no_repetition(order in Just(UNRELATED.to_vec()).prop_shuffle()) {
            let mut replies = Replies::default();
            for _ in 0..2 {
                for text in &order {
                    prop_assert!(!say(&mut replies, text), "{text}");
                }
            }
        }
    }
}
