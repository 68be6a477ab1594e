//! Context sizes and prices of known models, from a small table that is compiled in.

use belay_protocol::Price;
use serde::Deserialize;
use url::Url;

use crate::config::LlmConfig;
use crate::http::is_loopback;

const TABLE: &str = include_str!("prices.toml");

/// Assumed context of a model on this machine. 8192: the default of most local servers.
const LOCAL_CONTEXT_TOKENS: u64 = 8192;

/// Assumed context of any other model. 128 000: all current hosted models have at least that.
const HOSTED_CONTEXT_TOKENS: u64 = 128_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    /// The day on which the table was last compared with the providers' pages.
    #[allow(dead_code, reason = "for people who read the file; its presence is checked")]
    checked: String,
    model: Vec<Row>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    /// The model's name without a date or another suffix.
    name: String,
    context_tokens: u64,
    price: Price,
}

fn find(model: &str) -> Option<Row> {
    // Aggregators prefix the name with the vendor: `openai/gpt-6-sol`.
    let model = model.rsplit('/').next().unwrap_or(model).to_lowercase();
    let table: Table = toml::from_str(TABLE).expect("the table is compiled in, and a test reads it");
    table.model.into_iter().find(|row| model.strip_prefix(&row.name).is_some_and(is_snapshot))
}

/// Whether the rest of a name only selects a snapshot of the same model: a date or number of at least three digits,
/// `latest`, `preview`. Anything else (`-pro`, `.1`) is another model with another price.
fn is_snapshot(rest: &str) -> bool {
    let Some(rest) = rest.strip_prefix('-') else { return rest.is_empty() };
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    digits >= 3 || rest.starts_with("latest") || rest.starts_with("preview")
}

/// Context size and price: configured, otherwise known, otherwise assumed. A server on this machine costs nothing.
pub(crate) fn context_and_price(config: &LlmConfig, base: &Url, model: &str) -> (u64, Option<Price>) {
    let local = is_loopback(base);
    let known = if local { None } else { find(model) };
    let assumed = if local { LOCAL_CONTEXT_TOKENS } else { HOSTED_CONTEXT_TOKENS };
    let free = Price { input: 0, cached_input: None, output: 0 };
    let context = config.context_tokens.or(known.as_ref().map(|row| row.context_tokens)).unwrap_or(assumed);
    let price = config.price_usd.map(|usd| usd.exact()).or(if local { Some(free) } else { known.map(|row| row.price) });
    (context, price)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_name_stands_for_its_snapshots_and_for_no_other_model() {
        for (model, input) in [
            ("gpt-4.1-mini-2025-04-14", Some(400_000)),
            ("gpt-4.1", Some(2_000_000)),
            ("openai/gpt-6-sol", Some(2_000_000)),
            ("claude-sonnet-4-6", Some(3_000_000)),
            ("Claude-Haiku-4-5-20251001", Some(1_000_000)),
            ("gemini-2.5-flash-lite", Some(100_000)),
            ("gemini-3.1-pro-preview", Some(2_000_000)),
            ("gpt-5.5-pro", None),
            ("gpt-5.9", None),
            ("claude-sonnet-4-7", None),
            ("smollm2", None),
        ] {
            assert_eq!(find(model).map(|row| row.price.input), input, "{model}");
        }
    }

    #[test]
    fn no_row_is_there_twice_or_out_of_proportion() {
        let table: Table = toml::from_str(TABLE).unwrap();
        for row in &table.model {
            assert_eq!(table.model.iter().filter(|other| other.name == row.name).count(), 1, "{}", row.name);
            assert!(row.price.input <= row.price.output, "{}", row.name);
            assert!(row.price.cached_input.is_none_or(|cached| cached <= row.price.input), "{}", row.name);
            assert!((8_000..=2_100_000).contains(&row.context_tokens), "{}", row.name);
        }
    }

    #[test]
    fn settings_go_before_the_table_and_this_machine_is_free() {
        let hosted = Url::parse("https://api.openai.com/v1").unwrap();
        let local = Url::parse("http://127.0.0.1:8080/v1").unwrap();
        let price = Price { input: 1_000_000, cached_input: None, output: 2_000_000 };
        let usd = crate::config::PriceUsd { input: 1.0, cached_input: None, output: 2.0 };
        let set = LlmConfig { price_usd: Some(usd), context_tokens: Some(5000), ..LlmConfig::default() };
        let unset = LlmConfig::default();
        assert_eq!(context_and_price(&set, &local, "gpt-4.1"), (5000, Some(price)));
        assert_eq!(context_and_price(&unset, &hosted, "gpt-4.1").0, 1_047_576);
        assert_eq!(context_and_price(&unset, &hosted, "unheard-of"), (128_000, None));
        let (context, price) = context_and_price(&unset, &local, "gpt-4.1");
        assert_eq!((context, price.map(|p| p.input)), (8192, Some(0)));
    }
}
