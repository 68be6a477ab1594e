//! How busy other programs keep the machine while a script is measured.

use std::fs::read_to_string;

use anyhow::{Context, Result};

/// The largest share of the processors that other programs may use while counts that depend on the load are compared.
pub(crate) const TOO_BUSY: f64 = 0.25;

/// Processor time so far, in ticks of the kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// Of all processors, the idle time included.
    capacity: u64,
    /// Of all processors, without the idle time.
    used: u64,
    /// Of this process and of its children that have ended.
    own: u64,
}

impl Load {
    /// Source: Linux, proc_stat(5) and proc_pid_stat(5).
    pub(crate) fn now() -> Result<Self> {
        let of = |file: &str| read_to_string(file).with_context(|| file.to_owned());
        Self::parse(&of("/proc/stat")?, &of("/proc/self/stat")?).context("processor times have another form")
    }

    fn parse(machine: &str, process: &str) -> Option<Self> {
        let numbers = |text: &str| text.split_whitespace().map(|n| n.parse().ok()).collect::<Option<Vec<u64>>>();
        // user, nice, system, idle, iowait, irq, softirq, steal. Guests are a part of user.
        let times = numbers(machine.lines().next()?.strip_prefix("cpu ")?)?;
        let capacity = times.iter().take(8).sum();
        let idle: u64 = times.get(3..5)?.iter().sum();
        // The name of the process may contain anything.
        let own: Vec<_> = process.rsplit_once(") ")?.1.split(' ').skip(11).take(4).collect();
        Some(Self { capacity, used: capacity - idle, own: numbers(&own.join(" "))?.iter().sum() })
    }

    /// The share of the processors that other programs have used since.
    pub(crate) fn of_others(self, now: Self) -> f64 {
        let since = |now: u64, then: u64| now.saturating_sub(then) as f64;
        let others = since(now.used, self.used) - since(now.own, self.own);
        (others / since(now.capacity, self.capacity).max(1.0)).clamp(0.0, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_neither_idle_nor_our_own_is_the_load_of_others() {
        let load = |machine: &str, process: &str| Load::parse(machine, process).expect("times");
        let first = load("cpu  100 0 50 800 50 0 0 0 0 0\ncpu0 1", "7 (a) b) S 1 7 7 0 -1 0 1 1 1 1 10 5 20 5 20 0");
        let then = load("cpu  160 0 70 900 70 0 0 0 0 0\ncpu0 1", "7 (a) b) S 1 7 7 0 -1 0 1 1 1 1 20 10 30 10 20 0");
        assert_eq!(first.of_others(then), (80.0 - 30.0) / 200.0);
        assert_eq!(first.of_others(first), 0.0);
        assert!(Load::parse("cpu", "").is_none());
        Load::now().expect("this system has both files");
    }
}
