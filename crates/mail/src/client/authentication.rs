//! Who has written a mail, as the own server says in `Authentication-Results` (RFC 8601). Pure.
//!
//! Anybody can write a `From` and such a header. The own server adds its header above all others, and removes those
//! that pretend to be its own (RFC 8601, section 5). So the topmost header of the own server decides, alone: a second
//! one could have come with the mail. In it, DMARC decides alone if the domain has a policy: the server knows then
//! which of the other results count. DKIM and SPF decide only without it.

/// Whether the own server `authserv_id` confirms that a mail is of this domain. `results`: the values of the headers,
/// the topmost first.
///
/// # Errors
/// Why it does not, for the log.
pub(crate) fn confirm(results: &[String], authserv_id: &str, domain: &str) -> Result<(), &'static str> {
    let own = results.iter().map(|value| without_comments(value)).find(|value| {
        let name = value.split(';').next().and_then(|head| head.split_whitespace().next());
        name.is_some_and(|name| name.trim_matches('"').eq_ignore_ascii_case(authserv_id))
    });
    let own = own.ok_or("the own server has added no Authentication-Results")?;
    let outcomes: Vec<Outcome<'_>> = own.split(';').skip(1).filter_map(Outcome::parse).collect();
    let mut decisive = outcomes.iter().filter(|it| it.method == "dmarc" && !it.is("none")).peekable();
    let is_decided = decisive.peek().is_some();
    let is_confirmed = match is_decided {
        true => decisive.all(|dmarc| dmarc.confirms(domain)),
        false => outcomes.iter().any(|it| it.method != "dmarc" && it.confirms(domain)),
    };
    match is_confirmed {
        true => Ok(()),
        false => Err("the own server does not confirm the domain of the sender"),
    }
}

/// The result of one method.
struct Outcome<'a> {
    /// In lower case.
    method: String,
    result: &'a str,
    /// The names, in lower case, and the values.
    properties: Vec<(String, &'a str)>,
}

impl<'a> Outcome<'a> {
    /// `None`: the part is no result.
    fn parse(part: &'a str) -> Option<Self> {
        let mut words = part.split_whitespace();
        let (method, result) = words.next()?.split_once('=')?;
        let properties = words
            .filter_map(|word| word.split_once('='))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim_matches('"')));
        let method = method.split('/').next().unwrap_or_default().to_ascii_lowercase();
        Some(Self { method, result, properties: properties.collect() })
    }

    fn is(&self, result: &str) -> bool {
        self.result.eq_ignore_ascii_case(result)
    }

    fn values(&self, name: &str) -> Vec<&'a str> {
        self.properties.iter().filter(|it| it.0 == name).map(|it| it.1).collect()
    }

    /// Whether the result confirms the domain of the sender.
    fn confirms(&self, domain: &str) -> bool {
        let aligned = |value: &&str| is_aligned(value, domain);
        if !self.is("pass") {
            return false;
        }
        match self.method.as_str() {
            "dmarc" => {
                let from = self.values("header.from");
                !from.is_empty() && from.iter().all(|value| domain_of(value).eq_ignore_ascii_case(domain))
            }
            "dkim" => [self.values("header.d"), self.values("header.i")].concat().iter().any(aligned),
            "spf" => self.values("smtp.mailfrom").iter().any(aligned),
            _ => false,
        }
    }
}

/// Whether a confirmed domain stands for the domain of the sender: it is the same, or a domain above it. One below it
/// does not count, for below some domains, such as `github.io`, are those of strangers.
fn is_aligned(value: &str, domain: &str) -> bool {
    let (confirmed, domain) = (domain_of(value).to_ascii_lowercase(), domain.to_ascii_lowercase());
    let above = domain.strip_suffix(&confirmed).is_some_and(|rest| rest.ends_with('.'));
    confirmed == domain || (above && confirmed.contains('.'))
}

fn domain_of(value: &str) -> &str {
    value.rsplit_once('@').map_or(value, |(_, domain)| domain).trim_end_matches('.')
}

/// The value on one line, without comments in parentheses and without blanks around `=`. A semicolon or a blank in
/// quotes becomes `_`, so that it separates nothing.
fn without_comments(value: &str) -> String {
    let (mut plain, mut depth, mut is_quoted, mut is_escaped) = (String::new(), 0_u32, false, false);
    for c in value.chars() {
        match c {
            _ if std::mem::take(&mut is_escaped) => {}
            '\\' => is_escaped = true,
            '"' if depth == 0 => {
                is_quoted = !is_quoted;
                plain.push('"');
            }
            '(' if !is_quoted => depth = depth.saturating_add(1),
            ')' if !is_quoted => depth = depth.saturating_sub(1),
            _ if depth > 0 => {}
            ';' | '=' | ' ' | '\t' | '\r' | '\n' if is_quoted => plain.push('_'),
            c if c.is_whitespace() => {
                if !plain.ends_with([' ', '=']) {
                    plain.push(' ');
                }
            }
            '=' => {
                plain.truncate(plain.trim_end().len());
                plain.push('=');
            }
            c => plain.push(c),
        }
    }
    plain
}

#[cfg(test)]
mod tests;
