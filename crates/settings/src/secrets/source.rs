//! The sources of one secret, in their order. A configured source without content is refused, because the daemon would
//! otherwise run without the protection that the operator wanted.

use std::io::Read;
use std::path::{Path, PathBuf};

use belay_program::environment::{Declared, Environment};
use secrecy::{ExposeSecret, SecretString};

use crate::settings::Problem;

/// Longest secret in bytes. 16 KiB: a signed token of a cloud provider has a few KiB; a longer file is probably another
/// file.
const SECRET_MAX_BYTES: u64 = 16 * 1024;

/// Placeholder for a credential that exists but cannot be read here. It is never sent anywhere.
pub const UNSEEN: &str = "a-credential-that-cannot-be-read-from-here";

/// The possible sources of one secret.
pub(super) struct Names<'a> {
    /// The settings key without its ending: `channels.telegram.token`.
    pub(super) key: &'a str,
    /// The environment variable; empty: none.
    pub(super) env: &'a str,
    /// The meaning of a variable that is unset or empty.
    pub(super) absent: Missing,
    /// The file.
    pub(super) file: Option<&'a Path>,
    /// The name of the systemd credential; empty: none.
    pub(super) credential: &'a str,
}

/// The meaning of an environment variable without a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    /// For keys of providers and skills: no key is sent, whether the variable is unset or empty. An optional key
    /// protects nothing.
    NoKey,
    /// Set and empty is refused. Unset is allowed: the name of the variable is the default.
    Unset,
    /// Unset is refused too: an operator has set the name.
    Refused,
}

/// Finds a secret. `None`: no source is configured.
///
/// # Errors
/// A configured source is empty, cannot be read, or has content that no secret has. The problem never contains the
/// value.
pub(super) fn find(names: &Names<'_>, env: &Environment) -> Result<Option<SecretString>, Problem> {
    let key = names.key;
    if let Some(file) = names.file {
        let problem = |what| Problem::new(format!("{key}_file"), what);
        let secret =
            read_regular(file).and_then(|text| check(&text).map_err(|what| format!("{} {what}", file.display())));
        let hint = format!("write the secret into it, or remove {key}_file");
        let empty = || problem(format!("the file {} is empty", file.display())).hint(Some(hint));
        return secret.map_err(problem)?.ok_or_else(empty).map(Some);
    }
    if let Some(secret) = of_variable(names, env)? {
        return Ok(Some(secret));
    }
    if let Some(secret) = of_credential(names, env)? {
        return Ok(Some(secret));
    }
    if names.absent == Missing::Refused && !names.env.is_empty() {
        let hint = format!("set it, or remove {key}_env from the settings{}", unseen_credential(names, env));
        let what = format!("the variable {} is not set", names.env);
        return Err(Problem::new(format!("{key}_env"), what).hint(Some(hint)));
    }
    Ok(None)
}

fn of_variable(names: &Names<'_>, env: &Environment) -> Result<Option<SecretString>, Problem> {
    let Some(value) = (!names.env.is_empty()).then(|| env.given(names.env)).flatten() else { return Ok(None) };
    let problem = |what: &str| Problem::new(format!("{}_env", names.key), format!("the variable {} {what}", names.env));
    let value = value.to_str().ok_or_else(|| problem("is not UTF-8"))?;
    match check(value).map_err(|what| problem(&what))? {
        None if names.absent != Missing::NoKey => {
            Err(problem("is set and empty").hint(Some("put the secret into it, or unset it".to_owned())))
        }
        secret => Ok(secret),
    }
}

fn of_credential(names: &Names<'_>, env: &Environment) -> Result<Option<SecretString>, Problem> {
    let name = names.credential;
    match env.declared(name) {
        Some(Declared::Unseen) => return Ok(Some(SecretString::from(UNSEEN))),
        Some(Declared::Content(text)) => return of_content(names, text.expose_secret(), "its content").map(Some),
        None => {}
    }
    let Some(path) = credential_path(name, env) else { return Ok(None) };
    let problem = |what: String| Problem::new(names.key, format!("the systemd credential {name}: {what}"));
    // Any other error than "not found" is reported: this may be the only protection.
    match std::fs::symlink_metadata(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(problem(format!("cannot read {}: {error}", path.display()))),
        Ok(_) => {}
    }
    let text = read_regular(&path).map_err(problem)?;
    of_content(names, &text, &path.display().to_string()).map(Some)
}

/// Parses the secret in a credential.
fn of_content(names: &Names<'_>, text: &str, place: &str) -> Result<SecretString, Problem> {
    let name = names.credential;
    let problem = |what: String| Problem::new(names.key, format!("the systemd credential {name}: {place} {what}"));
    let hint = format!("write the secret into its file, or remove the line LoadCredential={name}:… from the unit");
    let secret = check(text).map_err(problem)?;
    secret.ok_or_else(|| problem("is empty".to_owned()).hint(Some(hint)))
}

fn credential_path(name: &str, env: &Environment) -> Option<PathBuf> {
    env.directory("CREDENTIALS_DIRECTORY").filter(|_| !name.is_empty()).map(|dir| dir.join(name))
}

/// An explanation for people who check a service's settings in a shell, which has no credentials.
fn unseen_credential(names: &Names<'_>, env: &Environment) -> String {
    unseen_words(names.credential, env)
}

/// An explanation about a credential that a service may have, or that its unit lacks.
pub fn unseen_words(credential: &str, env: &Environment) -> String {
    match env.unit() {
        _ if credential.is_empty() => String::new(),
        Some(unit) => format!(" (the unit {} has no LoadCredential={credential})", unit.display()),
        None if env.directory("CREDENTIALS_DIRECTORY").is_some() => String::new(),
        None => format!(
            " (the systemd credential {credential} of a service cannot be seen from here: `belay check --unit FILE` reads its unit)"
        ),
    }
}

/// Reads a file that the settings name, or a link to one. A start must not wait for the writer of a pipe.
fn read_regular(path: &Path) -> Result<String, String> {
    let shown = path.display();
    match std::fs::metadata(path) {
        Ok(found) if !found.is_file() && !found.is_dir() => {
            Err(format!("{shown} is no regular file, such as a pipe or a device: copy the secret into a file"))
        }
        Ok(_) => read(path), // of a directory it says so
        Err(error) => Err(format!("cannot read {shown}: {error}")),
    }
}

fn read(path: &Path) -> Result<String, String> {
    let shown = path.display();
    let file = std::fs::File::open(path).map_err(|error| format!("cannot read {shown}: {error}"))?;
    read_from(file).map_err(|what| match what {
        Unread::Error(error) => format!("cannot read {shown}: {error}"),
        Unread::TooLong => format!("{shown} is longer than {SECRET_MAX_BYTES} bytes: this is no secret"),
    })
}

/// Why a secret was not read.
enum Unread {
    Error(std::io::Error),
    TooLong,
}

fn read_from(source: impl Read) -> Result<String, Unread> {
    let mut text = String::new();
    let bytes = source.take(SECRET_MAX_BYTES + 1).read_to_string(&mut text).map_err(Unread::Error)?;
    if bytes as u64 > SECRET_MAX_BYTES { Err(Unread::TooLong) } else { Ok(text) }
}

/// Reads the secret in a file that a person names in a command, also from a pipe, for whose writer it waits.
/// `None`: the file is empty.
///
/// # Errors
/// What is wrong, with the path and without the content.
pub fn of_file(path: &Path) -> Result<Option<SecretString>, String> {
    check(&read(path)?).map_err(|what| format!("{} {what}", path.display()))
}

/// Reads a secret to the end of `source`, which is called `name` in errors. `None`: there is nothing.
///
/// # Errors
/// What is wrong, without the content.
pub fn of_reader(source: impl Read, name: &str) -> Result<Option<SecretString>, String> {
    let text = read_from(source).map_err(|what| match what {
        Unread::Error(error) => format!("{name} cannot be read: {error}"),
        Unread::TooLong => format!("{name} is longer than {SECRET_MAX_BYTES} bytes: this is no secret"),
    })?;
    of_text(&text).map_err(|what| format!("{name} {what}"))
}

/// Parses a typed secret. `None`: nothing was typed.
///
/// # Errors
/// What is wrong, without the content.
pub fn of_text(text: &str) -> Result<Option<SecretString>, String> {
    check(text)
}

/// Trims and checks a secret. Editors and `echo` add a newline at the end, some editors a byte order mark at the start.
/// Any other character that is invisible or not allowed in a header is a mistake. `None`: empty.
fn check(text: &str) -> Result<Option<SecretString>, String> {
    let secret = text.strip_prefix('\u{feff}').unwrap_or(text).trim();
    if secret.chars().any(char::is_control) {
        return Err("holds a line break or another control character within the secret".into());
    }
    if secret.chars().any(belay_text::is_unclear) {
        return Err("holds an invisible character or an unusual space; write the secret again".into());
    }
    Ok((!secret.is_empty()).then(|| SecretString::from(secret)))
}
