//! The layers of the settings: each source as a tree of values with their origins.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use belay_program::environment::Environment;
use config::{ConfigError, Source, Value, ValueKind};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::problem::Problem;

/// The built-in defaults. They contain and explain every setting.
pub(super) const DEFAULT_TOML: &str = include_str!("../../../../config/default.toml");

/// The origin of a built-in value.
pub(crate) const BUILT_IN: &str = "default";

/// The problem with a number that is not finite. Without this check it would act like an unset limit.
pub const NOT_FINITE: &str = "must be a finite number";

/// Longest settings file in bytes. 1 MiB: a thousand times the usual length.
const FILE_MAX_BYTES: u64 = 1024 * 1024;

/// Prefix of the environment variables that are settings.
const ENV_PREFIX: &str = "BELAY__";

/// One source of settings.
#[derive(Clone, Debug, Default)]
pub(super) struct Layer {
    root: HashMap<String, Value>,
    /// The text of each unquoted value (environment, `--set`), by full key. A text may look like a number; only the
    /// type of its setting decides.
    pub(super) unquoted: BTreeMap<String, String>,
}

impl Source for Layer {
    fn clone_into_box(&self) -> Box<dyn Source + Send + Sync> {
        Box::new(self.clone())
    }

    fn collect(&self) -> Result<HashMap<String, Value>, ConfigError> {
        Ok(self.root.clone())
    }
}

/// Whether a settings file has to exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// Read if it exists.
    Optional,
    /// Read if it exists and is not [`hidden`]: the file of a service's user, whose home the unit may hide.
    IfVisible,
    /// Must exist: it is named on the command line.
    Required,
}

impl Layer {
    /// The built-in defaults.
    pub(super) fn built_in() -> Result<Self, Vec<Problem>> {
        let named = |_line: usize| BUILT_IN.to_owned();
        parse("the built-in defaults", DEFAULT_TOML, &named)
    }

    /// Reads a file. `None`: it does not exist and need not.
    pub(super) fn file(path: &Path, need: Need) -> Result<Option<Self>, Vec<Problem>> {
        let shown = path.display().to_string();
        let refuse = |what: String| vec![Problem::new(shown.clone(), what)];
        match std::fs::metadata(path) {
            Ok(meta) if meta.is_dir() => return Err(refuse("is a directory, not a settings file".into())),
            // A pipe or a device may never end, or wait for ever.
            Ok(meta) if !meta.is_file() => {
                return Err(refuse(
                    "is no regular file, such as a pipe or a device: copy the settings into a file".into(),
                ));
            }
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && need != Need::Required => return Ok(None),
            Err(error) => return Err(refuse(format!("cannot be read: {error}"))),
        }
        // The size in the metadata of a file of the kernel is 0.
        let mut bytes = Vec::new();
        let read = File::open(path).and_then(|file| file.take(FILE_MAX_BYTES + 1).read_to_end(&mut bytes));
        read.map_err(|error| refuse(format!("cannot be read: {error}")))?;
        if bytes.len() as u64 > FILE_MAX_BYTES {
            return Err(refuse(format!("is longer than {FILE_MAX_BYTES} bytes: this is no settings file")));
        }
        let text = String::from_utf8(bytes)
            .map_err(|error| refuse(format!("is not UTF-8 (after {} bytes)", error.utf8_error().valid_up_to())))?;
        parse(&shown, &text, &|line| format!("{shown}, line {line}")).map(Some)
    }

    /// The variables `BELAY__SECTION__KEY`.
    pub(super) fn environment(env: &Environment) -> Result<Self, Vec<Problem>> {
        let mut layer = Self::default();
        let mut problems = Vec::new();
        for (name, value) in env.with_prefix(ENV_PREFIX) {
            let origin = format!("environment variable {name}");
            let key = name[ENV_PREFIX.len()..].to_lowercase().replace("__", ".");
            match value.to_str() {
                Some(text) => problems.extend(layer.set(&key, text, &origin).err()),
                None => problems.push(Problem::new(key, "is not UTF-8").from(Some(&origin))),
            }
        }
        if problems.is_empty() { Ok(layer) } else { Err(problems) }
    }

    /// The `--set section.key=value` of the command line.
    pub(super) fn command_line(assignments: &[String]) -> Result<Self, Vec<Problem>> {
        let mut layer = Self::default();
        let mut problems = Vec::new();
        for assignment in assignments {
            match assignment.split_once('=') {
                Some((key, text)) => {
                    let key = key.trim();
                    problems.extend(layer.set(key, text.trim(), &format!("--set {key}")).err());
                }
                None => {
                    let example =
                        Some("write --set section.key=value, for example --set llm.provider=rehearsal".into());
                    problems.push(Problem::new("--set", "has no `=`").hint(example));
                }
            }
        }
        if problems.is_empty() { Ok(layer) } else { Err(problems) }
    }

    /// The `--workspace DIR` of the command line, which must name a directory that exists.
    pub(super) fn workspace(path: &Path) -> Result<Self, Vec<Problem>> {
        let refuse = |what: String| vec![Problem::new("--workspace", what)];
        let shown = path.display();
        let found = path.canonicalize().map_err(|error| refuse(format!("{shown} cannot be used: {error}")))?;
        if !found.is_dir() {
            return Err(refuse(format!("{shown} is not a directory")));
        }
        let text = found.into_os_string().into_string();
        let text = text.map_err(|_| refuse(format!("{shown} is not UTF-8, as paths in settings are")))?;
        let mut layer = Self::default();
        let value = Value::new(Some(&"--workspace".to_owned()), ValueKind::String(text));
        let tools = HashMap::from([("workspace".to_owned(), value)]);
        layer.root.insert("tools".into(), Value::new(Some(&"--workspace".to_owned()), ValueKind::Table(tools)));
        Ok(layer)
    }

    /// The full key and the origin of each empty table.
    pub(super) fn empty_tables(&self) -> BTreeMap<String, String> {
        let mut found = BTreeMap::new();
        collect_empty(&self.root, "", &mut found);
        found
    }

    /// Removes the values in the place of one of these sections. Returns the key, the kind and the origin of each. Then
    /// adds the sections of this layer.
    pub(super) fn take_values_for(&mut self, sections: &mut BTreeSet<String>) -> Vec<(String, &'static str, String)> {
        let mut taken = Vec::new();
        take_values(&mut self.root, "", sections, &mut taken);
        taken.iter().for_each(|(key, ..)| drop(self.unquoted.remove(key)));
        taken
    }

    /// Sets one value, which is parsed as TOML or else taken as text.
    fn set(&mut self, key: &str, text: &str, origin: &str) -> Result<(), Problem> {
        let segments: Vec<&str> = key.split('.').collect();
        if segments.len() < 2 || !segments.iter().all(|segment| is_plain(segment)) {
            let hint = "a setting is named section.key, for example llm.model".to_owned();
            return Err(Problem::new(key, "is not the name of a setting").from(Some(origin)).hint(Some(hint)));
        }
        let value = match toml_value(text, origin) {
            Err(what) => return Err(Problem::new(key, what).from(Some(origin))),
            Ok(value) => value,
        };
        let value = value.unwrap_or_else(|| {
            self.unquoted.remove(key);
            Value::new(Some(&origin.to_owned()), text.to_owned())
        });
        if !matches!(value.kind, ValueKind::String(_)) {
            self.unquoted.insert(key.to_owned(), text.to_owned());
        }
        insert(&mut self.root, &segments, value);
        Ok(())
    }
}

fn take_values(
    table: &mut HashMap<String, Value>,
    above: &str,
    sections: &mut BTreeSet<String>,
    taken: &mut Vec<(String, &'static str, String)>,
) {
    table.retain(|name, value| {
        let key = if above.is_empty() { name.clone() } else { format!("{above}.{name}") };
        let kind = match &mut value.kind {
            ValueKind::Table(inner) => {
                take_values(inner, &key, sections, taken);
                sections.insert(key);
                return true;
            }
            ValueKind::Nil => return true,
            ValueKind::Array(_) => "a list",
            ValueKind::String(_) => "a text",
            ValueKind::Boolean(_) => "true or false",
            _ => "a number",
        };
        let stays = !sections.contains(&key);
        if !stays {
            taken.push((key, kind, value.origin().unwrap_or_default().to_owned()));
        }
        stays
    });
}

fn collect_empty(table: &HashMap<String, Value>, path: &str, found: &mut BTreeMap<String, String>) {
    for (name, value) in table {
        let ValueKind::Table(inner) = &value.kind else { continue };
        let full = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        match value.origin() {
            Some(origin) if inner.is_empty() => {
                found.insert(full, origin.to_owned());
            }
            _ => collect_empty(inner, &full, found),
        }
    }
}

/// Inserts a value, and makes missing tables on its path.
fn insert(table: &mut HashMap<String, Value>, segments: &[&str], value: Value) {
    let (first, rest) = match segments {
        [] => return,
        [last] => {
            table.insert((*last).to_owned(), value);
            return;
        }
        [first, rest @ ..] => (*first, rest),
    };
    let child = table.entry(first.to_owned()).or_insert_with(|| Value::new(None, HashMap::<String, Value>::new()));
    if !matches!(child.kind, ValueKind::Table(_)) {
        *child = Value::new(None, HashMap::<String, Value>::new());
    }
    if let ValueKind::Table(inner) = &mut child.kind {
        insert(inner, rest, value);
    }
}

/// Parses a value as TOML; `None`: it is not a TOML value.
///
/// # Errors
/// It contains a number that is not finite. Quotes make it a text.
fn toml_value(text: &str, origin: &str) -> Result<Option<Value>, &'static str> {
    let document = format!("value = {text}");
    let Ok(table) = DeTable::parse(&document) else { return Ok(None) };
    let mut entries = table.into_inner().into_iter();
    // A line break could add a second key; then the whole is text.
    let (Some((_, value)), None) = (entries.next(), entries.next()) else { return Ok(None) };
    let name = |_| origin.to_owned();
    let mut place = Place::new(&document, &name);
    let value = convert(value.into_inner(), 0, "value", &mut place);
    match place.problems.as_slice() {
        [] => Ok(value),
        problems if problems.iter().any(|problem| problem.what == NOT_FINITE) => Err(NOT_FINITE),
        // A part was left out, so the whole is text.
        _ => Ok(None),
    }
}

/// The context of a conversion, for naming the origins of values.
struct Place<'a> {
    /// Where its lines end. Each value asks for its line, so they are looked for once.
    line_breaks: Vec<usize>,
    name: &'a dyn Fn(usize) -> String,
    problems: Vec<Problem>,
}

impl<'a> Place<'a> {
    fn new(text: &str, name: &'a dyn Fn(usize) -> String) -> Self {
        let line_breaks = text.match_indices('\n').map(|(at, _)| at).collect();
        Self { line_breaks, name, problems: Vec::new() }
    }

    fn line_of(&self, offset: usize) -> usize {
        self.line_breaks.partition_point(|at| *at < offset) + 1
    }

    fn origin(&self, offset: usize) -> String {
        (self.name)(self.line_of(offset))
    }
}

fn column_of(text: &str, offset: usize) -> usize {
    let before = text.get(..offset).unwrap_or(text);
    before.chars().rev().take_while(|c| *c != '\n').count() + 1
}

fn parse(shown: &str, text: &str, name: &dyn Fn(usize) -> String) -> Result<Layer, Vec<Problem>> {
    let (table, errors) = DeTable::parse_recoverable(text);
    let mut place = Place::new(text, name);
    for error in errors {
        let at = error.span().map_or(0, |span| span.start);
        let key = format!("{shown}, line {}, column {}", place.line_of(at), column_of(text, at));
        place.problems.push(Problem::new(key, format!("is not TOML: {}", error.message())));
    }
    let root = convert_table(table.into_inner(), "", &mut place);
    if place.problems.is_empty() { Ok(Layer { root, unquoted: BTreeMap::new() }) } else { Err(place.problems) }
}

fn convert_table(table: DeTable<'_>, path: &str, place: &mut Place<'_>) -> HashMap<String, Value> {
    let mut out = HashMap::new();
    for (key, value) in table {
        let offset = key.span().start;
        let key = key.into_inner();
        let full = if path.is_empty() { key.to_string() } else { format!("{path}.{key}") };
        // The merging library parses section names as paths with dots and brackets. Belay's names have none.
        if path.is_empty() && !is_plain(&key) {
            let origin = place.origin(offset);
            place.problems.push(Problem::new(full, "unknown section").from(Some(&origin)));
            continue;
        }
        if let Some(value) = convert(value.into_inner(), offset, &full, place) {
            out.insert(key.into_owned(), value);
        }
    }
    out
}

fn convert(value: DeValue<'_>, offset: usize, path: &str, place: &mut Place<'_>) -> Option<Value> {
    let origin = place.origin(offset);
    let kind = match value {
        DeValue::String(text) => ValueKind::String(text.into_owned()),
        DeValue::Boolean(flag) => ValueKind::Boolean(flag),
        DeValue::Integer(digits) => match i64::from_str_radix(digits.as_str(), digits.radix()) {
            Ok(number) => ValueKind::I64(number),
            Err(_) => {
                place.problems.push(Problem::new(path, "is a number that is too large").from(Some(&origin)));
                return None;
            }
        },
        DeValue::Float(digits) => match digits.as_str().parse::<f64>() {
            Ok(number) if number.is_finite() => ValueKind::Float(number),
            _ => {
                place.problems.push(Problem::new(path, NOT_FINITE).from(Some(&origin)));
                return None;
            }
        },
        DeValue::Datetime(date) => ValueKind::String(date.to_string()),
        DeValue::Table(table) => ValueKind::Table(convert_table(table, path, place)),
        DeValue::Array(items) => {
            let item = |(at, item): (usize, Spanned<DeValue<'_>>)| {
                let offset = item.span().start;
                convert(item.into_inner(), offset, &format!("{path}[{at}]"), place)
            };
            ValueKind::Array(items.into_iter().enumerate().filter_map(item).collect())
        }
    };
    Some(Value::new(Some(&origin), kind))
}

fn is_plain(segment: &str) -> bool {
    !segment.is_empty() && segment.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

/// The files to read, in ascending priority: the machine's, the user's, the named ones.
pub(super) fn files<'a>(
    found: &'a [PathBuf],
    named: &'a [PathBuf],
    in_service: bool,
) -> impl Iterator<Item = (&'a Path, Need)> {
    let of_user = if in_service { Need::IfVisible } else { Need::Optional };
    let needs = std::iter::once(Need::Optional).chain(std::iter::repeat(of_user));
    let found = found.iter().zip(needs).map(|(path, need)| (path.as_path(), need));
    found.chain(named.iter().map(|path| (path.as_path(), Need::Required)))
}

/// Why the settings file of a user, `CONFIG/belay/belay.toml`, is hidden from this process: CONFIG itself cannot be
/// looked up, because the home directory around it is inaccessible or no directory. An existing but unreadable file or
/// directory below CONFIG is not hidden: it may contain the only protection.
///
/// Source: systemd.exec(5), `ProtectHome=`: the directory is made empty and inaccessible.
pub(super) fn hidden(path: &Path) -> Option<std::io::Error> {
    let kinds = [std::io::ErrorKind::PermissionDenied, std::io::ErrorKind::NotADirectory];
    let config = path.ancestors().nth(2)?;
    std::fs::symlink_metadata(config).err().filter(|error| kinds.contains(&error.kind()))
}
