//! Settings of `[channels.mail]`.

use std::path::PathBuf;

use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use crate::server::{Protocol, Server};

/// The variable of the password.
pub const PASSWORD_ENV: &str = "MAIL_PASSWORD";

/// Longest address, in bytes. 200: a session key of 256 bytes has an address and the digest of a thread. RFC 5321
/// allows 254.
const ADDRESS_MAX_BYTES: usize = 200;

/// Settings of `[channels.mail]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MailConfig {
    /// Belay's own address. Absent: the channel is off.
    pub address: Option<String>,
    /// The address of the IMAP server, see [`Server::parse`].
    pub imap: String,
    /// The address of the SMTP server, see [`Server::parse`].
    pub smtp: String,
    /// The name at the login. Absent: the address.
    pub user: Option<String>,
    /// File with the password. Absent: the variable [`PASSWORD_ENV`].
    pub password_file: Option<PathBuf>,
    /// The name by which the own server signs its `Authentication-Results` (RFC 8601, `authserv-id`).
    pub authserv_id: String,
    /// Addresses of the people who may write to Belay. Empty: only the operators may.
    pub allow: Vec<String>,
    /// Addresses of people who may do everything. They may also write to Belay.
    pub operators: Vec<String>,
}

/// The secret of the channel, which must not be in a settings file.
pub struct MailSecrets {
    /// The password of Belay's account, at both servers.
    pub password: SecretString,
}

impl MailConfig {
    /// Whether the channel is on.
    pub fn is_on(&self) -> bool {
        self.address.is_some()
    }

    /// Whether nobody may write to Belay.
    pub fn admits_nobody(&self) -> bool {
        self.allow.is_empty() && self.operators.is_empty()
    }

    /// The name at the login.
    pub fn login(&self) -> &str {
        self.user.as_deref().or(self.address.as_deref()).unwrap_or_default()
    }

    /// Lists all problems, each starting with its key.
    pub fn validate(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut problem = |key: &str, what: String| problems.push(format!("channels.mail.{key}: {what}"));
        if self.is_on() && !cfg!(feature = "client") {
            let absent = "this build of Belay has no e-mail channel (feature mail); remove the setting, or use a build \
                          with it: `belay --version --long` lists the parts";
            problem("address", absent.to_owned());
            return problems;
        }
        if let Some(address) = self.address.as_deref().filter(|address| !is_address(address)) {
            problem("address", format!("{address:?} is no address such as belay@example.org"));
        }
        for (key, text, protocol, example) in [
            ("imap", &self.imap, Protocol::Imap, "imaps://mail.example.org"),
            ("smtp", &self.smtp, Protocol::Smtp, "smtps://mail.example.org"),
        ] {
            let is_needed = self.is_on() || !text.is_empty();
            if is_needed && Server::parse(text, protocol).is_none() {
                problem(key, format!("must be the address of a server, such as {example}"));
            }
        }
        if self.is_on() && self.authserv_id.is_empty() {
            let how = "the name before the first semicolon of the Authentication-Results that your own server adds";
            problem("authserv_id", format!("is missing: without it nobody knows who has written a mail. It is {how}"));
        }
        if self.authserv_id.contains(|c: char| c.is_whitespace() || c.is_control() || ";,=()\"\\".contains(c)) {
            problem("authserv_id", "must be one word, such as mx.example.org".to_owned());
        }
        for (key, addresses) in [("allow", &self.allow), ("operators", &self.operators)] {
            for address in addresses.iter().filter(|address| !is_address(address)) {
                problem(key, format!("{address:?} is no address such as ann@example.org"));
            }
        }
        problems
    }
}

/// Whether a text is an address, without a name and without quotes: letters, digits and a few marks of ASCII.
pub(crate) fn is_address(text: &str) -> bool {
    let is_word = |part: &str, marks: &str| {
        let is_fine = |c: char| c.is_ascii_alphanumeric() || marks.contains(c);
        !part.is_empty() && part.split('.').all(|word| !word.is_empty() && word.chars().all(is_fine))
    };
    let parts = text.rsplit_once('@');
    text.len() <= ADDRESS_MAX_BYTES
        && parts.is_some_and(|(name, domain)| is_word(name, "!#$%&'*+-/=?^_`{|}~") && is_word(domain, "-"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[cfg(feature = "client")]
    #[test]
    fn a_wrong_value_is_named_by_its_key() {
        let good = "address = \"belay@example.org\"\nimap = \"imaps://m.example.org\"\n\
                    smtp = \"smtp://m.example.org\"\nauthserv_id = \"m.example.org\"\n";
        let (no_address, no_imap) = (good.replace("belay@", "belay "), good.replace("imaps:", "https:"));
        let words = ["m; dkim=pass", "spf=pass", "m(x)", "m)", "m,x", "m;", "m x"];
        for word in words.map(|word| good.replace("\"m.example.org\"", &format!("{word:?}"))) {
            let problems = toml::from_str::<MailConfig>(&word).unwrap().validate();
            assert!(
                matches!(&*problems, [one] if one.starts_with("channels.mail.authserv_id: ")),
                "{word} {problems:?}"
            );
        }
        let rows: [(&str, &[&str]); 8] = [
            ("", &[]),
            (good, &[]),
            ("address = \"belay@example.org\"", &["imap", "smtp", "authserv_id"]),
            (&no_address, &["address"]),
            (&no_imap, &["imap"]),
            ("allow = [\"ann\"]", &["allow"]),
            ("operators = [\"Ann <ann@example.org>\"]", &["operators"]),
            ("smtp = \"mail.example.org\"", &["smtp"]),
        ];
        for (written, keys) in rows {
            let problems = toml::from_str::<MailConfig>(written).unwrap().validate();
            let found =
                problems.iter().map(|line| line.split(':').next().unwrap().trim_start_matches("channels.mail."));
            assert_eq!(found.collect::<Vec<_>>(), keys, "{written}");
        }
    }

    #[test]
    fn no_setting_is_a_secret_or_trusts_everybody() {
        assert!(toml::from_str::<MailConfig>("password = \"x\"").is_err(), "a secret is in no settings file");
        assert!(toml::from_str::<MailConfig>("trust = \"none\"").is_err(), "no setting trusts the From of a mail");
    }
}
