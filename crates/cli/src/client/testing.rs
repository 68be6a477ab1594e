//! A daemon of answers for tests.

#![allow(clippy::unwrap_used)]

use belay_program::environment::Environment;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;

use super::Client;
use crate::args::ClientArgs;

/// A client of a daemon that gives these answers, one for each request, and the paths of its requests.
pub(super) async fn answering(answers: Vec<String>) -> (Client, impl Future<Output = Vec<String>> + Send + 'static) {
    answering_with(answers.into_iter().map(|body| (200, body)).collect()).await
}

/// The same with the status of each answer.
pub(super) async fn answering_with(
    answers: Vec<(u16, String)>,
) -> (Client, impl Future<Output = Vec<String>> + Send + 'static) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let serve = async move {
        let mut asked = Vec::new();
        for (status, body) in answers {
            let mut stream = BufReader::new(listener.accept().await.unwrap().0);
            let mut line = String::new();
            stream.read_line(&mut line).await.unwrap();
            asked.push(line.split(' ').nth(1).unwrap().to_owned());
            while line.trim() != "" {
                line.clear();
                stream.read_line(&mut line).await.unwrap();
            }
            let head = format!("HTTP/1.1 {status} -\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
            stream.write_all((head + &body).as_bytes()).await.unwrap();
        }
        asked
    };
    let client = Client::find(&ClientArgs { url: Some(url), json: false }, &Environment::default()).unwrap();
    (client, serve)
}
