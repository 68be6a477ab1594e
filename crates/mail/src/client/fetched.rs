//! Mails as the server tells them. Pure.

use async_imap::imap_proto::AttributeValue;

/// A mail, as far as it was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fetched {
    pub(crate) uid: u32,
    pub(crate) size: u32,
    pub(crate) flags: Vec<String>,
    pub(crate) modseq: u64,
    pub(crate) arrived: String,
    pub(crate) bytes: Vec<u8>,
}

/// Adds a response to the mails. One mail may have several: a server also tells what others change meanwhile.
pub(crate) fn add(found: &mut Vec<Fetched>, values: &[AttributeValue<'_>]) {
    let uid = values.iter().find_map(|value| match value {
        AttributeValue::Uid(uid) => Some(*uid),
        _ => None,
    });
    let Some(uid) = uid else { return };
    let at = found.iter().position(|mail| mail.uid == uid).unwrap_or_else(|| {
        found.push(Fetched { uid, ..Fetched::default() });
        found.len() - 1
    });
    let Some(mail) = found.get_mut(at) else { return };
    for value in values {
        match value {
            AttributeValue::Rfc822Size(size) => mail.size = *size,
            AttributeValue::ModSeq(modseq) => mail.modseq = *modseq,
            AttributeValue::Flags(flags) => mail.flags = flags.iter().map(ToString::to_string).collect(),
            AttributeValue::InternalDate(date) => mail.arrived = date.to_string(),
            AttributeValue::BodySection { data: Some(data), .. } => mail.bytes = data.to_vec(),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;

    #[test]
    fn a_change_that_comes_between_takes_no_text_away() {
        let body = AttributeValue::BodySection { section: None, index: None, data: Some(Cow::Borrowed(&b"text"[..])) };
        let mut found = Vec::new();
        add(&mut found, &[AttributeValue::Uid(5), AttributeValue::Flags(vec!["\\Seen".into()])]);
        add(&mut found, &[AttributeValue::Uid(5), body]);
        add(&mut found, &[AttributeValue::ModSeq(7)]);
        let flags = vec!["\\Seen".to_owned()];
        assert_eq!(found, [Fetched { uid: 5, flags, bytes: b"text".to_vec(), ..Fetched::default() }]);
    }
}
