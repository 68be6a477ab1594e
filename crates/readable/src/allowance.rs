//! Bounds what a page lets the reader write without having written it: empty cells, and digits of numbers.

/// Bytes that may still be written. Each byte of the page earns one, so that no page costs more than its length.
#[derive(Default)]
pub(super) struct Allowance(usize);

impl Allowance {
    /// Adds the bytes that were read.
    pub(super) fn earn(&mut self, bytes: usize) {
        self.0 = self.0.saturating_add(bytes);
    }

    /// Takes up to `wanted` pieces of `size` bytes each. Returns the number of pieces.
    pub(super) fn take(&mut self, wanted: usize, size: usize) -> usize {
        let taken = wanted.min(self.0 / size);
        self.0 -= taken * size;
        taken
    }
}
