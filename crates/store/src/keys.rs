//! Keys. Each begins with its domain and a zero byte. Absent on purpose: values.
//!
//! ```text
//! log        d 'l' index              an entry            d 'm' name     a small value
//! evidence   d index                  canonical bytes
//! requests   d request_id             record
//! permits    d 'r' permit_id          record              d 'o' index    permit_id, while the permit is open
//! approvals  d 'r' approval_id        record              d 'o' id       nothing, while the approval is open
//! budgets    d budget 00 window 00 scope                  counter
//! policies   d digest                 canonical document  d 'r' digest   record
//! merkle     d level index            hash of a complete node
//! search     d run                    summary of a complete run of entries
//! meta       d "meta" | d "position"
//! ```
//!
//! Numbers are big-endian, so that the order of keys is the order of numbers.

use placet_core::state::CounterKey;

/// The only domain, for now.
const DOMAIN: &[u8] = b"default\0";

/// Marks a record.
pub(crate) const RECORD: u8 = b'r';

/// Marks an index key of something open.
pub(crate) const OPEN: u8 = b'o';

/// Marks a log entry.
pub(crate) const ENTRY: u8 = b'l';

/// Marks a small value beside the log.
pub(crate) const SMALL: u8 = b'm';

/// Ends a string inside a key; a zero byte in the string is followed by `FF`, so order is kept.
const END: [u8; 2] = [0, 0];

/// The column families of the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    Evidence,
    Requests,
    Permits,
    Approvals,
    Budgets,
    Policies,
    Merkle,
    Search,
    Meta,
}

impl Family {
    pub(crate) const ALL: [Self; 9] = [
        Self::Evidence,
        Self::Requests,
        Self::Permits,
        Self::Approvals,
        Self::Budgets,
        Self::Policies,
        Self::Merkle,
        Self::Search,
        Self::Meta,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Evidence => "evidence",
            Self::Requests => "requests",
            Self::Permits => "permits",
            Self::Approvals => "approvals",
            Self::Budgets => "budgets",
            Self::Policies => "policies",
            Self::Merkle => "merkle",
            Self::Search => "search",
            Self::Meta => "meta",
        }
    }
}

/// A key of parts.
pub(crate) fn key(parts: &[&[u8]]) -> Vec<u8> {
    let mut key = Vec::with_capacity(parts.iter().fold(DOMAIN.len(), |sum, part| sum + part.len()));
    key.extend_from_slice(DOMAIN);
    parts.iter().for_each(|part| key.extend_from_slice(part));
    key
}

/// What stands in a key behind the domain and `marks` bytes.
pub(crate) fn rest(key: &[u8], marks: usize) -> Option<&[u8]> {
    key.strip_prefix(DOMAIN)?.get(marks..)
}

/// The number at the end of a key.
pub(crate) fn number(key: &[u8], marks: usize) -> Option<u64> {
    rest(key, marks)?.try_into().ok().map(u64::from_be_bytes)
}

/// The first key behind all keys that begin with `prefix`.
pub(crate) fn behind(mut prefix: Vec<u8>) -> Vec<u8> {
    while let Some(last) = prefix.pop() {
        if let Some(next) = last.checked_add(1) {
            prefix.push(next);
            break;
        }
    }
    prefix
}

/// The first key behind `key`.
pub(crate) fn after(mut key: Vec<u8>) -> Vec<u8> {
    key.push(0);
    key
}

fn push_text(into: &mut Vec<u8>, text: &str) {
    for byte in text.bytes() {
        into.push(byte);
        if byte == 0 {
            into.push(0xff);
        }
    }
    into.extend_from_slice(&END);
}

fn take_text(from: &mut &[u8]) -> Option<String> {
    let mut text = Vec::new();
    loop {
        let (byte, rest) = from.split_first()?;
        *from = rest;
        if *byte == 0 {
            let (mark, rest) = from.split_first()?;
            *from = rest;
            if *mark == 0 {
                return String::from_utf8(text).ok();
            }
        }
        text.push(*byte);
    }
}

/// The key of a counter, in the order of [`CounterKey`].
pub(crate) fn counter(of: &CounterKey) -> Vec<u8> {
    let mut key = DOMAIN.to_vec();
    push_text(&mut key, &of.budget);
    push_text(&mut key, &of.window);
    match &of.scope {
        None => key.push(0),
        Some(scope) => {
            key.push(1);
            push_text(&mut key, scope);
        }
    }
    key
}

/// Reads a counter's key back.
pub(crate) fn counter_back(key: &[u8]) -> Option<CounterKey> {
    let mut from = rest(key, 0)?;
    let budget = take_text(&mut from)?;
    let window = take_text(&mut from)?;
    let (mark, mut left) = from.split_first()?;
    let scope = if *mark == 0 { None } else { Some(take_text(&mut left)?) };
    left.is_empty().then_some(CounterKey { budget, window, scope })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counter_keys_keep_their_order_and_come_back() {
        let key = |budget: &str, window: &str, scope: Option<&str>| CounterKey {
            budget: budget.to_owned(),
            window: window.to_owned(),
            scope: scope.map(str::to_owned),
        };
        let mut keys = vec![
            key("a", "2026-08", None),
            key("a", "2026-08", Some("")),
            key("a", "2026-08", Some("agent:x")),
            key("a", "2026-08-17", None),
            key("a\0b", "PT5H", Some("\0")),
            key("ab", "PT5H", Some("\0\0")),
        ];
        keys.sort();
        let mut encoded: Vec<_> = keys.iter().map(counter).collect();
        encoded.sort();
        assert_eq!(encoded.iter().map(|bytes| counter_back(bytes).unwrap()).collect::<Vec<_>>(), keys);
    }

    #[test]
    fn behind_a_prefix_is_behind_all_of_it() {
        assert_eq!(behind(vec![1, 0xff, 0xff]), vec![2]);
        assert_eq!(behind(key(&[&[OPEN]])), key(&[&[OPEN + 1]]));
    }
}
