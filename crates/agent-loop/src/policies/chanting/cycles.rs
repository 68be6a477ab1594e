//! Counts how often lines repeat, one by one or in a cycle of a few.

/// Longest cycle, in lines.
pub(super) const CYCLE: usize = 4;

/// The last lines of a text, as they are compared.
#[derive(Clone, Debug, PartialEq, Default)]
pub(super) struct Cycles<L> {
    /// Newest first; the default where there is none.
    last: [L; CYCLE],
    /// For each distance from 1 to [`CYCLE`], the number of lines in a row that are equal to the line at this distance
    /// before them. The index is the distance less 1.
    equal: [u32; CYCLE],
}

impl<L: Copy + Default + PartialEq> Cycles<L> {
    /// Adds a line.
    pub(super) fn push(&mut self, line: L) {
        for (equal, other) in self.equal.iter_mut().zip(self.last) {
            *equal = if other == line { equal.saturating_add(1) } else { 0 };
        }
        self.last.rotate_right(1);
        self.last[0] = line;
    }

    /// The shortest period of a cycle that has enough lines in a row: `enough` of that period.
    pub(super) fn period(&self, enough: impl Fn(usize) -> u32) -> Option<usize> {
        (1..=CYCLE).find(|period| self.equal[period - 1] >= enough(*period))
    }

    /// The last lines, newest first.
    pub(super) fn last(&self) -> &[L; CYCLE] {
        &self.last
    }

    /// Begins to count anew. The last lines stay.
    pub(super) fn count_anew(&mut self) {
        self.equal = [0; CYCLE];
    }
}
