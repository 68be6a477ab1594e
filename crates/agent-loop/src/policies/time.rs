//! Measures time: since the beginning, and active time.

use serde::{Deserialize, Serialize};

use super::observation::Observation;

/// Measures time by the clock readings that it is given. It survives a restart, because all readings refer to one fixed
/// point.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Default)]
#[serde(default)]
pub struct Time {
    /// The first reading, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    start: Option<u64>,
    /// The latest reading. An earlier one is ignored.
    newest: u64,
    /// Milliseconds that were not active time.
    paused: u64,
}

impl Time {
    /// Processes an observation.
    pub fn observe(&mut self, seen: &Observation<'_>) {
        match *seen {
            Observation::Clock(now_ms) => {
                self.start.get_or_insert(now_ms);
                self.newest = self.newest.max(now_ms);
            }
            Observation::Paused(ms) => self.paused = self.paused.saturating_add(ms),
            _ => {}
        }
    }

    /// The newest reading. `None`: there was none.
    pub fn newest(&self) -> Option<u64> {
        self.start.map(|_| self.newest)
    }

    /// Milliseconds from the first reading to the newest.
    pub fn wall_ms(&self) -> u64 {
        self.start.map_or(0, |start| self.newest.saturating_sub(start))
    }

    /// Milliseconds from the first reading to the newest, without pauses.
    pub fn active_ms(&self) -> u64 {
        self.wall_ms().saturating_sub(self.paused)
    }

    /// The reading at which this much time has passed since the first one. `None`: there was no reading yet.
    pub fn reading_at_wall(&self, wall_ms: u64) -> Option<u64> {
        Some(self.start?.saturating_add(wall_ms))
    }

    /// The reading at which this much active time has passed, if there are no further pauses.
    pub fn reading_at_active(&self, active_ms: u64) -> Option<u64> {
        self.reading_at_wall(active_ms.saturating_add(self.paused))
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_counts_from_the_first_reading_and_never_runs_backwards() {
        use Observation::{Clock, Other, Paused};
        // Each row: the observations, and the total and active time after them.
        let table: &[(&str, &[Observation<'_>], u64, u64)] = &[
            ("no reading is no time", &[Other, Paused(5)], 0, 0),
            ("the first reading is the start", &[Clock(1_000)], 0, 0),
            ("the newest minus the first", &[Clock(1_000), Clock(1_400), Clock(1_500)], 500, 500),
            ("a clock set back is no time", &[Clock(1_000), Clock(1_500), Clock(200)], 500, 500),
            ("a start that was set back counts from there", &[Clock(1_000), Clock(900)], 0, 0),
            ("a pause is no time at work", &[Clock(0), Clock(900), Paused(600)], 900, 300),
            ("a longer pause than there was time", &[Clock(0), Clock(9), Paused(u64::MAX), Paused(1)], 9, 0),
        ];
        for (why, seen, wall, active) in table {
            let mut time = Time::default();
            seen.iter().for_each(|seen| time.observe(seen));
            assert_eq!((time.wall_ms(), time.active_ms()), (*wall, *active), "{why}");
        }
    }

    #[test]
    fn the_reading_of_a_deadline_moves_with_the_pauses() {
        let mut time = Time::default();
        assert_eq!(time.reading_at_active(600), None);
        time.observe(&Observation::Clock(1_000));
        assert_eq!(time.reading_at_active(600), Some(1_600));
        time.observe(&Observation::Paused(50));
        assert_eq!((time.reading_at_active(600), time.reading_at_wall(600)), (Some(1_650), Some(1_600)));
    }
}
