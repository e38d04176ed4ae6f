//! The host of a URL: one canonical text, and every way in which clients read it (AADP §19).
//! Absent on purpose: opaque hosts in the sense of WHATWG. `redis://0x7f.1/` is judged like `http://0x7f.1/`, since
//! the resolver that sees the host does not see the scheme.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use idna::AsciiDenyList;
use idna::uts46::{DnsLength, Hyphens, Uts46};

use super::{UrlError, shown};

/// What UTS 46 may not yield either: all of ASCII but letters, digits, `-`, `_` and dots. Wider than WHATWG's list:
/// globbing and quoting characters make one host of a URL into several for the tools that run it.
const DENIED: AsciiDenyList = AsciiDenyList::new(true, "!\"#$%&'()*+,/:;<=>?@[\\]^`{|}~");

/// Longest label and longest name, in octets (RFC 1035).
const LABEL_BYTES_MAX: usize = 63;
const NAME_BYTES_MAX: usize = 253;

/// A host that has been interpreted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Host {
    /// The canonical text.
    pub(super) text: String,
    /// The first is the canonical one.
    pub(super) readings: Vec<Reading>,
}

/// What a client may take a host for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// Canonical, ASCII.
    Name(String),
    Address(IpAddr),
}

/// Interprets a host as it stands in a URL, an IPv6 address in its brackets.
pub(super) fn interpret(text: &str) -> Result<Host, UrlError> {
    if text.starts_with('[') {
        return ipv6(text);
    }
    let decoded = decode_once(text)?;
    let forbidden = |c: &char| c.is_ascii() && !c.is_ascii_alphanumeric() && !matches!(c, '-' | '_' | '.');
    if let Some(found) = decoded.chars().find(forbidden) {
        return Err(UrlError::Forbidden { host: shown(text), found: found.escape_debug().to_string() });
    }
    // Number parsers of several languages take any digit of Unicode; UTS 46 maps only some of them.
    if let Some(found) = decoded.chars().find(|c| !c.is_ascii() && c.is_numeric()) {
        return Err(UrlError::Digit { host: shown(text), found });
    }
    let name = ascii_name(&decoded)?;
    // After the mapping: only now every spelling of a digit, a dot or an `x` is the ASCII one.
    if ends_in_number(&name) {
        return ipv4(&name).ok_or_else(|| UrlError::Ipv4(shown(text)));
    }
    let mut readings = vec![Reading::Name(name.clone())];
    if let Some(other) = transitional(&decoded).filter(|other| *other != name) {
        readings.push(Reading::Name(other));
    }
    Ok(Host { text: name, readings })
}

/// Undoes percent-encoding once; what is still encoded was encoded twice, and is refused.
fn decode_once(text: &str) -> Result<String, UrlError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    let digit = |byte: Option<u8>| byte.and_then(|b| char::from(b).to_digit(16)).and_then(|d| u8::try_from(d).ok());
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let (Some(high), Some(low)) = (digit(rest.next()), digit(rest.next())) else {
            return Err(UrlError::Percent(shown(text)));
        };
        bytes.push((high << 4) | low);
    }
    let decoded = String::from_utf8(bytes).map_err(|_| UrlError::Percent(shown(text)))?;
    if decoded.contains('%') {
        return Err(UrlError::DoubleEncoding(shown(text)));
    }
    Ok(decoded)
}

/// The ASCII form of a name under UTS 46, without trailing dots, with the lengths that DNS allows.
fn ascii_name(decoded: &str) -> Result<String, UrlError> {
    let refuse = || UrlError::Name(shown(decoded));
    // Lengths come after the trailing dots; hyphens are free, since real names break the rule about them.
    let mapped =
        Uts46::new().to_ascii(decoded.as_bytes(), DENIED, Hyphens::Allow, DnsLength::Ignore).map_err(|_| refuse())?;
    let name = mapped.trim_end_matches('.');
    if name.is_empty() {
        return Err(if mapped.is_empty() { UrlError::HostEmpty } else { refuse() });
    }
    let label_ok = |label: &str| !label.is_empty() && label.len() <= LABEL_BYTES_MAX;
    if name.len() > NAME_BYTES_MAX || !name.split('.').all(label_ok) {
        return Err(refuse());
    }
    Ok(name.to_owned())
}

/// The name as clients of IDNA 2003 read it: four characters that have their own meaning since were others, or
/// nothing, then.
fn transitional(decoded: &str) -> Option<String> {
    if !decoded.contains(['ß', 'ẞ', 'ς', '\u{200c}', '\u{200d}']) {
        return None;
    }
    let replaced = decoded.replace(['ß', 'ẞ'], "ss").replace('ς', "σ").replace(['\u{200c}', '\u{200d}'], "");
    ascii_name(&replaced).ok()
}

/// Whether a name is an IPv4 address or nothing (WHATWG, "ends in a number").
fn ends_in_number(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or_default();
    match last.strip_prefix("0x") {
        Some(digits) => digits.bytes().all(|b| b.is_ascii_hexdigit()),
        None => last.bytes().all(|b| b.is_ascii_digit()),
    }
}

/// An IPv4 address of 1 to 4 parts. A leading zero means octal to most clients and nothing to some: both are read.
fn ipv4(name: &str) -> Option<Host> {
    let address = ipv4_of(name, 8)?;
    let mut readings = vec![Reading::Address(address.into())];
    if let Some(other) = ipv4_of(name, 10).filter(|other| *other != address) {
        readings.push(Reading::Address(other.into()));
    }
    Some(Host { text: address.to_string(), readings })
}

/// The address, where `zero_radix` is what a leading zero means. The last part fills the bytes that are left.
fn ipv4_of(name: &str, zero_radix: u32) -> Option<Ipv4Addr> {
    let parts: Vec<u32> = name.split('.').map(|part| ipv4_part(part, zero_radix)).collect::<Option<_>>()?;
    let (last, leading) = parts.split_last()?;
    let mut bits = 0_u32;
    for part in leading {
        bits = (bits << 8) | u32::from(u8::try_from(*part).ok()?);
    }
    let bytes_left = 4_u32.checked_sub(u32::try_from(leading.len()).ok()?)?;
    let room = 8 * bytes_left;
    // Four leading parts leave no room for the last.
    if room == 0 || u64::from(*last) >= 1_u64 << room {
        return None;
    }
    let high = bits.checked_shl(room).unwrap_or(0);
    Some(Ipv4Addr::from_bits(high | *last))
}

fn ipv4_part(part: &str, zero_radix: u32) -> Option<u32> {
    match part.strip_prefix("0x") {
        // WHATWG reads the bare prefix as zero.
        Some("") => Some(0),
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None if part.starts_with('0') => u32::from_str_radix(part, zero_radix).ok(),
        None => part.parse().ok(),
    }
}

/// An IPv6 address in brackets; its zone, which only one machine knows the meaning of, is refused.
fn ipv6(text: &str) -> Result<Host, UrlError> {
    let inner = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    let address: Ipv6Addr = inner.and_then(|inner| inner.parse().ok()).ok_or_else(|| UrlError::Ipv6(shown(text)))?;
    let own = std::iter::once(IpAddr::V6(address));
    let readings = own.chain(embedded(address).into_iter().map(IpAddr::V4)).map(Reading::Address).collect();
    Ok(Host { text: format!("[{address}]"), readings })
}

/// The IPv4 addresses to which traffic for an IPv6 address may go. A translator whose prefix is its network's own
/// (RFC 6052) cannot be recognised: declare that prefix beside the IPv4 network.
fn embedded(address: Ipv6Addr) -> Vec<Ipv4Addr> {
    let v4 = |high: u16, low: u16| Ipv4Addr::from_bits((u32::from(high) << 16) | u32::from(low));
    // The low byte of one segment, then the high byte of the next.
    let astride = |first: u16, second: u16| (first << 8) | (second >> 8);
    let mut found = match address.segments() {
        // Compatible, mapped (RFC 4291) and translated (RFC 2765).
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low] | [0, 0, 0, 0, 0xffff, 0, high, low] => vec![v4(high, low)],
        // 6to4 (RFC 3056).
        [0x2002, high, low, ..] => vec![v4(high, low)],
        // NAT64 (RFC 6052).
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => vec![v4(high, low)],
        // NAT64 of local use (RFC 8215): prefixes of 48, 56, 64 and 96 bits; bits 64 to 71 are skipped.
        [0x64, 0xff9b, 1, d, e, f, g, h] => {
            vec![v4(d, astride(e, f)), v4((d << 8) | (e & 0xff), f), v4(astride(e, f), astride(f, g)), v4(g, h)]
        }
        // Teredo (RFC 4380): the server, and the client with its bits inverted.
        [0x2001, 0, high, low, _, _, g, h] => vec![v4(high, low), v4(!g, !h)],
        _ => Vec::new(),
    };
    // ISATAP (RFC 5214), below any prefix.
    if let [_, _, _, _, 0 | 0x200, 0x5efe, high, low] = address.segments() {
        found.push(v4(high, low));
    }
    found
}
