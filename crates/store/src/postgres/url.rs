//! The address of a PostgreSQL database, as `store.url` has it.
//!
//! PostgreSQL, "Connection URIs": <https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-CONNSTRING-URIS>.
//! Belay refuses parameters that it does not know. It reads none of the environment variables of libpq, so that one
//! setting says everything about the connection.

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The port of PostgreSQL.
const DEFAULT_PORT: u16 = 5432;

/// The maximum number of servers of one address.
const HOSTS_MAX: usize = 16;

/// The schema in which the tables are, unless the address names another one.
const DEFAULT_SCHEMA: &str = "belay";

/// The time for one attempt to connect to one server, unless the address names another one.
const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The form of an address, for messages.
const FORM: &str = "use postgres://USER:PASSWORD@HOST:PORT/DATABASE";

/// The parsed address of a PostgreSQL database. Neither `Debug` nor `Display` shows the password.
#[derive(Clone, PartialEq, Eq)]
pub struct PostgresUrl {
    pub(crate) hosts: Vec<Host>,
    pub(crate) user: String,
    pub(crate) database: String,
    pub(crate) password: Option<Password>,
    pub(crate) schema: String,
    pub(crate) tls: Tls,
    pub(crate) connect_timeout: Duration,
}

/// A server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Host {
    /// A name or an address, and a port.
    Tcp(String, u16),
    /// The directory of a Unix socket, and the port that is part of the socket's name.
    Unix(PathBuf, u16),
}

impl Host {
    /// Whether only processes of this machine can listen there.
    fn is_local(&self) -> bool {
        match self {
            Self::Unix(..) => true,
            Self::Tcp(name, _) => {
                name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
            }
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(name, port) if name.contains(':') => write!(f, "[{name}]:{port}"),
            Self::Tcp(name, port) => write!(f, "{name}:{port}"),
            Self::Unix(path, port) => write!(f, "{}/.s.PGSQL.{port}", path.display()),
        }
    }
}

/// The place of the password.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Password {
    /// The password itself.
    Text(zeroize::Zeroizing<String>),
    /// A password file in the format of libpq. It is read for each connection.
    File(PathBuf),
}

/// The encryption of TCP connections. Connections through Unix sockets are never encrypted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Tls {
    /// The certificate and the name of the server are verified, with the roots of the system and the additional ones of
    /// this PEM file.
    VerifyFull(Option<PathBuf>),
    /// No encryption. All servers are on this machine.
    Disabled,
}

impl PostgresUrl {
    /// Parses an address.
    ///
    /// # Errors
    /// The problem, as a sentence for the operator. It contains no part of the address that could be a password.
    pub fn parse(text: &str) -> Result<Self, String> {
        let rest = ["postgres://", "postgresql://"].into_iter().find_map(|scheme| text.strip_prefix(scheme));
        let rest =
            rest.ok_or_else(|| format!("the address begins with neither postgres:// nor postgresql://: {FORM}"))?;
        if rest.contains('#') {
            return Err("the address has a fragment (#): write # as %23".into());
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, servers) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (user, password) = login.split_once(':').map_or((login, None), |(user, text)| (user, Some(text)));

        let parameters = Parameters::parse(query)?;
        let user = decode(user, "the user")?;
        if user.is_empty() && rest.contains('@') && !authority.contains('@') {
            return Err("the address has a / before the @: in a password, write / as %2F".into());
        }
        if user.is_empty() {
            return Err(format!("the address names no user: {FORM}"));
        }
        let database = decode(database, "the database")?;
        if database.is_empty() || database.contains('/') {
            return Err(format!("the address names no database, or more than one: {FORM}"));
        }
        let password = match (password, parameters.passfile) {
            (Some(_), Some(_)) => return Err("the address has both a password and passfile: keep one of them".into()),
            (Some(text), None) => Some(Password::Text(decode(text, "the password")?.into())),
            (None, file) => file.map(Password::File),
        };
        let hosts = hosts(servers, parameters.host.as_deref())?;
        let tls = tls(parameters.sslmode.as_deref(), parameters.sslrootcert, &hosts)?;
        let schema = parameters.schema.unwrap_or_else(|| DEFAULT_SCHEMA.into());
        let connect_timeout = parameters.connect_timeout.unwrap_or(DEFAULT_CONNECT_TIMEOUT);
        Ok(Self { hosts, user, database, password, schema, tls, connect_timeout })
    }

    /// The file with the password.
    pub fn passfile(&self) -> Option<&Path> {
        match &self.password {
            Some(Password::File(path)) => Some(path),
            Some(Password::Text(_)) | None => None,
        }
    }

    /// The schema of the database in which the tables are.
    pub fn schema(&self) -> &str {
        &self.schema
    }
}

impl fmt::Display for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts: Vec<String> = self.hosts.iter().map(Host::to_string).collect();
        write!(f, "postgres://{}@{}/{}?schema={}", self.user, hosts.join(","), self.database, self.schema)
    }
}

impl fmt::Debug for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PostgresUrl({self}, {:?})", self.tls)
    }
}

/// The parameters of an address.
#[derive(Default)]
struct Parameters {
    host: Option<String>,
    sslmode: Option<String>,
    sslrootcert: Option<PathBuf>,
    passfile: Option<PathBuf>,
    schema: Option<String>,
    connect_timeout: Option<Duration>,
}

impl Parameters {
    fn parse(query: &str) -> Result<Self, String> {
        let mut found = Self::default();
        let mut seen = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let Some((name, value)) = pair.split_once('=') else {
                return Err("the address has a parameter without a value: use name=value".into());
            };
            if seen.contains(&name) {
                return Err(format!("the address has the parameter {name} twice"));
            }
            seen.push(name);
            found.set(name, decode(value, name)?)?;
        }
        Ok(found)
    }

    fn set(&mut self, name: &str, value: String) -> Result<(), String> {
        match name {
            "host" => self.host = Some(value),
            "sslmode" => self.sslmode = Some(value),
            "sslrootcert" if value == "system" => {} // libpq's word for the roots of the system, which are used anyway
            "sslrootcert" => self.sslrootcert = Some(absolute(name, value)?),
            "passfile" => self.passfile = Some(absolute(name, value)?),
            "schema" => self.schema = Some(schema(value)?),
            "connect_timeout" => {
                let seconds = value.parse().ok().filter(|seconds| (1..=300).contains(seconds));
                let seconds = seconds.ok_or("connect_timeout: use a number of seconds from 1 to 300")?;
                self.connect_timeout = Some(Duration::from_secs(seconds));
            }
            "target_session_attrs" if value == "read-write" => {}
            "target_session_attrs" => {
                return Err("target_session_attrs: only read-write is supported, because the store writes".into());
            }
            "user" | "password" | "port" | "dbname" => {
                return Err(format!("{name} is not a parameter here: {FORM}"));
            }
            _ => {
                let name: String = name.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '_').take(40).collect();
                return Err(format!(
                    "the parameter {name} is not supported: use host, sslmode, sslrootcert, target_session_attrs, \
                     passfile, schema or connect_timeout"
                ));
            }
        }
        Ok(())
    }
}

/// An absolute path: the daemon's working directory is arbitrary.
fn absolute(name: &str, value: String) -> Result<PathBuf, String> {
    let path = PathBuf::from(value);
    if path.is_absolute() { Ok(path) } else { Err(format!("{name}: use an absolute path")) }
}

/// The name of a schema. Lower case and digits: such a name needs no quotes in any tool.
fn schema(name: String) -> Result<String, String> {
    let plain = name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    let begins = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
    if plain && begins && name.len() <= 63 && !name.starts_with("pg_") && name != "information_schema" {
        return Ok(name);
    }
    Err("schema: use 1 to 63 lower-case letters, digits and underscores, not beginning with a digit or pg_".into())
}

fn hosts(servers: &str, parameter: Option<&str>) -> Result<Vec<Host>, String> {
    let all = match (servers.is_empty(), parameter) {
        (false, Some(_)) => return Err("the address has servers before the database and as host: keep one".into()),
        (false, None) => servers.split(',').map(|one| server(one, true)).collect::<Result<Vec<_>, _>>()?,
        (true, Some(list)) => list.split(',').map(|one| server(one, false)).collect::<Result<Vec<_>, _>>()?,
        (true, None) => return Err(format!("the address names no server: {FORM}, or host=/DIRECTORY for a socket")),
    };
    if all.len() > HOSTS_MAX {
        return Err(format!("the address names more than {HOSTS_MAX} servers"));
    }
    Ok(all)
}

/// One server. `encoded`: `%` escapes are not decoded yet.
fn server(text: &str, encoded: bool) -> Result<Host, String> {
    let (name, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (name, port) = rest.split_once(']').ok_or("a server begins with [ and has no ]")?;
            (name, port.strip_prefix(':'))
        }
        None => text.rsplit_once(':').map_or((text, None), |(name, port)| (name, Some(port))),
    };
    let port = match port {
        None => DEFAULT_PORT,
        // No part of the text is repeated: a password with an unescaped @ or / may be in it.
        Some(port) => port.parse().ok().filter(|port| *port > 0).ok_or_else(|| {
            "the port of a server is not a number from 1 to 65535; in a password, write @ as %40, / as %2F and : as %3A"
                .to_owned()
        })?,
    };
    let name = if encoded { decode(name, "a server")? } else { name.to_owned() };
    if name.is_empty() {
        return Err(format!("the address has an empty server: {FORM}"));
    }
    if name.starts_with('/') {
        return Ok(Host::Unix(name.into(), port));
    }
    if name.contains(|c: char| c == '/' || c == '@' || c.is_whitespace() || c.is_control()) {
        return Err("a server's name has characters that no name has; in a password, write @ as %40".into());
    }
    Ok(Host::Tcp(name, port))
}

fn tls(mode: Option<&str>, root: Option<PathBuf>, hosts: &[Host]) -> Result<Tls, String> {
    match mode {
        None | Some("verify-full") => Ok(Tls::VerifyFull(root)),
        Some("disable") if root.is_some() => Err("sslrootcert has no effect with sslmode=disable: remove one".into()),
        Some("disable") if hosts.iter().all(Host::is_local) => Ok(Tls::Disabled),
        Some("disable") => {
            Err("sslmode=disable is only for sockets, localhost and loopback addresses: remove it, and give the \
                 server a certificate (sslrootcert=/PATH names the root of a private one)"
                .into())
        }
        Some("allow" | "prefer" | "require" | "verify-ca") => Err(
            "this sslmode does not verify the server: use verify-full, with sslrootcert=/PATH for a private root, or \
                 disable on this machine"
                .into(),
        ),
        Some(_) => Err("sslmode: use verify-full or disable".into()),
    }
}

/// Decodes `%` escapes.
fn decode(text: &str, what: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        if byte != b'%' {
            bytes.push(byte);
            rest = after;
            continue;
        }
        let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let decoded = digits.filter(|text| text.bytes().all(|b| b.is_ascii_hexdigit()));
        let decoded = decoded.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(decoded.ok_or_else(|| format!("{what} has a % without two hexadecimal digits: write % as %25"))?);
        rest = &after[2..];
    }
    let decoded = String::from_utf8(bytes).map_err(|_| format!("{what} is not UTF-8"))?;
    if decoded.contains('\0') { Err(format!("{what} contains a NUL character")) } else { Ok(decoded) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(name: &str, port: u16) -> Host {
        Host::Tcp(name.into(), port)
    }

    #[test]
    fn an_address_names_servers_user_database_and_schema() {
        let unix = |port| Host::Unix("/run/postgresql".into(), port);
        for (text, hosts, user, database, schema) in [
            ("postgres://u@db.example/d", vec![tcp("db.example", 5432)], "u", "d", "belay"),
            ("postgresql://u:p@db:6000/d?schema=other", vec![tcp("db", 6000)], "u", "d", "other"),
            (
                "postgres://a%40b:p@[::1]:7,h2,127.0.0.1:9/x%20y",
                vec![tcp("::1", 7), tcp("h2", 5432), tcp("127.0.0.1", 9)],
                "a@b",
                "x y",
                "belay",
            ),
            ("postgres://u@%2Frun%2Fpostgresql:5433/d", vec![unix(5433)], "u", "d", "belay"),
            ("postgres://u@/d?host=/run/postgresql", vec![unix(5432)], "u", "d", "belay"),
            ("postgres://u@/d?host=%2Frun%2Fpostgresql%3A1,b", vec![unix(1), tcp("b", 5432)], "u", "d", "belay"),
            (
                "postgres://u@h/d?target_session_attrs=read-write&connect_timeout=3",
                vec![tcp("h", 5432)],
                "u",
                "d",
                "belay",
            ),
        ] {
            let url = PostgresUrl::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(
                (url.hosts, url.user.as_str(), url.database.as_str(), url.schema.as_str()),
                (hosts, user, database, schema),
                "{text}"
            );
        }
    }

    #[test]
    fn a_wrong_address_is_refused_in_words_without_its_password() {
        for (text, word) in [
            ("postgres://h/d", "no user"),
            ("postgres://:hunter2@h/d", "no user"),
            ("postgres://u:hunter2@h", "no database"),
            ("postgres://u:hunter2@h/", "no database"),
            ("postgres://u:hunter2@h/a/b", "more than one"),
            ("postgres://u:hunter2@/d", "no server"),
            ("postgres://u:hunter2@h,/d", "empty server"),
            ("postgres://u:hunter2@h/d?host=i", "keep one"),
            ("postgres://u:hunter2/x@h/d", "%2F"),
            ("postgres://u:hunter2@h:5x/d", "port"),
            ("postgres://u:hunter2@h:0/d", "port"),
            ("postgres://u:hunter2@h:99999/d", "port"),
            ("postgres://u:hunter2%@h/d", "%25"),
            ("postgres://u:hunter2%+1@h/d", "%25"),
            ("postgres://u:hunter2%ff@h/d", "UTF-8"),
            ("postgres://u:hunter2%00@h/d", "NUL"),
            ("postgres://u:hunter2#@h/d", "%23"),
            ("postgres://u:hunter2@h/d?passfile=/f", "keep one"),
            ("postgres://u@h/d?passfile=f", "absolute"),
            ("postgres://u@h/d?schema=pg_x", "schema"),
            ("postgres://u@h/d?schema=Belay", "schema"),
            ("postgres://u@h/d?schema=", "schema"),
            ("postgres://u@h/d?connect_timeout=0", "connect_timeout"),
            ("postgres://u@h/d?target_session_attrs=any", "read-write"),
            ("postgres://u@h/d?options=-c", "options"),
            ("postgres://u@h/d?password=hunter2", "password is not a parameter"),
            ("postgres://u@h/d?schema=a&schema=b", "twice"),
            ("postgres://u@h/d?schema", "without a value"),
            ("mysql://u:hunter2@h/d", "postgres://"),
        ] {
            let error = PostgresUrl::parse(text).expect_err(text);
            assert!(error.contains(word), "{text}: {error}");
            assert!(!error.contains("hunter2"), "{text}: {error}");
        }
    }

    #[test]
    fn tls_is_verified_unless_the_server_is_on_this_machine() {
        let full = |root: Option<&str>| Ok(Tls::VerifyFull(root.map(PathBuf::from)));
        for (text, expected) in [
            ("postgres://u@h/d", full(None)),
            ("postgres://u@h/d?sslmode=verify-full&sslrootcert=/r.pem", full(Some("/r.pem"))),
            ("postgres://u@h/d?sslrootcert=system", full(None)),
            ("postgres://u@localhost,127.3.2.1,[::1]/d?sslmode=disable", Ok(Tls::Disabled)),
            ("postgres://u@/d?host=/run&sslmode=disable", Ok(Tls::Disabled)),
            ("postgres://u@localhost,h/d?sslmode=disable", Err("loopback")),
            ("postgres://u@localhost.example/d?sslmode=disable", Err("loopback")),
            ("postgres://u@localhost/d?sslmode=disable&sslrootcert=/r.pem", Err("no effect")),
            ("postgres://u@h/d?sslmode=require", Err("does not verify")),
            ("postgres://u@h/d?sslmode=prefer", Err("does not verify")),
            ("postgres://u@h/d?sslmode=verify-ca", Err("does not verify")),
            ("postgres://u@h/d?sslmode=on", Err("verify-full or disable")),
        ] {
            match (PostgresUrl::parse(text).map(|url| url.tls), expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{text}"),
                (Err(error), Err(word)) => assert!(error.contains(word), "{text}: {error}"),
                (found, _) => panic!("{text}: {found:?}"),
            }
        }
    }

    #[test]
    fn the_password_is_decoded_and_never_shown() {
        let url = PostgresUrl::parse("postgres://u:p%40ss:w%2Frd@h/d").unwrap();
        assert!(url.password == Some(Password::Text("p@ss:w/rd".to_owned().into())));
        for shown in [format!("{url}"), format!("{url:?}"), format!("{:?}", Some(&url))] {
            assert!(!shown.contains("p@ss") && shown.contains("u@h:5432/d"), "{shown}");
        }
    }
}
