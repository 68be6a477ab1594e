use secrecy::SecretString;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::super::failures::Failures;
use super::super::heads;
use super::super::imap::Account;
use super::*;
use crate::server::{Security, Server};

/// A server that answers each command by the first rule that fits, and closes the connection at any other command.
/// `{tag}` is the tag of the command.
async fn served(rules: &'static [(&'static str, &'static str)]) -> (Account, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let server = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.expect("a connection");
        let (read, mut write) = socket.split();
        write.write_all(b"* OK ready\r\n").await.expect("a greeting");
        let (mut lines, mut commands) = (BufReader::new(read).lines(), Vec::new());
        while let Ok(Some(line)) = lines.next_line().await {
            let (tag, command) = line.split_once(' ').unwrap_or(("", &line));
            commands.push(command.to_owned());
            let Some((_, answer)) = rules.iter().find(|(begin, _)| command.starts_with(begin)) else { break };
            write.write_all(answer.replace("{tag}", tag).as_bytes()).await.expect("an answer");
        }
        commands
    });
    let host = Server { host: "127.0.0.1".to_owned(), port, security: Security::Plain };
    (Account { server: host, tls: None, user: "ann".to_owned(), password: SecretString::from("secret") }, server)
}

const LOGIN: (&str, &str) = ("LOGIN", "{tag} OK done\r\n");
const ABILITIES: (&str, &str) = ("CAPABILITY", "* CAPABILITY IMAP4rev1 IDLE CONDSTORE\r\n{tag} OK done\r\n");

#[tokio::test]
async fn a_refused_command_is_an_error_and_no_mail_that_is_gone() {
    let (account, _server) = served(&[LOGIN, ABILITIES, ("UID FETCH", "{tag} NO [SERVERBUG] later\r\n")]).await;
    let mut imap = Imap::log_in(&account).await.expect("a login");
    assert!(imap.abilities.idle && imap.abilities.condstore && !imap.abilities.special_use);
    let found = imap.fetch(&[1], "(UID)").await;
    assert!(matches!(found, Err(ImapError::Refused(_))), "{found:?}");
}

#[tokio::test]
async fn news_that_come_behind_a_search_are_not_waited_for() {
    const SEARCH: (&str, &str) = ("UID SEARCH", "* SEARCH\r\n* 2 EXISTS\r\n{tag} OK done\r\n");
    let (account, server) = served(&[LOGIN, ABILITIES, SEARCH]).await;
    let mut imap = Imap::log_in(&account).await.expect("a login");
    assert!(imap.search("UID 2:*").await.expect("a search").is_empty());
    imap.idle(Duration::from_secs(60)).await.expect("no command is sent");
    drop(imap);
    let commands = server.await.expect("the server ends");
    assert!(!commands.iter().any(|command| command.starts_with("IDLE")), "{commands:?}");
}

#[tokio::test]
async fn idle_ends_with_news() {
    const IDLE: (&str, &str) = ("IDLE", "+ idling\r\n* OK Still here\r\n* 3 EXISTS\r\n");
    let (account, _server) = served(&[LOGIN, ABILITIES, IDLE, ("", "A0003 OK done\r\n")]).await;
    let mut imap = Imap::log_in(&account).await.expect("a login");
    imap.idle(Duration::from_secs(60)).await.expect("news");
}

#[tokio::test]
async fn a_refused_password_and_a_lost_connection_differ() {
    let (account, _server) = served(&[("LOGIN", "{tag} NO [AUTHENTICATIONFAILED] wrong\r\n")]).await;
    let refused = Imap::log_in(&account).await.err();
    assert!(matches!(refused, Some(ImapError::Login(_))), "{refused:?}");
    let (account, _server) = served(&[("LOGIN", "{tag} NO [UNAVAILABLE] too many connections\r\n")]).await;
    let passing = Imap::log_in(&account).await.err();
    assert!(matches!(passing, Some(ImapError::Lost(_))), "{passing:?}");
    let (account, _server) = served(&[]).await;
    let lost = Imap::log_in(&account).await.err();
    assert!(matches!(lost, Some(ImapError::Lost(_))), "{lost:?}");
}

#[test]
fn a_quoted_text_ends_no_command() {
    assert_eq!(quoted("a\"b\\c\r\nd"), "\"a\\\"b\\\\cd\"");
}

#[test]
fn a_larger_mail_has_more_time() {
    assert_eq!(mail_deadline(0), MAIL_DEADLINE);
    assert_eq!(mail_deadline(BYTES_PER_S * 600), MAIL_DEADLINE + Duration::from_secs(600));
}

#[tokio::test]
async fn a_head_that_is_refused_does_not_hold_up_the_others() {
    const GOOD: (&str, &str) = ("UID FETCH 5 ", "* 1 FETCH (UID 5 RFC822.SIZE 9)\r\n{tag} OK done\r\n");
    const RULES: &[(&str, &str)] = &[LOGIN, ABILITIES, GOOD, ("UID FETCH", "{tag} NO [SERVERBUG] no\r\n")];
    let failures = Failures::default();
    let mut found = None;
    for _ in 0..4 {
        let (account, _server) = served(RULES).await;
        let mut imap = Imap::log_in(&account).await.expect("a login");
        assert!(found.is_none());
        found = heads::fetch(&mut imap, &failures, 1, &[5, 6], "(UID RFC822.SIZE)").await.ok();
    }
    assert_eq!(found.expect("the other head").iter().map(|mail| mail.uid).collect::<Vec<_>>(), [5]);
}
