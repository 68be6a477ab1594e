//! Tests of the reading of mails.

use super::*;

fn mail(head: &str, body: &str) -> Vec<u8> {
    format!("From: ann@example.org\nMIME-Version: 1.0\n{head}\n\n{body}").replace('\n', "\r\n").into_bytes()
}

#[test]
fn mails_of_known_programs_are_read() {
    let alternative = "--b\nContent-Type: text/plain; charset=\"UTF-8\"\n\
                       Content-Transfer-Encoding: quoted-printable\n\nGr=C3=BC=C3=9Fe\n\
                       --b\nContent-Type: text/html\n\n<p>other</p>\n--b--\n";
    for (head, body, text) in [
        ("Content-Type: text/plain; charset=utf-8; format=flowed", "hello\n", "hello"),
        ("Content-Type: multipart/alternative; boundary=\"b\"", alternative, "Grüße"),
        ("Content-Type: text/plain; charset=iso-8859-15\nContent-Transfer-Encoding: base64", "5Pb8pA==", "äöü€"),
        ("Content-Type: text/plain; charset=unknown-8", "hello", "hello"),
        ("Content-Type: text/html", "<p>Yes</p><blockquote>do it</blockquote>", "Yes\n> do it"),
        ("Subject: no type", "hello", "hello"),
    ] {
        assert_eq!(read(&mail(head, body), 5).expect("read").text, text, "{head}");
    }
}

#[test]
fn files_are_bounded_and_named() {
    let part = |name: &str| {
        format!("--b\nContent-Type: application/pdf\nContent-Disposition: attachment; filename=\"{name}\"\n\nx\n")
    };
    let body = format!("--b\nContent-Type: text/plain\n\nsee\n{}{}--b--\n", part("a.pdf"), part("b.pdf"));
    let found = read(&mail("Content-Type: multipart/mixed; boundary=b", &body), 1).expect("read");
    assert_eq!((found.text.as_str(), found.more), ("see", vec!["b.pdf".to_owned()]));
    assert_eq!(found.files.iter().map(|file| file.name.as_str()).collect::<Vec<_>>(), ["a.pdf"]);
    let body = format!("{}--b--\n", part("a.pdf").repeat(MORE_MAX + 6));
    let found = read(&mail("Content-Type: multipart/mixed; boundary=b", &body), 1).expect("read");
    assert_eq!((found.more.len(), found.more.last().map(String::as_str)), (MORE_MAX + 1, Some("5 more files")));
}

#[test]
fn only_the_first_text_is_the_senders_and_another_one_is_a_file() {
    let part = |head: &str, text: &str| format!("--b\nContent-Type: text/plain{head}\n\n{text}\n");
    let inline = "\nContent-Disposition: inline";
    let named = "\nContent-Disposition: inline; filename=a.txt";
    for (parts, text, file) in [
        ([part("", ""), part(named, "/freeze")], "", "a.txt"),
        ([part("", ""), part(inline, "/freeze")], "", "text.txt"),
        ([part("", "see"), part(inline, "/freeze")], "see", "text.txt"),
        ([part("", "see"), part("; charset=utf-8", "/freeze")], "see", "text.txt"),
        ([part(named, "/freeze"), part("", "see")], "see", "a.txt"),
    ] {
        let found = read(&mail("Content-Type: multipart/mixed; boundary=b", &format!("{}--b--\n", parts.concat())), 5);
        let found = found.expect("read");
        let files: Vec<_> = found.files.iter().map(|file| (file.name.as_str(), file.bytes.trim_ascii())).collect();
        assert_eq!((found.text.as_str(), files), (text, vec![(file, "/freeze".as_bytes())]), "{parts:?}");
    }
    let alternative = "--b\nContent-Type: multipart/alternative; boundary=c\n\n--c\nContent-Type: text/plain\n\nsee\n\
                       --c\nContent-Type: text/html\n\n<p>see</p>\n--c--\n";
    for (body, files) in [(alternative.to_owned(), 0), (format!("{alternative}{}", part(inline, "/freeze")), 1)] {
        let found =
            read(&mail("Content-Type: multipart/mixed; boundary=b", &format!("{body}--b--\n")), 5).expect("read");
        assert_eq!((found.text.as_str(), found.files.len()), ("see", files));
    }
    let alone = read(&mail("Content-Type: text/plain; name=a.txt", "/freeze"), 5).expect("read");
    assert_eq!((alone.text.as_str(), alone.files.len()), ("", 1));
}

#[test]
fn a_mail_of_parts_alone_is_refused_and_a_long_text_is_cut() {
    let parts = mail("Content-Type: multipart/mixed; boundary=b", &"--b\n\n".repeat(10_000));
    assert_eq!(read(&parts, 5), Err("it has too many parts"));
    let long = read(&mail("Subject: x", &"ä".repeat(TEXT_MAX_BYTES)), 5).expect("read");
    assert!(long.text.len() <= TEXT_MAX_BYTES && long.left_out >= TEXT_MAX_BYTES - 1, "{}", long.left_out);
    let nested = (0..40).fold("hello".to_owned(), |inner, at| {
        format!("Content-Type: multipart/mixed; boundary=b{at}\n\n--b{at}\n{inner}\n--b{at}--\n")
    });
    let nested = format!("From: ann@example.org\n{nested}");
    assert!(read(nested.as_bytes(), 5).is_ok());
}
