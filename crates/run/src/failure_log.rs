//! The level at which a failed write is logged: a lane or a work that has moved to another owner is no failure.

/// Logs a failed read or write at this level, or at `info` if another owner continues the work
/// ([`StoreError::is_elsewhere`](belay_protocol::StoreError::is_elsewhere)). The fields and the message are those of the
/// macros of `tracing`.
///
/// ```
/// let error = belay_protocol::StoreError::Unavailable("the disk is full".into());
/// belay_run::log_failure!(warn, error, %error, "the handle of a call could not be stored");
/// ```
#[macro_export]
macro_rules! log_failure {
    ($level:ident, $error:expr, $($rest:tt)+) => {
        if $error.is_elsewhere() {
            ::tracing::info!($($rest)+)
        } else {
            ::tracing::$level!($($rest)+)
        }
    };
}
