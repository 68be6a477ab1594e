//! Named points of the code at which a crash test kills the daemon.
//!
//! **For**: `make crash`. `crash_point!("area.place")` is compiled to nothing unless the feature `enabled` is on. With the
//! feature, `BELAY_CRASH=area.place:n` makes the process send SIGKILL to itself at the n-th passage of that point. The
//! driver in `tests/crash` knows every point, and a test compares its table with the sources.
//!
//! **Does not know**: what any point means.

/// Marks a named point. Each name occurs once in the sources.
#[cfg(not(feature = "enabled"))]
#[macro_export]
macro_rules! crash_point {
    ($name:literal) => {};
}

/// Marks a named point. Each name occurs once in the sources.
#[cfg(feature = "enabled")]
#[macro_export]
macro_rules! crash_point {
    ($name:literal) => {
        $crate::passed($name)
    };
}

#[cfg(feature = "enabled")]
pub use armed::passed;

#[cfg(feature = "enabled")]
mod armed {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    use rustix::process::{Signal, getpid, kill_process};

    /// The armed point, and the passages that are left before the kill.
    struct Plan {
        name: String,
        left: AtomicU64,
    }

    /// A global, because points are in every crate, and an argument for each would change the code that is tested.
    static PLAN: OnceLock<Option<Plan>> = OnceLock::new();

    /// Kills the process if `BELAY_CRASH` names this passage of this point. Does nothing if the variable is not set.
    ///
    /// # Panics
    /// The variable is not of the form `NAME:N` with N from 1 on.
    pub fn passed(name: &str) {
        let Some(plan) = PLAN.get_or_init(read) else { return };
        if plan.name == name && plan.left.fetch_sub(1, Ordering::SeqCst) == 1 {
            let _ = kill_process(getpid(), Signal::KILL); // a process may always signal itself
            loop {
                std::thread::park(); // nothing after the point happens, also if the signal arrives late
            }
        }
    }

    fn read() -> Option<Plan> {
        let text = std::env::var("BELAY_CRASH").ok()?;
        let (name, n) = text.split_once(':').expect("BELAY_CRASH is NAME:N");
        let left = n.parse().ok().filter(|n| *n > 0).expect("BELAY_CRASH is NAME:N with N from 1 on");
        Some(Plan { name: name.to_owned(), left: AtomicU64::new(left) })
    }
}
