//! Password files in the format of libpq.
//!
//! PostgreSQL, "The Password File": <https://www.postgresql.org/docs/current/libpq-pgpass.html>.

use std::path::Path;

use zeroize::Zeroizing;

use super::url::Host;

/// The maximum size of a password file, in bytes.
const FILE_MAX: u64 = 1024 * 1024;

/// The password of the first line that matches.
///
/// # Errors
/// The file cannot be read, others can read it too, or no line matches, as a sentence for the operator.
pub(super) fn password(path: &Path, host: &Host, database: &str, user: &str) -> Result<Zeroizing<String>, String> {
    let shown = path.display();
    let facts = std::fs::metadata(path).map_err(|error| format!("passfile {shown}: {error}"))?;
    if !facts.is_file() || facts.len() > FILE_MAX {
        return Err(format!("passfile {shown} is not a file of at most {FILE_MAX} bytes"));
    }
    #[cfg(unix)]
    if std::os::unix::fs::PermissionsExt::mode(&facts.permissions()) & 0o077 != 0 {
        return Err(format!("passfile {shown} is readable by others: set its mode to 0600"));
    }
    let text =
        std::fs::read_to_string(path).map(Zeroizing::new).map_err(|error| format!("passfile {shown}: {error}"))?;
    find(&text, host, database, user).ok_or_else(|| format!("passfile {shown} has no line for {user} at {host}"))
}

fn find(text: &str, host: &Host, database: &str, user: &str) -> Option<Zeroizing<String>> {
    let (name, port) = match host {
        Host::Tcp(name, port) => (name.clone(), *port),
        Host::Unix(path, port) => (path.to_string_lossy().into_owned(), *port),
    };
    let is_socket = matches!(host, Host::Unix(..));
    text.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let fields = fields(line);
        let [hosts, ports, databases, users, password] = fields.as_slice() else { return None };
        let matches = |field: &str, value: &str| field == "*" || field == value;
        let here = matches(hosts, &name) || (is_socket && hosts.as_str() == "localhost");
        (here && matches(ports, &port.to_string()) && matches(databases, database) && matches(users, user))
            .then(|| password.clone())
    })
}

/// The fields of a line. `\` escapes `:` and itself; the password, which is last, needs no escapes for `:`.
fn fields(line: &str) -> Vec<Zeroizing<String>> {
    let mut fields = vec![Zeroizing::new(String::new())];
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        let last = fields.len() == 5;
        match (c, fields.last_mut()) {
            (':', _) if !last => fields.push(Zeroizing::new(String::new())),
            ('\\', Some(field)) => field.extend(chars.next()),
            (c, Some(field)) => field.push(c),
            (_, None) => {}
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_matching_line_has_the_password() {
        let text = "# db:5432:d:u:comment\ndb:5432:other:u:a\ndb:*:d:u\\:x:b\ndb:*:d:u:p\\:q\\\\r:s\n*:5433:*:*:any\nlocalhost:5432:*:*:socket";
        let tcp = |name: &str, port| Host::Tcp(name.into(), port);
        for (host, database, user, expected) in [
            (tcp("db", 5432), "other", "u", Some("a")),
            (tcp("db", 5432), "d", "u", Some("p:q\\r:s")),
            (tcp("db", 5432), "d", "u:x", Some("b")),
            (tcp("x", 5433), "y", "z", Some("any")),
            (tcp("x", 5432), "y", "z", None),
            (Host::Unix("/run/postgresql".into(), 5432), "y", "z", Some("socket")),
        ] {
            let found = find(text, &host, database, user);
            assert_eq!(found.as_deref().map(String::as_str), expected, "{host} {database} {user}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_file_that_others_can_read_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "*:*:*:*:hunter2\n").unwrap();
        let of = |mode| {
            std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(mode)).unwrap();
            password(file.path(), &Host::Tcp("h".into(), 1), "d", "u")
        };
        assert_eq!(of(0o600).unwrap().as_str(), "hunter2");
        assert!(of(0o640).unwrap_err().contains("0600"));
    }
}
