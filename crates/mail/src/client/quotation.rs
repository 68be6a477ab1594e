//! The sender's own words and the quotation, apart. Pure.
//!
//! Nothing is dropped: what looks like a quotation stays available beside the own words. Lines between two quotations
//! answer them, so that such a text stays as it is.

/// The parts of a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parts {
    /// The sender's own words; with quoted lines among them if there are own words before and after those.
    pub(crate) own: String,
    /// The quotation, without `>`; empty: there is none.
    pub(crate) quoted: String,
    /// Whether `own` has quoted lines.
    pub(crate) is_mixed: bool,
}

/// A line that a mail program writes before the whole text of another mail.
const BEGINS: [&str; 9] = [
    "original message",
    "forwarded message",
    "ursprüngliche nachricht",
    "weitergeleitete nachricht",
    "message d'origine",
    "message transféré",
    "mensaje original",
    "mensaje reenviado",
    "messaggio originale",
];

/// The first words of a head within a mail, in the order that Outlook writes them.
const HEADS: [(&str, &[&str]); 5] = [
    ("from:", &["sent:", "date:", "to:", "subject:"]),
    ("von:", &["gesendet:", "datum:", "an:", "betreff:"]),
    ("de :", &["envoyé :", "date :", "à :", "objet :"]),
    ("de:", &["enviado:", "enviado el:", "envoyé:", "para:", "à:", "asunto:", "objet:"]),
    ("da:", &["inviato:", "data:", "a:", "oggetto:"]),
];

/// Words of a line such as `On 1 Dec 2026, Ann wrote:`.
const WROTE: [&str; 9] =
    ["wrote", "schrieb", "a écrit", "escribió", "ha scritto", "scrisse", "escreveu", "schreef", "skrev"];

/// The first words of such a line.
const OPENS: [&str; 8] = ["on ", "am ", "le ", "el ", "il ", "em ", "op ", "den "];

/// Separates the own words from the quotation.
pub(crate) fn split(text: &str) -> Parts {
    let text = text.replace("\r\n", "\n");
    let lines: Vec<&str> = text.lines().collect();
    let end = (0..lines.len()).find(|at| begins_whole_mail(&lines, *at)).unwrap_or(lines.len());
    let is_quoted = quoted_lines(&lines[..end]);
    let own_at = |at: &usize| !is_quoted[*at] && !lines[*at].trim().is_empty();
    // A signature below a quotation is no answer to it.
    let signature = (0..end).rev().find(|at| lines[*at].trim_end() == "--").unwrap_or(end);
    let (first, last) = ((0..end).find(own_at), (0..signature).rev().find(own_at));
    let is_mixed = first.zip(last).is_some_and(|(first, last)| is_quoted[first..last].contains(&true));
    let kept = |at: &usize| is_mixed || !is_quoted[*at];
    let own = (0..end).filter(kept).map(|at| lines[at]).collect::<Vec<_>>().join("\n");
    let rest = (0..end).filter(|at| !kept(at)).chain(end..lines.len()).map(|at| unmarked(lines[at]));
    Parts { own: own.trim().to_owned(), quoted: rest.collect::<Vec<_>>().join("\n").trim().to_owned(), is_mixed }
}

/// Whether each line is quoted: it begins with `>`, or it introduces such lines.
fn quoted_lines(lines: &[&str]) -> Vec<bool> {
    let mut is_quoted: Vec<bool> = lines.iter().map(|line| line.trim_start().starts_with('>')).collect();
    for at in 1..lines.len() {
        if !is_quoted[at] || is_quoted[at - 1] {
            continue;
        }
        // The line may be wrapped, and an empty one may follow it.
        let before = (0..at).rev().skip_while(|at| lines[*at].trim().is_empty()).take(3).collect::<Vec<_>>();
        let said = |length: usize| before[..length].iter().rev().map(|at| lines[*at]).collect::<Vec<_>>().join(" ");
        let fitting = (1..=before.len()).filter(|length| introduces(&said(*length)));
        let begun = fitting.clone().find(|length| {
            let said = said(*length).trim_start().to_lowercase();
            OPENS.iter().any(|word| said.starts_with(word))
        });
        let length = begun.or_else(|| fitting.min());
        before[..length.unwrap_or_default()].iter().for_each(|at| is_quoted[*at] = true);
    }
    is_quoted
}

/// Whether a text says who has written the quotation that follows.
fn introduces(text: &str) -> bool {
    let text = text.trim().to_lowercase();
    let has_word = WROTE.iter().any(|word| text.contains(word));
    // A line of one's own that ends with "… wrote:" has no date and no address.
    let names_a_mail = text.contains('@') || text.chars().filter(char::is_ascii_digit).count() >= 3;
    text.ends_with(':') && text.len() < 300 && has_word && names_a_mail
}

/// Whether another mail begins with this line, with all that follows.
fn begins_whole_mail(lines: &[&str], at: usize) -> bool {
    let line = lines[at].trim().to_lowercase();
    let is_ruled = line.starts_with("--") && line.ends_with("--");
    let name = line.trim_matches(|c: char| c == '-' || c.is_whitespace());
    if (is_ruled && BEGINS.contains(&name)) || line == "begin forwarded message:" {
        return true;
    }
    let line = line.trim_matches('*');
    let following = |heads: &[&str]| {
        let next = lines[at + 1..].iter().filter(|line| !line.trim().is_empty()).take(5);
        let next = next.map(|line| line.trim().trim_matches('*').to_lowercase());
        next.filter(|line| heads.iter().any(|head| line.starts_with(head))).count() >= 2
    };
    HEADS.iter().any(|(first, others)| line.starts_with(first) && following(others))
}

fn unmarked(line: &str) -> &str {
    let line = line.trim_start().trim_start_matches('>');
    line.strip_prefix(' ').unwrap_or(line)
}

/// The first line that is not empty.
pub(crate) fn first_line(text: &str) -> &str {
    text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
