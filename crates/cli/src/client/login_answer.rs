//! The answer of the browser to a login.

use std::time::Duration;

use belay_program::exit::{Exit, Failure};
use belay_program::output::note;
use serde_json::Value as Json;
use tokio::io::{AsyncBufReadExt, BufReader, stdin};
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep_until};

use super::login_page::{Page, Visits};
use super::{number, text};

/// Waits for the answer of the browser, at the listener or at standard input. Also returns the page that waits for words.
pub(super) async fn answer(begun: &Json, listener: Option<TcpListener>) -> Result<(String, Option<Page>), Failure> {
    let state = state_of(text(begun, "/url")).unwrap_or_default();
    let end = Instant::now() + Duration::from_secs(number(begun, "/expires_in_s"));
    let (mut lines, mut is_typing) = (BufReader::new(stdin()).lines(), true);
    let mut visits = Visits::new(listener);
    loop {
        tokio::select! {
            (query, page) = visits.next() => {
                if state_of(&query).as_ref() == Some(&state) {
                    return Ok((query, Some(page)));
                }
                page.show("This is not the answer that Belay waits for.").await;
            }
            line = lines.next_line(), if is_typing => match line {
                Ok(Some(line)) if state_of(&line).as_ref() == Some(&state) => return Ok((line, None)),
                Ok(Some(line)) if line.trim().is_empty() => {}
                Ok(Some(_)) => note("this is not the answer to this login: copy the whole address out of the browser"),
                Ok(None) | Err(_) => is_typing = false,
            },
            () = sleep_until(end) => {
                return Err(Failure::new(Exit::OutOfReach, "nobody has logged in in time").next("begin again"));
            }
        }
    }
}

/// The parameter `state` of an address or a query.
fn state_of(address: &str) -> Option<String> {
    let query = address.trim().split_once('?').map_or(address.trim(), |(_, query)| query);
    let query = query.split_once('#').map_or(query, |(query, _)| query);
    let mut pairs = url::form_urlencoded::parse(query.as_bytes());
    pairs.find(|(key, _)| key == "state").map(|(_, value)| value.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_is_found_in_what_people_paste() {
        for (address, state) in [
            ("http://127.0.0.1:7/callback?code=a&state=b%20c#x", Some("b c")),
            ("  code=a&state=b ", Some("b")),
            ("https://as/authorize?state=", Some("")),
            ("http://127.0.0.1:7/callback", None),
            ("", None),
        ] {
            assert_eq!(state_of(address).as_deref(), state, "{address}");
        }
    }
}
