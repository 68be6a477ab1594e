//! Estimates the tokens of a request, corrected by the provider's figures for earlier requests.

use belay_protocol::ModelRequest;

/// Minimum tokens of a request that the correction learns from. 500, about a page: below this, framing and rounding
/// outweigh the text.
const TELLING_TOKENS: u64 = 500;

/// Bounds of the correction. An estimate by bytes is not further off for any script; a provider's figure beyond them is
/// considered wrong.
const BOUNDS: (f64, f64) = (0.5, 3.0);

/// The estimated tokens of a request: prompt, tools, messages and the form of the answer.
pub fn tokens_of(request: &ModelRequest<'_>) -> u64 {
    let messages: u64 = request.messages.iter().map(|message| message.estimated_tokens()).sum();
    let prompt = request.prompt.text.len() as u64 / 4;
    let tools = request.tools.map_or(0, |tools| tools.described_bytes() as u64 / 4);
    let format = request.format.map_or(0, |format| format.schema.to_string().len() as u64 / 4);
    messages + prompt + tools + format
}

/// Ratio of the provider's token count to the local estimate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Calibration(f64);

impl Default for Calibration {
    /// No correction.
    fn default() -> Self {
        Self(1.0)
    }
}

impl Calibration {
    /// Learns from a request with these estimated and counted tokens. The newest request replaces earlier ones.
    pub fn learn(&mut self, estimated: u64, counted: u64) {
        if estimated >= TELLING_TOKENS && counted > 0 {
            self.0 = (counted as f64 / estimated as f64).clamp(BOUNDS.0, BOUNDS.1);
        }
    }

    /// The provider's count for this many estimated tokens.
    pub fn counted(self, estimated: u64) -> u64 {
        (estimated as f64 * self.0) as u64
    }

    /// The local estimate for this many tokens of the provider.
    pub fn estimated(self, counted: u64) -> u64 {
        (counted as f64 / self.0) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_telling_request_counts_within_bounds() {
        let mut calibration = Calibration::default();
        for (estimated, counted, of_thousand) in [
            (0, 0, 1000),
            (499, 1497, 1000),
            (1000, 1500, 1500),
            (1000, 0, 1500),
            (10_000, 90_000, 3000),
            (u64::MAX, 1, 500),
            (2000, 2000, 1000),
        ] {
            calibration.learn(estimated, counted);
            assert_eq!(calibration.counted(1000), of_thousand, "{estimated} {counted}");
            assert_eq!(calibration.estimated(of_thousand), 1000);
        }
    }
}
