//! The figures of a run in words: how full the context is, its tokens and its cost.

/// How full the context of a model is, from 0 to 100 percent.
pub fn context(percent: u64) -> String {
    match percent {
        0 => "context below 1 %".to_owned(),
        percent => format!("context {percent} %"),
    }
}

/// A number of tokens, shortened from 10,000 on.
pub fn tokens(count: u64) -> String {
    match count {
        0..10_000 => format!("{count} tokens"),
        10_000..1_000_000 => format!("{} k tokens", count / 1000),
        _ => format!("{:.1} M tokens", count as f64 / 1e6),
    }
}

/// An amount in millionths of a US dollar, with four digits behind the point below one dollar.
pub fn dollars(micro_usd: u64) -> String {
    let digits = if micro_usd < 1_000_000 { 4 } else { 2 };
    format!("${:.digits$}", micro_usd as f64 / 1e6)
}

/// The known figures, the most important first. Without tokens or without a cost (0), that figure is left out; the
/// share of the context is in percent.
pub fn known(context_percent: Option<u64>, tokens_used: u64, cost_micro_usd: u64) -> Vec<String> {
    let tokens = (tokens_used > 0).then(|| tokens(tokens_used));
    let cost = (cost_micro_usd > 0).then(|| dollars(cost_micro_usd));
    [context_percent.map(context), tokens, cost].into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short_and_unknown_ones_are_left_out() {
        for (context, tokens, cost, expected) in [
            (Some(12), 1234, 3000, "context 12 % · 1234 tokens · $0.0030"),
            (Some(0), 12_345, 2_500_000, "context below 1 % · 12 k tokens · $2.50"),
            (None, 1_250_000, 0, "1.2 M tokens"),
            (None, 0, 0, ""),
        ] {
            assert_eq!(known(context, tokens, cost).join(" · "), expected);
        }
    }
}
