//! Reads lists that are longer than one page of the API.

use belay_program::exit::Failure;
use serde_json::Value as Json;

use super::Client;
use crate::args::LIST_MAX;

impl Client {
    /// Reads the first `limit` rows of a list, page by page. The answer is that of the last page, with the rows of all
    /// pages in the field `rows`.
    ///
    /// # Errors
    /// The daemon does not answer, or refuses the query.
    pub(crate) async fn list(
        &self,
        path: &[&str],
        query: &[(&str, &str)],
        rows: &str,
        limit: u32,
    ) -> Result<Json, Failure> {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let left = (limit as usize).saturating_sub(found.len());
            let page_limit = left.min(LIST_MAX as usize).to_string();
            let mut of_page = query.to_vec();
            of_page.push(("limit", &page_limit));
            of_page.extend(after.as_deref().map(|after| ("after", after)));
            let mut page = self.get(path, &of_page).await?;
            if let Some(Json::Array(more)) = page.get_mut(rows).map(Json::take) {
                found.extend(more);
            }
            // A page of hidden rows is short, or empty, although another one follows.
            after = page.get("next").and_then(Json::as_str).map(str::to_owned);
            if after.is_none() || found.len() >= limit as usize {
                if let Some(field) = page.get_mut(rows) {
                    *field = found.into();
                }
                return Ok(page);
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
    use tokio::net::TcpListener;

    use super::*;
    use crate::args::ClientArgs;
    use belay_program::environment::Environment;

    /// Reads a list of `limit` rows from a daemon that gives these answers, and returns it with the queries.
    async fn listed(limit: u32, answers: Vec<Json>) -> (Result<Json, Failure>, Vec<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let server = tokio::spawn(async move {
            let mut asked = Vec::new();
            for answer in answers {
                let mut stream = BufReader::new(listener.accept().await.unwrap().0);
                let mut line = String::new();
                stream.read_line(&mut line).await.unwrap();
                asked.push(line.split(' ').nth(1).unwrap().to_owned());
                while line.trim() != "" {
                    line.clear();
                    stream.read_line(&mut line).await.unwrap();
                }
                let body = answer.to_string();
                let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
                stream.write_all((head + &body).as_bytes()).await.unwrap();
            }
            asked
        });
        let client = Client::find(&ClientArgs { url: Some(url), json: false }, &Environment::default()).unwrap();
        let list = client.list(&["runs"], &[("status", "failed")], "runs", limit).await;
        (list, server.await.unwrap())
    }

    #[tokio::test]
    async fn pages_are_read_until_the_limit_or_the_end() {
        let rows = |count: usize| vec![json!({}); count];
        let (list, asked) =
            listed(700, vec![json!({"runs": rows(500), "next": "a&b"}), json!({"runs": rows(200), "next": "c"})]).await;
        assert_eq!(list.unwrap(), json!({"runs": rows(700), "next": "c"}));
        assert_eq!(asked, ["/runs?status=failed&limit=500", "/runs?status=failed&limit=200&after=a%26b"]);

        let (list, asked) = listed(20, vec![json!({"runs": [], "next": "a"}), json!({"runs": [1, 2]})]).await;
        assert_eq!(list.unwrap(), json!({"runs": [1, 2]}), "an empty page is not the last one");
        assert_eq!(asked, ["/runs?status=failed&limit=20", "/runs?status=failed&limit=20&after=a"]);
    }

    #[tokio::test]
    async fn a_list_of_one_page_is_read_at_once() {
        let (list, asked) = listed(2, vec![json!({"runs": [1, 2], "next": "a"})]).await;
        assert_eq!((list.unwrap(), asked.len()), (json!({"runs": [1, 2], "next": "a"}), 1));
    }
}
