//! Strict JSON (AADP §18.1) and the canonical form of what was received (AADP §14.5).
//! Absent on purpose: binary floats. A number keeps its token; duplicates, lone surrogates and trailing data are
//! refused, so the member that is evaluated is the member that is stored.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use thiserror::Error;

use crate::exact::Exact;
use crate::limits::{BODY_BYTES_MAX, JSON_DEPTH_MAX, NUMBER_DIGITS_MAX, NUMBER_EXPONENT_MAX};

/// A received JSON value. Members are ordered by code point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Json {
    /// `null`, which for an optional member means absent.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// The token as it was received.
    Number(String),
    /// A string, unescaped.
    String(String),
    /// An array.
    Array(Vec<Json>),
    /// An object without duplicate members.
    Object(BTreeMap<String, Json>),
}

/// Why bytes are not acceptable JSON. The text is for humans; `kind` is the stable word in evidence.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{detail} at byte {at}")]
pub struct JsonError {
    /// `encoding`, `syntax`, `duplicate_member`, `number`, `surrogate`, `depth`, `size` or `trailing_data`.
    pub kind: &'static str,
    /// What was found.
    pub detail: String,
    /// Where, from 0.
    pub at: usize,
}

/// One top-level member: its value, and its bytes exactly as received.
#[derive(Clone, Debug)]
pub struct Member<'a> {
    /// The parsed value.
    pub value: Json,
    /// The text it was parsed from.
    pub raw: &'a str,
}

/// The top-level members of a message, by name.
pub type Members<'a> = BTreeMap<Cow<'a, str>, Member<'a>>;

/// Parses one value that fills the whole input.
pub fn parse(text: &[u8]) -> Result<Json, JsonError> {
    Parser::new(text)?.whole()
}

/// Parses what a record holds. What was within the bounds when it was received may be beyond them in canonical form,
/// which writes exponents out; its bounds were checked before it was recorded.
pub fn parse_record(text: &[u8]) -> Result<Json, JsonError> {
    Parser { received: false, ..Parser::of(text)? }.whole()
}

/// Parses an object that fills the whole input, keeping each member's bytes.
pub fn parse_members(text: &[u8]) -> Result<Members<'_>, JsonError> {
    let mut parser = Parser::new(text)?;
    if parser.peek() != Some(b'{') {
        return Err(parser.error("syntax", "the body is not a JSON object"));
    }
    let mut members = BTreeMap::new();
    parser.members(0, |parser, name| {
        parser.space();
        let start = parser.at;
        let value = parser.value(1)?;
        let raw = parser.text.get(start..parser.at).unwrap_or_default();
        parser.insert(members.entry(name), Member { value, raw })
    })?;
    parser.end()?;
    Ok(members)
}

/// The canonical text of a value: sorted members, minimal escapes, numbers as exact decimals (AADP §14.5). Two
/// spellings of one value give one text; a number and a string never do.
pub fn canonical(value: &Json) -> String {
    let mut out = String::new();
    write_canonical(value, &mut out);
    out
}

/// The canonical text of an object that has these members.
pub fn canonical_object(members: &BTreeMap<String, Json>) -> String {
    let mut out = String::new();
    write_object(members, &mut out);
    out
}

fn write_object(members: &BTreeMap<String, Json>, out: &mut String) {
    out.push('{');
    for (at, (name, member)) in members.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        write_string(name, out);
        out.push(':');
        write_canonical(member, out);
    }
    out.push('}');
}

fn write_canonical(value: &Json, out: &mut String) {
    match value {
        Json::Null => out.push_str("null"),
        Json::Bool(flag) => out.push_str(if *flag { "true" } else { "false" }),
        Json::Number(token) => match Exact::parse_number(token) {
            Some(exact) => out.push_str(&exact.to_string()),
            None => out.push_str(token),
        },
        Json::String(text) => write_string(text, out),
        Json::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                write_canonical(item, out);
            }
            out.push(']');
        }
        Json::Object(members) => write_object(members, out),
    }
}

/// Writes a JSON string with the escapes that JSON demands and no others.
pub fn write_string(text: &str, out: &mut String) {
    out.push('"');
    if !text.bytes().any(|byte| byte < b' ' || matches!(byte, b'"' | b'\\')) {
        out.push_str(text);
        out.push('"');
        return;
    }
    for letter in text.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            control if control < ' ' => out.push_str(&format!("\\u{:04x}", u32::from(control))),
            other => out.push(other),
        }
    }
    out.push('"');
}

/// Received text for a message to a human: short, whatever was sent.
pub(crate) fn clip(text: &str) -> String {
    const SHOWN_CHARS_MAX: usize = 60;
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    /// Whether the bounds of received text hold.
    received: bool,
}

impl<'a> Parser<'a> {
    fn new(bytes: &'a [u8]) -> Result<Self, JsonError> {
        if bytes.len() > BODY_BYTES_MAX {
            let detail = "the body is larger than 1 MiB".to_owned();
            return Err(JsonError { kind: "size", detail, at: BODY_BYTES_MAX });
        }
        Self::of(bytes)
    }

    fn of(bytes: &'a [u8]) -> Result<Self, JsonError> {
        let refuse = |kind, detail: &str, at| Err(JsonError { kind, detail: detail.to_owned(), at });
        let text = match std::str::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => return refuse("encoding", "the body is not UTF-8", error.valid_up_to()),
        };
        if text.starts_with('\u{feff}') {
            return refuse("encoding", "the body starts with a byte order mark", 0);
        }
        let mut parser = Self { text, at: 0, received: true };
        parser.space();
        Ok(parser)
    }

    fn whole(mut self) -> Result<Json, JsonError> {
        let value = self.value(0)?;
        self.end()?;
        Ok(value)
    }

    fn error(&self, kind: &'static str, detail: impl Into<String>) -> JsonError {
        JsonError { kind, detail: detail.into(), at: self.at }
    }

    fn unexpected(&self, wanted: &str) -> JsonError {
        match self.text.get(self.at..).and_then(|rest| rest.chars().next()) {
            Some(found) => self.error("syntax", format!("found `{}` where {wanted} belongs", found.escape_debug())),
            None => self.error("syntax", format!("the body ends where {wanted} belongs")),
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn end(&mut self) -> Result<(), JsonError> {
        self.space();
        if self.at == self.text.len() { Ok(()) } else { Err(self.error("trailing_data", "data after the value")) }
    }

    fn value(&mut self, depth: usize) -> Result<Json, JsonError> {
        self.space();
        match self.peek() {
            Some(b'{') => {
                let mut members = BTreeMap::new();
                self.members(depth, |parser, name| {
                    let value = parser.value(depth + 1)?;
                    parser.insert(members.entry(name.into_owned()), value)
                })?;
                Ok(Json::Object(members))
            }
            Some(b'[') => self.array(depth),
            Some(b'"') => self.string().map(|text| Json::String(text.into_owned())),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => {
                for (word, value) in [("null", Json::Null), ("true", Json::Bool(true)), ("false", Json::Bool(false))] {
                    if self.text.get(self.at..).is_some_and(|rest| rest.starts_with(word)) {
                        self.at += word.len();
                        return Ok(value);
                    }
                }
                Err(self.unexpected("a JSON value"))
            }
        }
    }

    fn deeper(&self, depth: usize) -> Result<(), JsonError> {
        if depth < JSON_DEPTH_MAX { Ok(()) } else { Err(self.error("depth", "nested deeper than 64")) }
    }

    /// Keeps a member, whose name must be new.
    fn insert<N: Ord + AsRef<str>, V>(&self, place: Entry<'_, N, V>, value: V) -> Result<(), JsonError> {
        match place {
            Entry::Vacant(place) => {
                place.insert(value);
                Ok(())
            }
            Entry::Occupied(taken) => {
                let name = clip(taken.key().as_ref());
                Err(self.error("duplicate_member", format!("member `{name}` appears twice")))
            }
        }
    }

    /// Walks the members of an object; `each` parses one value and keeps it.
    fn members(
        &mut self,
        depth: usize,
        mut each: impl FnMut(&mut Self, Cow<'a, str>) -> Result<(), JsonError>,
    ) -> Result<(), JsonError> {
        self.deeper(depth)?;
        self.at += 1;
        self.space();
        if self.take(b'}') {
            return Ok(());
        }
        loop {
            self.space();
            if self.peek() != Some(b'"') {
                return Err(self.unexpected("a member name"));
            }
            let name = self.string()?;
            self.space();
            if !self.take(b':') {
                return Err(self.unexpected("`:`"));
            }
            each(self, name)?;
            self.space();
            if self.take(b'}') {
                return Ok(());
            }
            if !self.take(b',') {
                return Err(self.unexpected("`,` or `}`"));
            }
        }
    }

    fn array(&mut self, depth: usize) -> Result<Json, JsonError> {
        self.deeper(depth)?;
        self.at += 1;
        let mut items = Vec::new();
        self.space();
        if self.take(b']') {
            return Ok(Json::Array(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            self.space();
            if self.take(b']') {
                return Ok(Json::Array(items));
            }
            if !self.take(b',') {
                return Err(self.unexpected("`,` or `]`"));
            }
        }
    }

    /// A string, unescaped; borrowed where nothing was escaped.
    fn string(&mut self) -> Result<Cow<'a, str>, JsonError> {
        self.at += 1;
        let mut out = Cow::Borrowed("");
        loop {
            let rest = self.text.get(self.at..).unwrap_or_default();
            let Some(stop) = rest.bytes().position(|b| b == b'"' || b == b'\\' || b < b' ') else {
                self.at = self.text.len();
                return Err(self.error("syntax", "a string does not end"));
            };
            out += rest.get(..stop).unwrap_or_default();
            self.at += stop;
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(out);
                }
                Some(b'\\') => {
                    self.at += 1;
                    out.to_mut().push(self.escape()?);
                }
                _ => return Err(self.error("syntax", "a control character inside a string")),
            }
        }
    }

    fn escape(&mut self) -> Result<char, JsonError> {
        let letter = match self.peek() {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode_escape(),
            _ => return Err(self.unexpected("an escape")),
        };
        self.at += 1;
        Ok(letter)
    }

    fn unicode_escape(&mut self) -> Result<char, JsonError> {
        let lone = |parser: &Self| parser.error("surrogate", "a lone surrogate");
        let first = self.hex_unit()?;
        let code = match first {
            0xd800..=0xdbff => {
                if !(self.take(b'\\') && self.peek() == Some(b'u')) {
                    return Err(lone(self));
                }
                let second = self.hex_unit()?;
                if !(0xdc00..=0xdfff).contains(&second) {
                    return Err(lone(self));
                }
                0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00)
            }
            other => other,
        };
        char::from_u32(code).ok_or_else(|| lone(self))
    }

    /// Reads `uXXXX`, standing on the `u`.
    fn hex_unit(&mut self) -> Result<u32, JsonError> {
        let digits = self.text.get(self.at + 1..self.at + 5).unwrap_or_default();
        if digits.len() != 4 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(self.error("syntax", "`\\u` without four hex digits"));
        }
        self.at += 5;
        u32::from_str_radix(digits, 16).map_err(|_| self.error("syntax", "`\\u` without four hex digits"))
    }

    fn number(&mut self) -> Result<Json, JsonError> {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E')) {
            self.at += 1;
        }
        let token = self.text.get(start..self.at).unwrap_or_default();
        let (mantissa, exponent) = token.split_once(['e', 'E']).unwrap_or((token, "0"));
        let digits = mantissa.bytes().filter(u8::is_ascii_digit).count();
        let exponent_digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        let shaped = !exponent_digits.is_empty() && exponent_digits.bytes().all(|b| b.is_ascii_digit());
        if digits > NUMBER_DIGITS_MAX && self.received {
            return Err(self.error("number", "a number of more than 64 digits"));
        }
        if shaped && !exponent.parse::<i32>().is_ok_and(|e| (-NUMBER_EXPONENT_MAX..=NUMBER_EXPONENT_MAX).contains(&e)) {
            return Err(self.error("number", "a number whose exponent is outside -64 to 64"));
        }
        if !shaped || Exact::parse_number(token).is_none() {
            return Err(self.error("number", format!("`{}` is not a JSON number", clip(token))));
        }
        Ok(Json::Number(token.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(text: &[u8]) -> &'static str {
        parse(text).map_or_else(|error| error.kind, |_| "ok")
    }

    #[test]
    fn what_is_refused_and_why() {
        let deep = format!("{}1{}", "[".repeat(65), "]".repeat(65));
        let most = format!("{}1{}", "[".repeat(64), "]".repeat(64));
        for (text, expected) in [
            (b"{}".as_slice(), "ok"),
            (b" {\"a\" : [1, 2.50, -0, 1e64] } \n", "ok"),
            (most.as_bytes(), "ok"),
            (deep.as_bytes(), "depth"),
            (b"{bad", "syntax"),
            (b"", "syntax"),
            (b"{\"a\":1,}", "syntax"),
            (b"{\"a\":1} x", "trailing_data"),
            (b"{\"a\":1,\"a\":2}", "duplicate_member"),
            (b"{\"a\":1,\"\\u0061\":2}", "duplicate_member"),
            (b"[{\"b\":{\"a\":1,\"a\":1}}]", "duplicate_member"),
            (b"NaN", "syntax"),
            (b"[-Infinity]", "number"),
            (b"[1e65]", "number"),
            (b"[1e-65]", "number"),
            (b"[1e99999999999]", "number"),
            (b"[1e-2147483648]", "number"),
            (b"[1e2147483647]", "number"),
            (b"[01]", "number"),
            (b"[1.]", "number"),
            (b"[+1]", "syntax"),
            (b"[1e]", "number"),
            (b"\"\\ud800\"", "surrogate"),
            (b"\"\\ud800\\u0041\"", "surrogate"),
            (b"\"\\udc00\"", "surrogate"),
            (b"\"\\ud83d\\ude00\"", "ok"),
            (b"\"a\nb\"", "syntax"),
            (b"\"abc", "syntax"),
            (b"\"\\x\"", "syntax"),
            (b"\"\\u12", "syntax"),
            (b"\xff", "encoding"),
            (b"\xef\xbb\xbf{}", "encoding"),
        ] {
            assert_eq!(kind(text), expected, "{}", String::from_utf8_lossy(text));
        }
        assert_eq!(kind(&vec![b' '; BODY_BYTES_MAX + 1]), "size");
        assert_eq!(kind(format!("[{}]", "9".repeat(64)).as_bytes()), "ok");
        assert_eq!(kind(format!("[{}]", "9".repeat(65)).as_bytes()), "number");
    }

    #[test]
    fn canonical_text_ignores_spelling_only() {
        let text = |t: &str| canonical(&parse(t.as_bytes()).unwrap());
        assert_eq!(text(r#"{"b":250.00,"a":"\u00e9\n"}"#), "{\"a\":\"é\\n\",\"b\":250}");
        assert_eq!(text("[2.5e2]"), text("[250]"));
        assert_ne!(text("[250]"), text("[\"250\"]"));
        assert_ne!(text("[\"40.5\"]"), text("[\"40.50\"]"));
    }

    #[test]
    fn a_record_is_read_whatever_its_canonical_form_grew_to() {
        let received = parse(b"[1e64, 99e-64, -9e64]").unwrap();
        let recorded = canonical(&received);
        assert_eq!(kind(recorded.as_bytes()), "number");
        assert_eq!(canonical(&parse_record(recorded.as_bytes()).unwrap()), recorded);
        assert!(parse_record(format!("[{}1]", "1,".repeat(BODY_BYTES_MAX / 2)).as_bytes()).is_ok());
        assert_eq!(parse_record(b"[1] x").unwrap_err().kind, "trailing_data");
    }

    #[test]
    fn members_keep_their_bytes() {
        let members = parse_members(b"{ \"params\" : {\"z\":1, \"a\":2.0} , \"x\":null}").unwrap();
        assert_eq!(members["params"].raw, "{\"z\":1, \"a\":2.0}");
        assert_eq!(members["x"].value, Json::Null);
        assert_eq!(parse_members(b"[1]").unwrap_err().kind, "syntax");
    }
}
