//! URL rules: which effects an argument gains from the place that it names (AADP §19). A URL is first made canonical,
//! then compared; one that clients could read in two ways is refused, or carries each of its readings.
//! Absent on purpose: name resolution and redirects (a name is judged as a name), paths and queries (they are carried,
//! not judged), and leniency: what cannot be interpreted is an error, which denies.
//! INVARIANT (caution): whatever a common client could take for a declared place matches it or is refused.

mod host;
mod opaque;

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::json::clip;
use crate::limits::URL_BYTES_MAX;

use host::{Host, Reading};

/// Who made a URL canonical: the rules of this module, the library and the Unicode data of its tables, and the
/// Unicode data by which Rust tells digits. Evidence names it; it changes when any of them does.
pub const CANONICALIZER: &str = "placet/url/1 idna/1.1.0 unicode/18.0 rust-unicode/17.0";

/// Which URLs a rule is about. Fields stand in the order of their names: canonical JSON sorts its members.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UrlRule {
    /// Networks; they match IP literals only.
    pub cidrs: Vec<String>,
    /// Domain names; they never match IP literals.
    pub hosts: Vec<String>,
    /// Whether `hosts` cover the names below them.
    pub include_subdomains: bool,
    /// Hosts that may lead to the declared ones.
    pub opaque: Option<Opaque>,
    /// Schemes to which `cidrs` and `hosts` are limited; none means all.
    pub schemes: Vec<String>,
}

/// Hosts whose URLs do not show where they lead: each is treated as the declared target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Opaque {
    /// The well-known ones that this module lists.
    pub builtin: bool,
    /// The deployer's own.
    pub extra: Vec<String>,
}

/// A rule whose every line has been read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompiledUrlRule {
    cidrs: BTreeSet<Cidr>,
    hosts: BTreeSet<String>,
    include_subdomains: bool,
    opaque: Option<CompiledOpaque>,
    schemes: BTreeSet<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct CompiledOpaque {
    builtin: bool,
    extra: BTreeSet<String>,
}

/// How a URL meets a rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UrlMatch {
    /// A declared host or network matches, under a declared scheme.
    pub declared: bool,
    /// The opaque host that was hit, behind the list that names it: `builtin:bit.ly`, `extra:go.example.com`.
    pub opaque: Option<String>,
}

impl UrlMatch {
    /// Whether the rule's effects apply: an opaque host may lead to the declared one.
    pub fn applies(&self) -> bool {
        self.declared || self.opaque.is_some()
    }
}

/// A URL in the one spelling that rules compare. Userinfo is not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CanonicalUrl {
    scheme: String,
    host: Host,
    port: Option<u16>,
    /// Path, query and fragment, as received.
    tail: String,
}

impl CanonicalUrl {
    /// In lower case.
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// An ASCII name, an IPv4 address, or an IPv6 address in brackets.
    pub fn host(&self) -> &str {
        &self.host.text
    }

    /// None where it is the scheme's default.
    pub fn port(&self) -> Option<u16> {
        self.port
    }

    /// Scheme, host and port: what may be shown where the path could hold a secret.
    pub fn origin(&self) -> String {
        let port = self.port.map_or_else(String::new, |port| format!(":{port}"));
        format!("{}://{}{port}", self.scheme, self.host.text)
    }
}

impl fmt::Display for CanonicalUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slash = if self.tail.starts_with('/') { "" } else { "/" };
        write!(f, "{}{slash}{}", self.origin(), self.tail)
    }
}

/// Why a text is no URL that can be judged. Received text in it is clipped and holds no userinfo.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "the messages are the documentation")]
pub enum UrlError {
    #[error("the URL is longer than {URL_BYTES_MAX} bytes")]
    TooLong,
    #[error("the URL holds the control character U+{0:04X}; after the host one may stand percent-encoded")]
    Control(u32),
    #[error("`{0}` begins with no scheme; a URL is written `https://host/path`")]
    Scheme(String),
    #[error("no `//` follows the scheme `{0}`; a URL is written `https://host/path`")]
    Slashes(String),
    #[error("a backslash stands before the path, so clients disagree about the host; parts are separated by `/`")]
    Backslash,
    #[error("the userinfo holds a space or a character outside ASCII; such characters are written percent-encoded")]
    Userinfo,
    #[error(
        "an at-sign or backslash follows the `?` or `#` that ends the host, so clients disagree about the host; write \
         `/` before the `?` or `#`"
    )]
    Tail,
    #[error("port `{0}` is not a decimal number up to 65535")]
    Port(String),
    #[error("the host is empty; a URL is written `https://host/path`")]
    HostEmpty,
    #[error("host `{0}` holds a percent sign without two hexadecimal digits, or decodes to bytes that are not UTF-8")]
    Percent(String),
    #[error("host `{0}` still holds a percent sign when it is decoded once; a host is percent-encoded at most once")]
    DoubleEncoding(String),
    #[error("host `{host}` holds `{found}`; a name holds letters, digits, `-`, `_` and dots")]
    Forbidden { host: String, found: String },
    #[error("host `{host}` holds `{found}`, a digit outside ASCII; write ASCII digits, or the `xn--` form of the name")]
    Digit { host: String, found: char },
    #[error("host `{0}` is not a domain name: labels of 1 to 63 octets, 253 in all, valid under UTS 46")]
    Name(String),
    #[error("host `{0}` ends in a number and is no IPv4 address; one is written `192.0.2.1`")]
    Ipv4(String),
    #[error("host `{0}` is not an IPv6 address in brackets, without zone; one is written `[2001:db8::1]`")]
    Ipv6(String),
}

/// Makes a URL canonical (AADP §19).
pub fn canonicalize(text: &str) -> Result<CanonicalUrl, UrlError> {
    if text.len() > URL_BYTES_MAX {
        return Err(UrlError::TooLong);
    }
    let text = text.trim_matches([' ', '\t', '\n', '\u{c}', '\r']);
    // Some clients drop these, wherever they stand; others end there.
    if let Some(found) = text.chars().find(|c| c.is_control()) {
        return Err(UrlError::Control(u32::from(found)));
    }
    let (scheme, rest) = split_scheme(text)?;
    let Some(rest) = rest.strip_prefix("//") else {
        return Err(if rest.contains('\\') { UrlError::Backslash } else { UrlError::Slashes(shown(&scheme)) });
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, tail) = rest.split_at_checked(end).unwrap_or((rest, ""));
    if authority.contains('\\') {
        return Err(UrlError::Backslash);
    }
    // Old parsers end the host at the first slash only, and so find another one here.
    let before_slash = tail.split('/').next().unwrap_or_default();
    if before_slash.contains(['@', '\\']) {
        return Err(UrlError::Tail);
    }
    let (userinfo, place) = authority.rsplit_once('@').unwrap_or(("", authority));
    if !userinfo.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(UrlError::Userinfo);
    }
    let (host, port) = split_port(place)?;
    let port = port.filter(|port| default_port(&scheme) != Some(*port));
    Ok(CanonicalUrl { host: host::interpret(host)?, scheme, port, tail: tail.to_owned() })
}

/// The scheme in lower case, and what follows its colon.
fn split_scheme(text: &str) -> Result<(String, &str), UrlError> {
    match text.split_once(':') {
        Some((scheme, rest)) if is_scheme(scheme) => Ok((scheme.to_ascii_lowercase(), rest)),
        _ => Err(UrlError::Scheme(shown(text.split(['@', '/', '?', '#']).next().unwrap_or_default()))),
    }
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'))
}

/// The host, with its brackets, and the port; an empty port is none.
fn split_port(place: &str) -> Result<(&str, Option<u16>), UrlError> {
    let bracketed = place.starts_with('[');
    let colon = if bracketed { place.rfind("]:").map(|at| at + 1) } else { place.find(':') };
    let Some((host, digits)) = colon.and_then(|at| place.split_at_checked(at)) else { return Ok((place, None)) };
    let digits = digits.strip_prefix(':').unwrap_or(digits);
    if digits.is_empty() {
        return Ok((host, None));
    }
    // `parse` alone would take a sign.
    match digits.parse() {
        Ok(port) if digits.bytes().all(|b| b.is_ascii_digit()) => Ok((host, Some(port))),
        _ => Err(UrlError::Port(shown(digits))),
    }
}

fn default_port(scheme: &str) -> Option<u16> {
    match scheme {
        "ftp" => Some(21),
        "http" | "ws" => Some(80),
        "https" | "wss" => Some(443),
        _ => None,
    }
}

/// Received text for a message: short, and with nothing in it that a terminal would obey.
fn shown(text: &str) -> String {
    clip(&clip(text).escape_debug().to_string())
}

impl UrlRule {
    /// Reads every line of the rule; fails on the first that could not be compared with a URL.
    pub fn compile(&self) -> Result<CompiledUrlRule, String> {
        if self.hosts.is_empty() && self.cidrs.is_empty() && self.opaque.is_none() {
            return Err("a URL rule names no place; list `hosts`, `cidrs` or `opaque` hosts".to_owned());
        }
        let opaque = self.opaque.as_ref().map(Opaque::compile).transpose()?;
        Ok(CompiledUrlRule {
            cidrs: self.cidrs.iter().map(|text| Cidr::parse(text)).collect::<Result<_, _>>()?,
            hosts: self.hosts.iter().map(|text| declared_name(text)).collect::<Result<_, _>>()?,
            include_subdomains: self.include_subdomains,
            opaque,
            schemes: self.schemes.iter().map(|text| declared_scheme(text)).collect::<Result<_, _>>()?,
        })
    }
}

impl Opaque {
    fn compile(&self) -> Result<CompiledOpaque, String> {
        if !self.builtin && self.extra.is_empty() {
            return Err("an opaque block names nothing; set `builtin: true` or list hosts under `extra`".to_owned());
        }
        let extra = self.extra.iter().map(|text| declared_name(text)).collect::<Result<_, _>>()?;
        Ok(CompiledOpaque { builtin: self.builtin, extra })
    }
}

/// A name of the policy, through the canonicaliser of the URLs that it is compared with.
fn declared_name(text: &str) -> Result<String, String> {
    if text.starts_with("*.") {
        return Err(format!(
            "host `{}` holds a wildcard; name the parent, with `include_subdomains: true`",
            shown(text)
        ));
    }
    let literal = || format!("host `{}` is an IP address; list it under `cidrs`", shown(text));
    if text.parse::<Ipv6Addr>().is_ok() {
        return Err(literal());
    }
    let host = host::interpret(text).map_err(|error| error.to_string())?;
    match host.readings.first() {
        Some(Reading::Name(name)) => Ok(name.clone()),
        _ => Err(literal()),
    }
}

fn declared_scheme(text: &str) -> Result<String, String> {
    if is_scheme(text) {
        return Ok(text.to_ascii_lowercase());
    }
    Err(format!("scheme `{}` is not a letter, then letters, digits, `+`, `-` or `.`, as in `https`", shown(text)))
}

impl CompiledUrlRule {
    /// How `url` meets the rule. `schemes` do not limit opaque hosts: where those lead has a scheme of its own.
    pub fn matches(&self, url: &CanonicalUrl) -> UrlMatch {
        let readings = &url.host.readings;
        let scheme = self.schemes.is_empty() || self.schemes.contains(&url.scheme);
        UrlMatch {
            declared: scheme && readings.iter().any(|reading| self.declares(reading)),
            opaque: readings.iter().find_map(|reading| self.opaque_entry(reading)),
        }
    }

    /// The rule again, in the one spelling that its meaning has.
    pub fn rule(&self) -> UrlRule {
        let texts = |set: &BTreeSet<String>| set.iter().cloned().collect();
        UrlRule {
            cidrs: self.cidrs.iter().map(Cidr::to_string).collect(),
            hosts: texts(&self.hosts),
            include_subdomains: self.include_subdomains,
            opaque: self.opaque.as_ref().map(|opaque| Opaque { builtin: opaque.builtin, extra: texts(&opaque.extra) }),
            schemes: texts(&self.schemes),
        }
    }

    fn declares(&self, reading: &Reading) -> bool {
        match reading {
            Reading::Name(name) if self.include_subdomains => parents(name).any(|name| self.hosts.contains(name)),
            Reading::Name(name) => self.hosts.contains(name),
            Reading::Address(address) => self.cidrs.iter().any(|cidr| cidr.contains(*address)),
        }
    }

    fn opaque_entry(&self, reading: &Reading) -> Option<String> {
        let (Some(opaque), Reading::Name(name)) = (&self.opaque, reading) else { return None };
        if opaque.builtin && opaque::BUILTIN.contains(&name.as_str()) {
            return Some(format!("builtin:{name}"));
        }
        opaque.extra.contains(name).then(|| format!("extra:{name}"))
    }
}

/// A name, then each name above it.
fn parents(name: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(name), |name| name.split_once('.').map(|(_, parent)| parent))
}

/// A network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Cidr {
    network: IpAddr,
    length: u32,
}

impl Cidr {
    /// An address alone is the network of that address.
    fn parse(text: &str) -> Result<Self, String> {
        let unreadable =
            |why: &str| format!("`{}` {why}; a network is written `192.0.2.0/24` or `2001:db8::/32`", shown(text));
        let (network, length) = match text.split_once('/') {
            Some((network, length)) => (network, Some(length)),
            None => (text, None),
        };
        let network: IpAddr = network.parse().map_err(|_| unreadable("does not begin with an IP address"))?;
        let width = if network.is_ipv4() { Ipv4Addr::BITS } else { Ipv6Addr::BITS };
        let length = match length {
            Some(text) => text.parse().ok().filter(|length: &u32| *length <= width && length.to_string() == text),
            None => Some(width),
        };
        let cidr = Self { network, length: length.ok_or_else(|| unreadable("does not end in a prefix length"))? };
        if cidr.masked(network) != network {
            return Err(unreadable("has bits set after its prefix"));
        }
        if matches!(network, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some()) {
            return Err(unreadable("is an IPv4 network mapped into IPv6, and IPv4 rules cover those"));
        }
        Ok(cidr)
    }

    fn contains(&self, address: IpAddr) -> bool {
        address.is_ipv4() == self.network.is_ipv4() && self.masked(address) == self.network
    }

    /// The address without the bits after the prefix.
    fn masked(&self, address: IpAddr) -> IpAddr {
        match address {
            IpAddr::V4(v4) => {
                let mask = u32::MAX.checked_shl(Ipv4Addr::BITS.saturating_sub(self.length)).unwrap_or(0);
                Ipv4Addr::from_bits(v4.to_bits() & mask).into()
            }
            IpAddr::V6(v6) => {
                let mask = u128::MAX.checked_shl(Ipv6Addr::BITS.saturating_sub(self.length)).unwrap_or(0);
                Ipv6Addr::from_bits(v6.to_bits() & mask).into()
            }
        }
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network, self.length)
    }
}

#[cfg(test)]
mod tests;
