//! Settings of stored outputs: the section `[tools.outputs]`.

use serde::{Deserialize, Serialize};

/// Size limits of the long outputs that are stored on disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OutputsConfig {
    /// Most bytes that are stored of one output. The rest is counted.
    #[serde(skip)]
    pub max_bytes: u64,
    /// Most bytes of all stored outputs together; at least [`Self::max_bytes`], at most [`MAX_TOTAL_BYTES`]. Beyond it,
    /// the oldest outputs are removed. An output counts from the moment when it is finished.
    pub max_total_bytes: u64,
}

/// Upper end of [`OutputsConfig::max_total_bytes`]. 1 TiB.
pub const MAX_TOTAL_BYTES: u64 = 1 << 40;

impl Default for OutputsConfig {
    fn default() -> Self {
        Self { max_bytes: 16 * 1024 * 1024, max_total_bytes: 256 * 1024 * 1024 }
    }
}

impl OutputsConfig {
    /// Returns all problems, each beginning with its key. Empty if the settings are valid.
    pub fn validate(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if !(self.max_bytes..=MAX_TOTAL_BYTES).contains(&self.max_total_bytes) {
            problems.push(format!(
                "tools.outputs.max_total_bytes: must be from {} to {MAX_TOTAL_BYTES}, is {}",
                self.max_bytes, self.max_total_bytes
            ));
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bounds_of_outputs_are_checked() {
        assert_eq!(OutputsConfig::default().validate(), Vec::<String>::new());
        assert_eq!(
            OutputsConfig { max_total_bytes: 0, ..OutputsConfig::default() }.validate(),
            ["tools.outputs.max_total_bytes: must be from 16777216 to 1099511627776, is 0",]
        );
    }
}
