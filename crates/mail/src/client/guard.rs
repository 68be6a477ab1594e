//! Mails that are not parsed: those that would cost far more memory or stack than their bytes. Pure.
//!
//! The parser takes a boundary anywhere in a line, has no limit for mails inside mails, and decodes a mail that is
//! encoded, which may hide both. So the bytes are judged before it reads them.

/// Most mails inside a mail. Dropping them recurses.
const MAILS_MAX: usize = 50;

/// Most parts that have parts of their own.
const MULTIPARTS_MAX: usize = 1_000;

/// Places that may begin a part: so many in each mail, and one more for so many bytes.
const PARTS: (usize, usize) = (2_000, 1_000);

/// Why a mail is not parsed; `None`: it may be.
pub(super) fn refusal(mail: &[u8]) -> Option<&'static str> {
    let mails: Vec<usize> = types(mail, b"message", &[b"rfc822", b"global"]).collect();
    let digests = types(mail, b"multipart", &[b"digest"]).count();
    if mails.len() + digests > MAILS_MAX {
        return Some("it has too many mails inside");
    }
    if types(mail, b"multipart", &[b""]).count() > MULTIPARTS_MAX || dashes(mail) > PARTS.0 + mail.len() / PARTS.1 {
        return Some("it has too many parts");
    }
    if has_boundary_of_dashes(mail) {
        return Some("its parts have no proper boundary");
    }
    // The parts of a digest are mails without a type of their own.
    if (digests > 0 && is_encoded(mail)) || mails.iter().any(|at| is_encoded(block(mail, *at))) {
        return Some("a mail inside it is encoded");
    }
    None
}

/// The places of a media type: its slash. Blanks and comments around the slash are allowed, as the parser allows them.
fn types<'a>(mail: &'a [u8], kind: &'a [u8], subs: &'a [&'a [u8]]) -> impl Iterator<Item = usize> + 'a {
    let slashes = mail.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    slashes.filter(move |at| {
        let before = mail.get(..*at).unwrap_or_default().trim_ascii_end();
        let after = mail.get(at + 1..).unwrap_or_default().trim_ascii_start();
        let begins = |word: &[u8]| after.get(..word.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(word));
        let has_kind = before
            .len()
            .checked_sub(kind.len())
            .is_some_and(|from| before.get(from..).is_some_and(|end| end.eq_ignore_ascii_case(kind)));
        let has_sub = subs.iter().any(|sub| begins(sub));
        (has_kind && (has_sub || begins(b"("))) || (has_sub && !subs.contains(&&b""[..]) && before.ends_with(b")"))
    })
}

/// The runs of two dashes and more, wherever they are.
fn dashes(mail: &[u8]) -> usize {
    let pairs = mail.windows(2).enumerate().filter(|(_, pair)| *pair == b"--");
    pairs.filter(|(at, _)| *at == 0 || mail.get(at - 1) != Some(&b'-')).count()
}

/// Whether a boundary consists of dashes alone: each line of dashes then holds many parts.
fn has_boundary_of_dashes(mail: &[u8]) -> bool {
    let word = b"boundary";
    let starts = mail.windows(word.len()).enumerate().filter(|(_, found)| found.eq_ignore_ascii_case(word));
    starts.map(|(at, _)| mail.get(at + word.len()..).unwrap_or_default().trim_ascii_start()).any(|rest| {
        let Some(value) = rest.strip_prefix(b"=") else { return false };
        let value = value.trim_ascii_start();
        let value = value.strip_prefix(b"\"").unwrap_or(value);
        let end = value.iter().position(|byte| *byte != b'-').unwrap_or(value.len());
        end > 0 && value.get(end).is_none_or(|byte| matches!(byte, b'"' | b';') || byte.is_ascii_whitespace())
    })
}

/// The bytes between the blank lines around a place: the head of a part, and perhaps the end of the part before.
fn block(mail: &[u8], at: usize) -> &[u8] {
    let (before, after) = mail.split_at(at.min(mail.len()));
    let is_blank = |window: &[u8]| window.starts_with(b"\n\n") || window == b"\n\r\n";
    let begin = before.windows(3).rposition(is_blank).unwrap_or_default();
    let end = after.windows(3).position(is_blank).map_or(mail.len(), |end| at + end);
    mail.get(begin..end).unwrap_or_default()
}

/// Whether a head has a transfer encoding that the parser may decode: any but those that change nothing, because the
/// parser also reads a name that is itself encoded.
fn is_encoded(bytes: &[u8]) -> bool {
    const PLAIN: [&[u8]; 3] = [b"7bit", b"8bit", b"binary"];
    let word = b"transfer-encoding";
    let names = bytes.windows(word.len()).enumerate().filter(|(_, found)| found.eq_ignore_ascii_case(word));
    names.map(|(at, _)| bytes.get(at + word.len()..).unwrap_or_default().trim_ascii_start()).any(|rest| {
        let Some(value) = rest.strip_prefix(b":").map(<[u8]>::trim_ascii_start) else { return false };
        !PLAIN.iter().any(|plain| value.get(..plain.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(plain)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mail_with_too_many_mails_inside_is_refused() {
        let of = |head: &str, count: usize| refusal(format!("From: a@b\n\n{}", head.repeat(count)).as_bytes());
        for head in ["Content-Type: message/rfc822\n\n", "Content-Type: MESSAGE /\n GLOBAL\n\n", "multipart/digest\n\n"]
        {
            assert_eq!(of(head, MAILS_MAX), None, "{head}");
            assert_eq!(of(head, MAILS_MAX + 1), Some("it has too many mails inside"), "{head}");
        }
        assert_eq!(of("multipart/mixed\n", MULTIPARTS_MAX), None);
        assert_eq!(of("multipart/mixed\n", MULTIPARTS_MAX + 1), Some("it has too many parts"));
    }

    #[test]
    fn boundaries_count_anywhere_in_a_line() {
        let line = "x--b ".repeat(PARTS.0 + 100);
        assert_eq!(refusal(line.as_bytes()), Some("it has too many parts"));
        assert_eq!(refusal(format!("{}\n", "-".repeat(70)).repeat(1_000).as_bytes()), None, "rulers of a text");
        let odd = "Content-Type: multipart/mixed; boundary=\"-\"\n\n";
        assert_eq!(refusal(odd.as_bytes()), Some("its parts have no proper boundary"));
    }

    #[test]
    fn a_mail_inside_that_is_encoded_is_refused() {
        let encoded = Some("a mail inside it is encoded");
        for (mail, expected) in [
            ("A: b\n\n--b\nContent-Type: message/rfc822\nContent-Transfer-Encoding: BASE64\n\nRnJv\n", encoded),
            ("A: b\r\n\r\n--b\r\nContent-Transfer-Encoding: quoted-printable\r\nContent-Type: message/rfc822", encoded),
            ("Content-Type: multipart/digest; boundary=b\n\n--b\nContent-Transfer-Encoding: base64\n\nRnJv", encoded),
            ("A: b\n\n--b\nContent-Type: message/rfc822\n\nContent-Transfer-Encoding: base64\n\nRnJv\n", None),
            (
                "A: b\n\n--b\nContent-Type: message/rfc822\nContent-Transfer-Encoding: =?utf-8?b?YmFzZTY0?=\n\nR",
                encoded,
            ),
            ("A: b\n\n--b\nContent-Type: message/rfc822\nContent-Transfer-Encoding: 7BIT\n\nA: b\n", None),
            ("A: b\n\n--b\nContent-Type: application/pdf\nContent-Transfer-Encoding: base64\n\nRnJv\n", None),
        ] {
            assert_eq!(refusal(mail.as_bytes()), expected, "{mail}");
        }
    }
}
