//! Logs: for people on a terminal, as JSON Lines everywhere else. They go to stderr, or to a file if there is a prompt.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::ops::RangeInclusive;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use belay_program::clock::SystemClock;
use belay_program::environment::Environment;
use belay_program::paths::private_directory;
use belay_protocol::Clock;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tracing::{Metadata, Subscriber};
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::filter::{EnvFilter, FilterFn, filter_fn};
use tracing_subscriber::fmt::format::{Writer, debug_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt, reload};

use crate::collector::Signal;
use crate::otlp::LogLayer;

/// Libraries that log normal events, and their highest level unless the filter names them. `genai` warns at the first
/// chunk of each stream; `rusqlite_migration` logs at each first start; `rmcp` logs messages of MCP servers, which may
/// be secret, and its callers report its failures.
const NOISY: &[(&str, &str)] = &[("genai", "off"), ("rusqlite_migration", "warn"), ("rmcp", "off")];

/// A library that logs the password and the texts of mails at the level TRACE. No filter turns it on.
const SECRET: &str = "async_imap";

/// Length at which the next start begins a new log file. 4 MiB: tens of thousands of turns.
const LOG_MAX_BYTES: u64 = 4 * 1024 * 1024;

/// Possible values of `telemetry.metrics_interval_s`.
const METRICS_INTERVALS_S: RangeInclusive<u64> = 1..=86_400;

/// The section `[telemetry]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TelemetryConfig {
    /// The log filter: `error`, `warn`, `info`, `debug` or `trace`, also per module: `info,belay_agent=debug`.
    pub log: String,
    /// The format of log lines.
    pub format: LogFormat,
    /// The base address of a collector of OpenTelemetry that accepts OTLP over HTTP; empty: none.
    pub otlp_endpoint: String,
    /// The environment variable with headers for the collector: `name=value,name=value`; empty: none.
    pub otlp_headers_env: String,
    /// The name of this daemon at the collector.
    pub service_name: String,
    /// The signals that are sent to the collector.
    pub signals: Vec<Signal>,
    /// Seconds between two exports of metrics, 1 to 86,400.
    pub metrics_interval_s: u64,
    /// Whether traces contain messages, replies, arguments and results, and whether log lines of level TRACE are sent.
    pub content: bool,
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// For people if stderr is a terminal, otherwise JSON.
    Auto,
    /// For people.
    Human,
    /// One JSON object per line.
    Json,
}

impl Default for TelemetryConfig {
    fn default() -> Self {
        Self {
            log: "info".into(),
            format: LogFormat::Auto,
            otlp_endpoint: String::new(),
            otlp_headers_env: String::new(),
            service_name: "belay".into(),
            signals: Signal::ALL.to_vec(),
            metrics_interval_s: 60,
            content: false,
        }
    }
}

impl TelemetryConfig {
    /// The same settings with only warnings and errors, for commands that hold a conversation on a terminal.
    pub fn quiet(&self) -> Self {
        Self { log: "warn".into(), ..self.clone() }
    }

    /// Lists all invalid values.
    pub fn validate(&self) -> Vec<String> {
        let log = filter(&self.log)
            .err()
            .map(|error| format!("telemetry.log: is no log filter: {error}; write for example \"info\""));
        let endpoint = (!self.otlp_endpoint.is_empty() && !is_base_address(&self.otlp_endpoint)).then(|| {
            "telemetry.otlp_endpoint: is not an http or https address without user, password and query; write for \
             example \"http://127.0.0.1:4318\""
                .to_owned()
        });
        let absent = (self.has_collector() && !cfg!(feature = "otlp")).then(|| {
            "telemetry.otlp_endpoint: this build of Belay has no exporter (feature otlp); remove the setting, or \
             use a build with it: `belay --version --long` lists the parts"
                .to_owned()
        });
        let name = self.service_name.trim().is_empty().then(|| "telemetry.service_name: is empty".to_owned());
        let interval = (!METRICS_INTERVALS_S.contains(&self.metrics_interval_s)).then(|| {
            let (least, most) = (METRICS_INTERVALS_S.start(), METRICS_INTERVALS_S.end());
            format!("telemetry.metrics_interval_s: must be {least} to {most}")
        });
        [log, endpoint, absent, name, interval].into_iter().flatten().collect()
    }

    /// Whether a collector is set.
    pub fn has_collector(&self) -> bool {
        !self.otlp_endpoint.is_empty()
    }

    /// Whether log lines of level TRACE are sent to a collector. `None`: no log line is.
    pub fn logs_content(&self) -> Option<bool> {
        self.sends(Signal::Logs).then_some(self.content)
    }

    /// Whether a signal is sent to a collector.
    pub fn sends(&self, signal: Signal) -> bool {
        self.has_collector() && self.signals.contains(&signal)
    }
}

/// Whether a text is an address to which a path can be added.
fn is_base_address(text: &str) -> bool {
    url::Url::parse(text).is_ok_and(|url| {
        matches!(url.scheme(), "http" | "https")
            && url.has_host()
            && url.username().is_empty()
            && url.password().is_none()
            && url.query().is_none()
            && url.fragment().is_none()
    })
}

/// The current log filter, which can be replaced while the program runs.
#[derive(Default)]
pub struct LogFilter(Option<reload::Handle<EnvFilter, Registry>>);

impl LogFilter {
    /// Uses the filter of these settings from now on.
    pub fn replace(&self, config: &TelemetryConfig) {
        // `validate` has refused an invalid one.
        let (Some(handle), Ok(filter)) = (&self.0, filter(&config.log)) else { return };
        // An error means that nothing logs any more, so no filter is needed.
        let _ = handle.reload(filter);
    }
}

/// The form of a line on stderr.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineForm {
    /// For people.
    Human,
    /// As one JSON object.
    Json,
}

/// Starts logging to stderr, and to the collector if there is a layer. Returns the form of the lines on stderr. Later
/// calls do nothing, so tests may call it too.
pub fn start(config: &TelemetryConfig, env: &Environment, otlp: Option<LogLayer>) -> (LogFilter, LineForm) {
    let terminal = std::io::stderr().is_terminal();
    let form = match config.format {
        LogFormat::Auto if terminal => LineForm::Human,
        LogFormat::Human => LineForm::Human,
        LogFormat::Auto | LogFormat::Json => LineForm::Json,
    };
    // `validate` has refused an invalid one.
    let Ok(filter) = filter(&config.log) else { return (LogFilter::default(), form) };
    let colour = terminal && env.raw("NO_COLOR").is_none();
    (begin(filter, form == LineForm::Human, colour, std::io::stderr, otlp), form)
}

/// Writes a line to stderr in the form of a log line of level INFO, whatever the filter is. So the start is always
/// announced, and a reader of JSON lines sees only JSON.
pub fn json_line(message: &str) {
    let line = json!({
        "timestamp": SystemClock.now(), "level": "INFO", "message": message, "target": "belay::run",
    });
    // One write, so that no log line comes in between. If stderr is closed, nobody can be told.
    let _ = std::io::stderr().lock().write_all(format!("{line}\n").as_bytes());
}

/// Starts logging to a file, in lines for people unless the settings say otherwise, and to the collector if there is a
/// layer.
pub fn start_in(config: &TelemetryConfig, file: File, otlp: Option<LogLayer>) -> LogFilter {
    let Ok(filter) = filter(&config.log) else { return LogFilter::default() }; // `validate` has refused an invalid one
    begin(filter, config.format != LogFormat::Json, false, Arc::new(file), otlp)
}

fn begin<W>(filter: EnvFilter, human: bool, colour: bool, writer: W, otlp: Option<LogLayer>) -> LogFilter
where
    W: for<'a> fmt::MakeWriter<'a> + Send + Sync + 'static,
{
    let (filter, handle) = reload::Layer::new(filter);
    let registry = Registry::default().with(filter).with(without_secrets());
    let started = if human {
        registry.with(for_people(colour, writer)).with(otlp).try_init()
    } else {
        registry.with(fmt::layer().json().flatten_event(true).with_writer(writer)).with(otlp).try_init()
    };
    // An error means that logging was started before; its first caller has the handle.
    LogFilter(started.is_ok().then_some(handle))
}

/// A filter beside that of the settings, whose directives for spans count for each library in them: `[session]=trace`.
fn without_secrets() -> FilterFn<impl Fn(&Metadata<'_>) -> bool + Send + Sync + 'static> {
    filter_fn(|metadata| !metadata.target().starts_with(SECRET))
}

/// Log lines for people: on a terminal now, or shown on one later. Values of fields are escaped, so that they cannot
/// control the terminal or hide text.
fn for_people<S, W>(colour: bool, writer: W) -> impl Layer<S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'a> fmt::MakeWriter<'a> + Send + Sync + 'static,
{
    let fields =
        debug_fn(|writer, field, value| write_field(writer, field.name(), &format!("{value:?}"))).delimited(" ");
    fmt::layer().fmt_fields(fields).compact().with_ansi(colour).with_writer(writer)
}

/// Writes one field. Its value may contain foreign text; the rest of the line is Belay's own.
fn write_field(writer: &mut Writer<'_>, name: &str, value: &str) -> std::fmt::Result {
    let value = belay_text::escaped(value);
    match name {
        "message" => write!(writer, "{value}"),
        // The line already contains what the `log` facade adds.
        _ if name.starts_with("log.") => Ok(()),
        _ => {
            let (begin, end) = if writer.has_ansi_escapes() { ("\x1b[3m", "\x1b[0m") } else { ("", "") };
            // A line feed would start something that looks like another log line.
            write!(writer, "{begin}{name}{end}={}", value.replace('\n', "\\n"))
        }
    }
}

/// Opens `belay.log` in the data directory for appending, readable by this user alone. A file longer than
/// [`LOG_MAX_BYTES`] is first renamed to `belay.log.1`, which replaces an older one.
pub fn log_file(data: &Path) -> io::Result<(PathBuf, File)> {
    private_directory(data)?;
    let path = data.join("belay.log");
    if std::fs::metadata(&path).is_ok_and(|file| file.len() > LOG_MAX_BYTES) {
        std::fs::rename(&path, data.join("belay.log.1"))?;
    }
    let file = OpenOptions::new().append(true).create(true).mode(0o600).open(&path)?;
    Ok((path, file))
}

fn filter(directives: &str) -> Result<EnvFilter, String> {
    let is_allowed = |directive: &&str| !directive.trim().starts_with(SECRET);
    let mut all = directives.split(',').filter(is_allowed).collect::<Vec<_>>().join(",");
    all.push_str(&format!(",{SECRET}=off"));
    for (target, level) in NOISY.iter().filter(|(target, _)| !directives.contains(target)) {
        all.push_str(&format!(",{target}={level}"));
    }
    EnvFilter::try_new(all).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::Write;

    use super::*;

    #[test]
    fn a_log_file_is_private_is_appended_to_and_is_rotated_when_it_is_long() {
        let home = tempfile::tempdir().unwrap();
        let data = home.path().join("data");
        for _ in 0..2 {
            log_file(&data).unwrap().1.write_all(b"line\n").unwrap();
        }
        let (path, file) = log_file(&data).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "line\nline\n");
        let mode = std::os::unix::fs::PermissionsExt::mode(&file.metadata().unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
        file.set_len(LOG_MAX_BYTES + 1).unwrap();
        assert_eq!(log_file(&data).unwrap().1.metadata().unwrap().len(), 0);
        assert_eq!(data.join("belay.log.1").metadata().unwrap().len(), LOG_MAX_BYTES + 1);
        assert!(log_file(&path).is_err(), "a file is no directory");
    }

    #[test]
    fn no_filter_turns_on_a_library_that_logs_passwords() {
        for directives in ["trace", "async_imap=trace", "info, async_imap::imap_stream=trace,belay_mail=debug", ""] {
            let shown = filter(directives).unwrap().to_string();
            assert!(shown.contains("async_imap=off") && shown.matches("async_imap").count() == 1, "{shown}");
        }
    }

    #[test]
    fn no_directive_for_spans_turns_it_on_either() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("log");
        for directives in ["[session]=trace", "[{person}]=trace", "info,[session{person}]=trace"] {
            let lines = fmt::layer().with_ansi(false).with_writer(Arc::new(File::create(&path).unwrap()));
            let subscriber = Registry::default().with(filter(directives).unwrap()).with(without_secrets()).with(lines);
            tracing::subscriber::with_default(subscriber, || {
                tracing::info_span!("session", person = "ann").in_scope(|| {
                    tracing::trace!(target: "async_imap", "LOGIN ann password");
                    tracing::trace!(target: "async_imap::imap_stream", "LOGIN ann password");
                    tracing::trace!("shown with spans");
                });
            });
            let written = std::fs::read_to_string(&path).unwrap();
            assert!(!written.contains("password"), "{directives}: {written}");
            assert!(written.contains("shown with spans"), "{directives}: {written}");
        }
    }

    #[test]
    fn a_line_for_people_shows_what_a_field_hides_and_obeys_none() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("log");
        let evil = "a\u{202e}b\u{1b}[2Jc\nd";
        for colour in [false, true] {
            let file = File::create(&path).unwrap();
            let subscriber = Registry::default().with(for_people(colour, Arc::new(file)));
            tracing::subscriber::with_default(subscriber, || {
                let span = tracing::info_span!("connection", client = %evil);
                span.in_scope(|| tracing::info!(shown = %evil, quoted = ?evil, text = evil, "of {evil}"));
            });
            let written = std::fs::read_to_string(&path).unwrap();
            assert!(!written.contains('\u{202e}') && !written.contains("\u{1b}[2J"), "{written:?}");
            let shown = r"a\u{202e}b\u{1b}[2Jc";
            assert_eq!(written.matches(shown).count(), 5, "{written:?}");
            assert_eq!(written.lines().count(), 2, "the message alone may have lines: {written:?}");
            assert_eq!(written.contains("\u{1b}["), colour, "{written:?}");
        }
    }

    #[test]
    fn the_settings_of_the_collector_are_checked() {
        let of = |endpoint: &str| TelemetryConfig { otlp_endpoint: endpoint.into(), ..TelemetryConfig::default() };
        assert!(!of("").sends(Signal::Traces));
        for endpoint in ["http://127.0.0.1:4318", "http://127.0.0.1:4318/"] {
            assert_eq!(of(endpoint).validate(), Vec::<String>::new());
            assert!(Signal::ALL.into_iter().all(|signal| of(endpoint).sends(signal)));
        }
        let logs = TelemetryConfig { signals: vec![Signal::Logs], ..of("https://otlp.example.org/otlp") };
        assert_eq!(Signal::ALL.map(|signal| logs.sends(signal)), [false, false, true]);
        for (metrics_interval_s, problems) in [(0, 1), (1, 0), (86_400, 0), (86_401, 1)] {
            let config = TelemetryConfig { metrics_interval_s, ..TelemetryConfig::default() };
            assert_eq!(config.validate().len(), problems, "{metrics_interval_s}");
        }
        for wrong in
            ["127.0.0.1:4318", "grpc://host:4317", "http://", "http://u:p@host", "http://host/?a=b", "http://host/#a"]
        {
            assert_eq!(of(wrong).validate().len(), 1, "{wrong}");
        }
        let nameless = TelemetryConfig { service_name: " ".into(), ..TelemetryConfig::default() };
        assert_eq!(nameless.validate(), ["telemetry.service_name: is empty"]);
    }

    #[test]
    fn a_filter_is_checked_and_silences_noisy_libraries() {
        for (log, ok) in [("info", true), ("debug,belay_agent=trace", true), ("inf=o=x", false)] {
            let config = TelemetryConfig { log: log.into(), ..TelemetryConfig::default() };
            assert_eq!(config.validate().is_empty(), ok, "{log}");
        }
        let shown = filter("info").map(|filter| filter.to_string()).unwrap_or_default();
        assert!(shown.contains("genai=off"), "{shown}");
        let own = filter("genai=debug").map(|filter| filter.to_string()).unwrap_or_default();
        assert!(own.contains("genai=debug") && !own.contains("genai=off"), "{own}");
    }
}
