//! Shows an approval request: its blocks, a table of its facts, and its sentences, with a bar before each line.

use belay_text::markdown::inlined;

use crate::span::{Colour, Span, Style, painted, width};
use crate::wrap::{chopped, wrapped};
use crate::{Look, code, rendered};

/// Lines of a file that are shown at first.
const FIRST_LINES: usize = 40;

/// The bar before each line, and the indentation of blocks.
const BAR: &str = "│ ";
const INDENT: &str = "  ";

/// Widest name of a fact that aligns the values of the others.
const NAME_MAX: usize = 24;

/// Narrowest terminal with a bar and with indentation.
const NARROW: usize = 24;

/// The lines of an approval request, which is Markdown of Belay. `more`: how a person sees the rest of a long file, of
/// which the first lines are shown then; `None`: all lines are shown. The call itself is always shown whole.
///
/// A person decides by each character of a block and of a fact, so these are no Markdown: nothing in them is styled or
/// left out.
pub fn question(text: &str, look: Look, more: Option<&str>) -> Vec<String> {
    let text = belay_text::escaped(text);
    let bar = if look.width < NARROW { "" } else { BAR };
    let inner = Look { width: look.width.saturating_sub(width(bar)).max(1), ..look };
    let mut lines = Vec::new();
    let parts = parts(&text);
    let whole = shown_whole(&parts);
    for (at, part) in parts.into_iter().enumerate() {
        lines.extend(match part {
            Part::Block(language, body) => block(&body, language, inner, more.filter(|_| at >= whole)),
            Part::Facts(facts) => table(&facts, inner),
            Part::Prose(prose) => rendered(&prose.join("\n"), inner),
            Part::Blank => vec![String::new()],
        });
    }
    let style = Style { colour: Some(Colour::Yellow), ..Style::default() };
    let bar = if look.colour && !bar.is_empty() {
        painted(&[Span::new(bar.trim_end(), style)], true) + " "
    } else {
        bar.to_owned()
    };
    lines.into_iter().map(|line| format!("{bar}{line}").trim_end().to_owned()).collect()
}

/// Whether [`question`] leaves lines out if it may.
pub fn is_folded(text: &str) -> bool {
    let text = belay_text::escaped(text);
    let parts = parts(&text);
    let is_long = |part: &Part<'_>| matches!(part, Part::Block(_, body) if body.len() > FIRST_LINES + 1);
    parts[shown_whole(&parts)..].iter().any(is_long)
}

/// The number of parts that are shown whole: up to the facts behind the first block. That block is the call itself, and
/// a yes approves each line of it. A later block is the content of a file.
fn shown_whole(parts: &[Part<'_>]) -> usize {
    let call = parts.iter().position(|part| matches!(part, Part::Block(..))).unwrap_or(parts.len());
    let facts = parts[call..].iter().position(|part| matches!(part, Part::Facts(_)));
    facts.map_or(parts.len(), |facts| call + facts)
}

/// A part of an approval request.
enum Part<'a> {
    Block(&'a str, Vec<&'a str>),
    Facts(Vec<(&'a str, &'a str)>),
    Prose(Vec<&'a str>),
    Blank,
}

/// The parts of a text, in their order. A block ends with the ticks that have begun it, and no line before them acts.
fn parts(text: &str) -> Vec<Part<'_>> {
    let (mut parts, mut fence) = (Vec::new(), "");
    for line in text.lines() {
        let ticks = &line[..line.len() - line.trim_start_matches('`').len()];
        let begins =
            fence.is_empty() && ticks.len() > 2 && line[ticks.len()..].bytes().all(|b| b.is_ascii_alphanumeric());
        match parts.last_mut() {
            Some(Part::Block(_, body)) if !fence.is_empty() => {
                if line == fence {
                    fence = "";
                } else {
                    body.push(line);
                }
            }
            _ if begins => {
                fence = ticks;
                parts.push(Part::Block(&line[ticks.len()..], Vec::new()));
            }
            last => match (last, line.strip_prefix("- ").and_then(|fact| fact.split_once(": "))) {
                (Some(Part::Facts(facts)), Some(fact)) => facts.push(fact),
                (_, Some(fact)) => parts.push(Part::Facts(vec![fact])),
                (_, None) if line.is_empty() => parts.push(Part::Blank),
                (Some(Part::Prose(prose)), None) => prose.push(line),
                (_, None) => parts.push(Part::Prose(vec![line])),
            },
        }
    }
    parts
}

/// The lines of a block. A line that is too long goes on in the next one, below its beginning.
fn block(body: &[&str], language: &str, look: Look, more: Option<&str>) -> Vec<String> {
    let left_out = match more {
        Some(_) if body.len() > FIRST_LINES + 1 => body.len() - FIRST_LINES,
        _ => 0,
    };
    let indent = if look.width < NARROW { "" } else { INDENT };
    let shown = body[..body.len() - left_out].join("\n");
    let columns = look.width.saturating_sub(width(indent)).max(1);
    let mut lines = Vec::new();
    for spans in code::lines(&shown, language) {
        for spans in chopped(&spans, columns) {
            lines.push(format!("{indent}{}", painted(&spans, look.colour)));
        }
    }
    if let Some(more) = more.filter(|_| left_out > 0) {
        let note = wrapped(&[Span::dim(format!("… {left_out} more lines: {more} shows all"))], columns);
        lines.extend(note.iter().map(|spans| format!("{indent}{}", painted(spans, look.colour))));
    }
    lines
}

/// The facts as a table. A long value goes on below its beginning.
fn table(facts: &[(&str, &str)], look: Look) -> Vec<String> {
    let names = facts.iter().map(|(name, _)| width(name_of(name)));
    let (column, gap) = match look.width {
        0..NARROW => (0, 0),
        _ => (names.filter(|width| *width <= NAME_MAX).max().unwrap_or(0).min(look.width / 2), 2),
    };
    let mut lines = Vec::new();
    for (name, value) in facts {
        let name = name_of(name);
        let values = value_lines(value, look.width.saturating_sub(column + gap).max(1));
        let pad = |used: usize| " ".repeat((column + gap).saturating_sub(used));
        let mut values = values.into_iter();
        let first = values.next().unwrap_or_default();
        if width(name) > column {
            lines.extend(wrapped(&[Span::dim(name)], look.width).iter().map(|line| painted(line, look.colour)));
            lines.push(format!("{}{}", pad(0), painted(&first, look.colour)));
        } else {
            let dim = painted(&[Span::dim(name)], look.colour);
            lines.push(format!("{dim}{}{}", pad(width(name)), painted(&first, look.colour)));
        }
        lines.extend(values.map(|line| format!("{}{}", pad(0), painted(&line, look.colour))));
    }
    lines
}

/// The lines of a value, which breaks between words. A value whose spaces a line would lose keeps its quotes and breaks
/// anywhere: the path `deploy.sh ` is not `deploy.sh`.
fn value_lines(value: &str, columns: usize) -> Vec<Vec<Span>> {
    let plain = inlined(value);
    if plain.trim() != plain || plain.contains("  ") {
        chopped(&[Span::plain(value)], columns)
    } else {
        wrapped(&[Span::plain(plain)], columns)
    }
}

/// The name of a fact. That of a field is emphasised; a name that could act as markup is a code span.
fn name_of(name: &str) -> &str {
    inlined(name.strip_prefix("**").and_then(|name| name.strip_suffix("**")).unwrap_or(name))
}

#[cfg(test)]
mod tests;
