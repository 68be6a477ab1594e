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

    use super::*;
    use crate::client::testing::answering;

    /// Reads a list of `limit` rows from a daemon that gives these answers, and returns it with the queries.
    async fn listed(limit: u32, answers: Vec<Json>) -> (Result<Json, Failure>, Vec<String>) {
        let (client, serve) = answering(answers.iter().map(Json::to_string).collect()).await;
        tokio::join!(client.list(&["runs"], &[("status", "failed")], "runs", limit), serve)
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
