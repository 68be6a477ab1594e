//! Reads the credentials of a systemd unit from its file. A shell does not have them, so checking the settings of a
//! service needs this.
//!
//! Source: systemd.exec(5), `LoadCredential=`, `SetCredential=`, `ImportCredential=`; systemd.syntax(7).

use std::collections::BTreeMap;
use std::path::Path;

use belay_program::drop_ins;
use belay_program::environment::Declared;
use secrecy::SecretString;

use super::{Finding, State};

/// Credentials by their names.
pub(super) type Credentials = BTreeMap<String, Declared>;

/// Reads a unit and its drop-ins (`FILE.d/*.conf`).
///
/// # Errors
/// A file that cannot be read.
pub(super) fn read(file: &Path) -> Result<(Credentials, Vec<Finding>), String> {
    let mut lines = Vec::new();
    for path in [vec![file.to_owned()], drop_ins::files(file)].iter().flatten() {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        lines.extend(assignments(&text));
    }
    Ok(declared(&lines))
}

/// The assignments of `[Service]`, with continued lines joined.
fn assignments(text: &str) -> Vec<(String, String)> {
    let (mut found, mut in_service, mut begun) = (Vec::new(), false, String::new());
    for line in text.lines() {
        let line = line.trim();
        if line.starts_with(['#', ';']) {
            continue; // also between the parts of a continued line
        }
        if let Some(part) = line.strip_suffix('\\') {
            begun.push_str(part);
            begun.push(' ');
            continue;
        }
        let line = std::mem::take(&mut begun) + line;
        if let Some(section) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            in_service = section == "Service";
        } else if let Some((key, value)) = line.split_once('=').filter(|_| in_service) {
            found.push((key.trim().to_owned(), value.trim().to_owned()));
        }
    }
    found
}

fn declared(lines: &[(String, String)]) -> (Credentials, Vec<Finding>) {
    // An empty value clears earlier values of the same key.
    let mut said: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (key, value) in lines {
        let values = said.entry(key).or_default();
        if value.is_empty() { values.clear() } else { values.push(value) }
    }
    let (mut credentials, mut findings) = (Credentials::new(), Vec::new());
    for (key, values) in said {
        for value in values {
            let (name, rest) = value.split_once(':').map_or((value, None), |(name, rest)| (name, Some(rest)));
            let credential = match (key, rest) {
                ("LoadCredential", Some(path)) => {
                    let (credential, finding) = load(name, Path::new(path));
                    findings.push(finding);
                    credential
                }
                ("SetCredential", Some(text)) => Declared::Content(SecretString::from(text)),
                ("LoadCredential" | "LoadCredentialEncrypted" | "SetCredentialEncrypted" | "ImportCredential", _) => {
                    findings.push(unseen(name, "is known to systemd alone"));
                    Declared::Unseen
                }
                _ => continue,
            };
            credentials.insert(name.to_owned(), credential);
        }
    }
    (credentials, findings)
}

/// Reads the content of a credential. The service manager reads it as root; this user may lack the permission.
fn load(name: &str, path: &Path) -> (Declared, Finding) {
    let is_regular = std::fs::metadata(path).map_or(true, |found| found.is_file()); // the reading says the error
    if !is_regular {
        return (Declared::Unseen, unseen(name, "is no regular file"));
    }
    match std::fs::read_to_string(path) {
        Ok(text) => {
            let finding = Finding::new("unit", State::Ok, format!("credential {name} is read from {}", path.display()));
            (Declared::Content(SecretString::from(text)), finding)
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && path.is_absolute() => {
            let what = format!("credential {name}: {}: {error}; the unit does not start without it", path.display());
            (Declared::Unseen, Finding::new("unit", State::Refused, what))
        }
        Err(error) => (Declared::Unseen, unseen(name, &format!("cannot be read from here ({error})"))),
    }
}

fn unseen(name: &str, why: &str) -> Finding {
    Finding::new("unit", State::Note, format!("credential {name} {why}: it is taken to be there and right"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use secrecy::ExposeSecret;

    use super::*;

    #[test]
    fn the_credentials_of_a_unit_and_its_drop_ins_are_read_as_systemd_reads_them() {
        let dir = tempfile::tempdir().unwrap();
        let (unit, token, gone) = (dir.path().join("belay.service"), dir.path().join("token"), dir.path().join("gone"));
        std::fs::write(&token, "hush\n").unwrap();
        let (token, missing) = (token.display(), gone.display());
        let text = format!(
            "[Unit]\nLoadCredential=not:{token}\n[Service]\n#LoadCredential=off:{token}\nLoadCredential=a:{token}\n\
             LoadCredential=\\\n# between\nb:{missing}\nLoadCredentialEncrypted=c:/x\nSetCredential=d:e:f\n\
             SetCredential=gone:x\nSetCredential=\nSetCredential=d:e:f\nLoadCredential=stored\n\
             LoadCredential=null:/dev/null\nType=notify\n"
        );
        std::fs::write(&unit, text).unwrap();
        let drop_in = dir.path().join("belay.service.d");
        std::fs::create_dir(&drop_in).unwrap();
        std::fs::write(drop_in.join("10.conf"), format!("[Service]\nLoadCredential=more:{token}\n")).unwrap();
        std::fs::write(drop_in.join("notes.txt"), "[Service]\nSetCredential=no:x\n").unwrap();

        let (credentials, findings) = read(&unit).unwrap();
        let shown: Vec<_> = credentials
            .iter()
            .map(|(name, credential)| match credential {
                Declared::Content(text) => format!("{name}={}", text.expose_secret().trim()),
                Declared::Unseen => format!("{name}?"),
            })
            .collect();
        assert_eq!(shown, ["a=hush", "b?", "c?", "d=e:f", "more=hush", "null?", "stored?"]);
        let refused: Vec<_> = findings.iter().filter(|finding| finding.state == State::Refused).collect();
        assert!(refused.len() == 1 && refused[0].detail.contains("credential b"), "{findings:?}");
        assert!(!format!("{findings:?}").contains("hush"));
        assert!(read(&dir.path().join("none.service")).is_err());
    }
}
