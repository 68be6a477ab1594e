//! The check of the Matrix channel: the homeserver is asked whose account the token is of.

use std::time::Duration;

use belay_matrix::{MatrixSecrets, who_am_i};
use belay_program::causes::words;
use belay_program::net::{is_plain_loopback, plain_client};
use belay_settings::Settings;
use belay_settings::secrets::{Secrets, UNSEEN};
use reqwest::redirect::Policy;
use secrecy::ExposeSecret;

use super::{Finding, State};

/// Longest time to connect to the homeserver.
const CONNECT_LIMIT: Duration = Duration::from_secs(3);

/// Checks the channel; `None` if it is off. A token that cannot be read from here is not tried.
pub(super) async fn account(settings: &Settings, secrets: &Secrets) -> Option<Finding> {
    let config = &settings.channels.matrix;
    let address = config.homeserver.as_deref()?;
    let finding = |state, detail: String| Some(Finding::new("matrix", state, detail));
    if config.admits_nobody() {
        return finding(State::Note, "channels.matrix.allow and operators are empty: nobody may talk to Belay".into());
    }
    let token = secrets.matrix.as_ref().map(|secrets| &secrets.token)?;
    if token.expose_secret() == UNSEEN {
        return finding(State::Note, "the access token is known to the service manager alone; it was not tried".into());
    }
    let http = match client(address) {
        Ok(http) => http,
        Err(error) => return finding(State::Refused, words(&error)),
    };
    match who_am_i(config, MatrixSecrets { token: token.clone() }, http).await {
        Ok(user) => finding(State::Ok, format!("{address} knows the account {user}")),
        Err((true, why)) => finding(State::Refused, format!("{address} refuses the access token: {why}")),
        Err((false, why)) => finding(State::OutOfReach, format!("{address} is out of reach: {why}")),
    }
}

/// A client for a homeserver. It follows no redirect: the access token is for the address of the settings alone.
fn client(address: &str) -> Result<reqwest::Client, reqwest::Error> {
    let builder = if is_plain_loopback(address) { plain_client().no_proxy() } else { reqwest::Client::builder() };
    builder.connect_timeout(CONNECT_LIMIT).redirect(Policy::none()).build()
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn the_token_follows_no_redirect() {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default(); // another test may be first
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = format!("http://{}/", listener.local_addr().expect("an address"));
        let server = async {
            let (mut socket, _) = listener.accept().await.expect("a connection");
            let _ = socket.read(&mut [0; 4096]).await.expect("a request");
            let answer = "HTTP/1.1 302 Found\r\nlocation: /elsewhere\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
            socket.write_all(answer.as_bytes()).await.expect("it is sent");
            listener.accept().await
        };
        let asked = client(&address).expect("a client").get(&address).bearer_auth("secret").send();
        tokio::select! {
            answer = asked => assert_eq!(answer.expect("an answer").status(), 302),
            _ = server => panic!("the redirect was followed"),
        }
    }
}
