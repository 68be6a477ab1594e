//! `belay console`: the address of the pages for a browser, with a one-time link if a sign-in is needed.

use std::time::Duration;

use belay_program::environment::Environment;
use belay_program::exit::{Exit, Failure};
use belay_program::output::{Output, note};
use serde_json::Value as Json;
use url::Url;

use super::{Client, text};
use crate::args::ConsoleArgs;

/// Prints the address. With a link, a note on standard error tells for how long it is valid.
pub async fn console(args: &ConsoleArgs, env: &Environment, out: Output<'_>) -> Result<Exit, Failure> {
    let client = Client::find(&args.client, env)?;
    let mut link = client.post(&["api", "v1", "console", "links"], None, Duration::ZERO).await?;
    let url = text(&link, "/url").to_owned();
    let url = match &args.base {
        Some(base) => at(base, &url)?,
        None if url.starts_with('/') => {
            let words = "the daemon listens at no address (gateway.listen): name the one of your proxy with --base";
            return Err(Failure::new(Exit::WrongUsage, words));
        }
        None => url,
    };
    if args.client.json {
        link["url"] = Json::String(url);
        out.json(&link);
        return Ok(Exit::Fine);
    }
    out.line(&url);
    if url.contains('#') {
        note("The link signs one browser in as an operator, once, within 5 minutes. Keep it to yourself.");
    }
    Ok(Exit::Fine)
}

/// The address of the console at another base.
///
/// # Errors
/// The base is not the address of a site.
fn at(base: &str, url: &str) -> Result<String, Failure> {
    // A fragment or a query would swallow the link; a user would be sent to the site.
    let is_site = |base: &Url| {
        let is_plain = base.username().is_empty() && base.password().is_none();
        matches!(base.scheme(), "http" | "https")
            && base.has_host()
            && is_plain
            && base.query().is_none()
            && base.fragment().is_none()
    };
    let parsed = Url::parse(base).ok().filter(is_site);
    let base = parsed.ok_or_else(|| {
        Failure::new(
            Exit::WrongUsage,
            format!("--base: {base:?} is not an address such as https://belay.example, without a user, `?` and `#`"),
        )
    })?;
    let link = url.split_once('#').map_or_else(String::new, |(_, link)| format!("#{link}"));
    Ok(format!("{}/{link}", base.as_str().trim_end_matches('/')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_base_keeps_the_link() {
        for (base, url, expected) in [
            ("https://belay.example", "http://127.0.0.1:8787/#link=a", Some("https://belay.example/#link=a")),
            ("https://h.example/belay/", "/#link=a", Some("https://h.example/belay/#link=a")),
            ("http://[::1]:8", "http://127.0.0.1:8787/", Some("http://[::1]:8/")),
            ("belay.example", "/", None),
            ("ftp://belay.example", "/", None),
            ("https://belay.example/#here", "/#link=a", None),
            ("https://belay.example/#", "/#link=a", None),
            ("https://belay.example/?a=b", "/#link=a", None),
            ("https://me@belay.example", "/#link=a", None),
            ("https://:secret@belay.example", "/#link=a", None),
        ] {
            assert_eq!(at(base, url).ok().as_deref(), expected, "{base}");
        }
    }
}
