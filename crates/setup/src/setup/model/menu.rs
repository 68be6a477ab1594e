//! Numbered lists to choose from.

/// Most lines of one list.
const SHOWN_MAX: usize = 20;

/// A choice: its name, and a remark.
pub(super) struct Choice<'a> {
    pub(super) name: &'a str,
    pub(super) note: String,
}

impl<'a> Choice<'a> {
    /// A choice without a remark.
    pub(super) fn plain(name: &'a str) -> Self {
        Self { name, note: String::new() }
    }
}

/// The lines of the choices whose name contains `part`, each with its number among all, and how many more there are.
pub(super) fn lines(choices: &[Choice<'_>], part: &str) -> String {
    let found: Vec<_> = choices.iter().zip(1_usize..).filter(|(choice, _)| choice.name.contains(part)).collect();
    let column = found.iter().map(|(choice, _)| choice.name.chars().count()).max().unwrap_or(0);
    let line = |(choice, number): &(&Choice<'_>, usize)| {
        let Choice { name, note } = choice;
        format!("{number:>4}  {name:column$}  {note}").trim_end().to_owned()
    };
    let mut lines: Vec<String> = found.iter().take(SHOWN_MAX).map(line).collect();
    if let more @ 1.. = found.len().saturating_sub(SHOWN_MAX) {
        lines.push(format!("      and {more} more"));
    }
    lines.join("\n")
}

/// The name that a typed text means: a number of the list, unless a choice has this name; else the text itself.
pub(super) fn meant(typed: &str, choices: &[Choice<'_>]) -> String {
    let is_name = choices.iter().any(|choice| choice.name == typed);
    let number = typed.parse::<usize>().ok().filter(|_| !is_name).and_then(|number| number.checked_sub(1));
    number.and_then(|at| choices.get(at)).map_or_else(|| typed.to_owned(), |choice| choice.name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_is_made_by_its_number_or_its_name() {
        let choices =
            [Choice { name: "anthropic", note: "key found".into() }, Choice::plain("openai"), Choice::plain("1")];
        assert_eq!(lines(&choices, ""), "   1  anthropic  key found\n   2  openai\n   3  1");
        assert_eq!(lines(&choices, "open"), "   2  openai");
        for (typed, name) in
            [("2", "openai"), ("openai", "openai"), ("1", "1"), ("4", "4"), ("0", "0"), ("http://h", "http://h")]
        {
            assert_eq!(meant(typed, &choices), name);
        }
        let many: Vec<String> = (0..25).map(|n| format!("m{n}")).collect();
        let many: Vec<_> = many.iter().map(|name| Choice::plain(name)).collect();
        assert!(lines(&many, "").ends_with("\n  20  m19\n      and 5 more"), "{}", lines(&many, ""));
    }
}
