//! The current prices of the models: a snapshot that can be replaced while calls are in progress.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use belay_protocol::Price;

use crate::candidates::candidates;
use crate::config::{EnvKeys, LlmConfig};
use crate::prices::context_and_price;
use crate::target::Target;

/// The prices of the candidates, by [`Candidate::name`](belay_protocol::Candidate::name). Clones share one list.
#[derive(Clone, Debug, Default)]
pub struct PriceList(Arc<ArcSwap<HashMap<String, Price>>>);

impl PriceList {
    /// Makes the list from these settings: configured prices, otherwise known ones. The settings are those of
    /// [`resolve`](crate::resolve). The rehearsal has no price, and neither has a candidate with invalid settings.
    pub fn of(config: &LlmConfig, keys: &EnvKeys) -> Self {
        let list = Self::default();
        list.replace(config, keys);
        list
    }

    /// Uses the prices of these settings from the next answer on. Candidates keep their names and their order; other
    /// changes in the settings are ignored.
    pub fn replace(&self, config: &LlmConfig, keys: &EnvKeys) {
        let priced = candidates(config, keys).into_iter().filter_map(|candidate| {
            let target = Target::new(&candidate.config, &candidate.keys).ok()?;
            let model = candidate.config.model.as_deref().unwrap_or(target.entry.default_model);
            let (_, price) = context_and_price(&candidate.config, target.base.as_ref()?, model);
            Some((candidate.name, price?))
        });
        self.0.store(Arc::new(priced.collect()));
    }

    /// The price of a candidate.
    pub(crate) fn get(&self, name: &str) -> Option<Price> {
        self.0.load().get(name).copied()
    }
}

#[cfg(test)]
impl From<HashMap<String, Price>> for PriceList {
    fn from(prices: HashMap<String, Price>) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(prices)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::PriceUsd;

    #[test]
    fn a_price_that_was_replaced_is_the_price_of_the_same_candidate() {
        let usd = |output| PriceUsd { input: 1.0, cached_input: None, output };
        let price = |output| Some(usd(output).exact());
        let config = |output| LlmConfig {
            provider: "openai".into(),
            base_url: Some("https://models.example.org/v1".into()),
            model: Some("some".into()),
            price_usd: Some(usd(output)),
            ..LlmConfig::default()
        };
        let keys = EnvKeys::default();
        let list = PriceList::of(&config(2.0), &keys);
        let (shared, name) = (list.clone(), &candidates(&config(2.0), &keys)[0].name);
        assert_eq!(list.get(name), price(2.0));
        shared.replace(&config(3.0), &keys);
        assert_eq!((list.get(name), list.get("another")), (price(3.0), None));
        shared.replace(&LlmConfig { price_usd: None, ..config(3.0) }, &keys);
        assert_eq!(list.get(name), None);
    }
}
