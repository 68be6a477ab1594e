//! Shows a working run in place of the line editor, until a person types or the run has ended.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use belay_terminal::{LiveArea, pasted};
use crossterm::event::{
    self, DisableBracketedPaste, EnableBracketedPaste, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers,
};
use crossterm::execute;
use crossterm::terminal::{disable_raw_mode, enable_raw_mode};

use super::board::{Board, Phase};
use super::size::size;

/// The time between two frames, and the longest delay of a piece of text. 10 ms: an answer should look as if it were typed.
const FRAME: Duration = Duration::from_millis(10);

/// Why the run is no longer watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// Nothing works any more.
    Idle,
    /// A person begins to type, with this character.
    Typed(char),
    /// A person begins with a pasted text.
    Pasted(String),
    /// Ctrl-O.
    Editor,
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-D.
    Quit,
    /// The prompt has to end.
    Stopped,
}

/// Shows the run. Waits for the beginning of one for as long as `patience`. The cursor must be at the beginning of a line,
/// and is so afterwards.
///
/// # Errors
/// The terminal cannot be read or written.
pub(super) fn watch(board: &Board, stop: &AtomicBool, patience: Duration) -> io::Result<Left> {
    enable_raw_mode()?;
    execute!(io::stdout(), EnableBracketedPaste)?;
    board.enter(Phase::Watching);
    let left = draw(board, stop, patience);
    board.enter(Phase::Editing);
    execute!(io::stdout(), DisableBracketedPaste)?;
    disable_raw_mode()?;
    left
}

fn draw(board: &Board, stop: &AtomicBool, patience: Duration) -> io::Result<Left> {
    let (begun, mut area, mut last) = (Instant::now(), LiveArea::default(), Vec::new());
    let (mut is_separate, mut has_lines) = (false, false);
    loop {
        let (columns, rows) = size();
        let frame = board.frame(rows);
        let mut out = String::new();
        if !frame.lines.is_empty() || frame.picture != last {
            out.push_str(&area.erase(columns));
            if !std::mem::replace(&mut is_separate, true) {
                out.push_str("\r\n"); // between what was typed and the answer
            }
            has_lines |= !frame.lines.is_empty();
            frame.lines.iter().for_each(|line| out.extend([line.as_str(), "\r\n"]));
            out.push_str(&area.draw(&frame.picture));
            last = frame.picture;
        }
        let left = match (stop.load(Ordering::Relaxed), frame.is_live) {
            (true, _) => Some(Left::Stopped),
            (false, false) if has_lines || begun.elapsed() >= patience => Some(Left::Idle),
            (false, _) => None,
        };
        let left = match left {
            Some(left) => Some(left),
            None => {
                write(&out)?;
                out.clear();
                if event::poll(FRAME)? { key(&event::read()?) } else { None }
            }
        };
        if let Some(left) = left {
            out.push_str(&area.erase(columns));
            write(&out)?;
            return Ok(left);
        }
    }
}

fn write(out: &str) -> io::Result<()> {
    if out.is_empty() {
        return Ok(());
    }
    let mut stdout = io::stdout().lock();
    stdout.write_all(out.as_bytes())?;
    stdout.flush()
}

/// What a key or a paste asks for. Other keys have no effect while a run is shown.
fn key(event: &Event) -> Option<Left> {
    if let Event::Paste(text) = event {
        return Some(Left::Pasted(pasted(text)));
    }
    let Event::Key(KeyEvent { code: KeyCode::Char(c), modifiers, kind: KeyEventKind::Press, .. }) = event else {
        return None;
    };
    match (c, modifiers.contains(KeyModifiers::CONTROL), modifiers.contains(KeyModifiers::ALT)) {
        ('o', true, _) => Some(Left::Editor),
        ('c', true, _) => Some(Left::Interrupt),
        ('d', true, _) => Some(Left::Quit),
        (_, false, false) => Some(Left::Typed(*c)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_begin_a_line_and_ctrl_c_and_d_are_requests() {
        let press = |code, modifiers| key(&Event::Key(KeyEvent::new(code, modifiers)));
        for (code, modifiers, expected) in [
            (KeyCode::Char('a'), KeyModifiers::NONE, Some(Left::Typed('a'))),
            (KeyCode::Char('A'), KeyModifiers::SHIFT, Some(Left::Typed('A'))),
            (KeyCode::Char('c'), KeyModifiers::CONTROL, Some(Left::Interrupt)),
            (KeyCode::Char('d'), KeyModifiers::CONTROL, Some(Left::Quit)),
            (KeyCode::Char('o'), KeyModifiers::CONTROL, Some(Left::Editor)),
            (KeyCode::Char('x'), KeyModifiers::ALT, None),
            (KeyCode::Enter, KeyModifiers::NONE, None),
        ] {
            assert_eq!(press(code, modifiers), expected, "{code:?}");
        }
        assert_eq!(key(&Event::Resize(1, 1)), None);
        let pasted = Some(Left::Pasted("one\ntwo\nthree".into()));
        assert_eq!(key(&Event::Paste("one\r\ntwo\rthree".into())), pasted);
    }
}
