//! Settings of stored outputs: the section `[tools.outputs]`.

use serde::{Deserialize, Serialize};

/// Size limits of the long outputs that are stored on disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OutputsConfig {
    /// Most bytes that are stored of one output; [`MIN_OUTPUT_BYTES`] to [`MAX_OUTPUT_BYTES`]. The rest is counted.
    pub max_bytes: u64,
    /// Most bytes of all stored outputs together; at least [`Self::max_bytes`], at most [`MAX_TOTAL_BYTES`]. Beyond it,
    /// the oldest outputs are removed. An output counts from the moment when it is finished.
    pub max_total_bytes: u64,
}

/// Lower end of [`OutputsConfig::max_bytes`]. 64 KiB: a result shows this much in any case.
pub const MIN_OUTPUT_BYTES: u64 = 64 * 1024;

/// Upper end of [`OutputsConfig::max_bytes`]. 1 GiB: `read_output` returns 60 KiB at a time, so nobody reads more.
pub const MAX_OUTPUT_BYTES: u64 = 1024 * 1024 * 1024;

/// Upper end of [`OutputsConfig::max_total_bytes`]. 1 TiB.
pub const MAX_TOTAL_BYTES: u64 = 1024 * MAX_OUTPUT_BYTES;

impl Default for OutputsConfig {
    fn default() -> Self {
        Self { max_bytes: 16 * 1024 * 1024, max_total_bytes: 256 * 1024 * 1024 }
    }
}

impl OutputsConfig {
    /// Returns all problems, each beginning with its key. Empty if the settings are valid.
    pub fn validate(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if !(MIN_OUTPUT_BYTES..=MAX_OUTPUT_BYTES).contains(&self.max_bytes) {
            problems.push(format!(
                "tools.outputs.max_bytes: must be from {MIN_OUTPUT_BYTES} to {MAX_OUTPUT_BYTES}, is {}",
                self.max_bytes
            ));
        }
        if !(self.max_bytes..=MAX_TOTAL_BYTES).contains(&self.max_total_bytes) {
            problems.push(format!(
                "tools.outputs.max_total_bytes: must be from {} (max_bytes) to {MAX_TOTAL_BYTES}, is {}",
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
            OutputsConfig { max_bytes: 1, max_total_bytes: 0 }.validate(),
            [
                "tools.outputs.max_bytes: must be from 65536 to 1073741824, is 1",
                "tools.outputs.max_total_bytes: must be from 1 (max_bytes) to 1099511627776, is 0",
            ]
        );
    }
}
