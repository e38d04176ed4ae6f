//! Moments and durations, in milliseconds.
//! Absent on purpose: a clock. A stamp is always an argument; the leader brings it.

use std::fmt;

use jiff::{Timestamp, ZonedDateTime, civil, tz::TimeZone};
use serde::{Deserialize, Serialize};

use crate::ids::Parsed;

/// A moment: milliseconds since the Unix epoch. Written as RFC 3339 UTC in its shortest exact form (AADP §14.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Stamp(pub i64);

impl Stamp {
    /// Reads an RFC 3339 instant in UTC (`Z` or `+00:00`); digits beyond milliseconds are dropped.
    pub fn parse(text: &str) -> Option<Self> {
        let utc = text.ends_with('Z') || text.ends_with("+00:00");
        let shaped = text.len() >= 20
            && text.as_bytes().get(10) == Some(&b'T')
            && text.as_bytes().get(16) == Some(&b':')
            && text.as_bytes().get(19).is_some_and(|b| matches!(b, b'Z' | b'.' | b'+'));
        if !(utc && shaped) {
            return None;
        }
        text.parse::<Timestamp>().ok().map(|t| Self(t.as_millisecond()))
    }

    /// This moment, later by `ms`.
    pub fn plus_ms(self, ms: i64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    fn zoned(self, zone: &TimeZone) -> ZonedDateTime {
        Timestamp::from_millisecond(self.0).unwrap_or_default().to_zoned_datetime(zone.clone())
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let moment = Timestamp::from_millisecond(self.0).unwrap_or_default();
        write!(f, "{moment}")
    }
}

impl Serialize for Stamp {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Stamp {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Parsed(Self::parse, "an instant is RFC 3339 in UTC"))
    }
}

/// The calendar of a policy's time zone, from the zone data compiled into this program.
#[derive(Clone, Debug)]
pub struct Calendar {
    zone: TimeZone,
}

impl Calendar {
    /// `None` when the zone is not in the IANA database.
    pub fn of(zone: &str) -> Option<Self> {
        TimeZone::get(zone).ok().map(|zone| Self { zone })
    }

    /// The local date, `YYYY-MM-DD`.
    pub fn day(&self, at: Stamp) -> String {
        at.zoned(&self.zone).date().to_string()
    }

    /// When the local date ends.
    pub fn day_ends(&self, at: Stamp) -> Stamp {
        let date = at.zoned(&self.zone).date();
        self.start_of(date.tomorrow().unwrap_or(date))
    }

    /// The local month, `YYYY-MM`.
    pub fn month(&self, at: Stamp) -> String {
        let date = at.zoned(&self.zone).date();
        format!("{:04}-{:02}", date.year(), date.month())
    }

    /// When the local month ends.
    pub fn month_ends(&self, at: Stamp) -> Stamp {
        let date = at.zoned(&self.zone).date();
        self.start_of(date.last_of_month().tomorrow().unwrap_or(date))
    }

    fn start_of(&self, date: civil::Date) -> Stamp {
        date.to_zoned_datetime(self.zone.clone()).map(|z| Stamp(z.timestamp().as_millisecond())).unwrap_or_default()
    }
}

/// Reads a duration of a policy document: `90s`, `10m`, `1h`, `2d`, or ISO 8601 in hours, minutes, seconds and
/// days (`PT5H`, `P1D`). Milliseconds; `None` when it is neither, zero, or longer than ten years.
pub fn parse_duration_ms(text: &str) -> Option<i64> {
    const TEN_YEARS_MS: i64 = 10 * 366 * 86_400_000;
    let (body, iso) = match text.strip_prefix('P') {
        Some(rest) => (rest, true),
        None => (text, false),
    };
    let mut total = 0i64;
    let mut digits = String::new();
    let mut in_time = !iso;
    let mut last_unit = i64::MAX;
    for letter in body.chars() {
        match letter {
            '0'..='9' if digits.len() < 12 => digits.push(letter),
            'T' if iso && !in_time && digits.is_empty() => in_time = true,
            _ => {
                let unit = match (letter.to_ascii_lowercase(), in_time) {
                    ('d', _) if !iso || !in_time => 86_400_000,
                    ('h', true) => 3_600_000,
                    ('m', true) => 60_000,
                    ('s', true) => 1_000,
                    _ => return None,
                };
                if (iso && letter.is_ascii_lowercase()) || (!iso && letter.is_ascii_uppercase()) || unit >= last_unit {
                    return None;
                }
                last_unit = unit;
                total = total.checked_add(digits.parse::<i64>().ok()?.checked_mul(unit)?)?;
                digits.clear();
            }
        }
    }
    (digits.is_empty() && !text.ends_with('T') && total > 0 && total <= TEN_YEARS_MS).then_some(total)
}

/// Writes a duration in the ISO 8601 form that [`parse_duration_ms`] reads.
pub fn format_duration(ms: i64) -> String {
    let seconds = ms / 1000;
    let (days, hours, minutes, rest) = (seconds / 86_400, seconds % 86_400 / 3_600, seconds % 3_600 / 60, seconds % 60);
    let part = |count: i64, letter: char| if count > 0 { format!("{count}{letter}") } else { String::new() };
    let time = format!("{}{}{}", part(hours, 'H'), part(minutes, 'M'), part(rest, 'S'));
    match (days, time.is_empty()) {
        (0, true) => "PT0S".to_owned(),
        (_, true) => format!("P{days}D"),
        _ => format!("P{}T{time}", part(days, 'D')),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_utc_and_shortest() {
        for (text, canonical) in [
            ("2026-08-17T09:00:00Z", Some("2026-08-17T09:00:00Z")),
            ("2026-08-17T09:00:00.500Z", Some("2026-08-17T09:00:00.5Z")),
            ("2026-08-17T09:00:00+00:00", Some("2026-08-17T09:00:00Z")),
            ("2026-08-17T09:00:00+02:00", None),
            ("2026-08-17 09:00:00Z", None),
            ("2026-08-17T09:00Z", None),
            ("2026-02-30T09:00:00Z", None),
            ("", None),
        ] {
            assert_eq!(Stamp::parse(text).map(|s| s.to_string()).as_deref(), canonical, "{text}");
        }
    }

    #[test]
    fn durations_have_two_spellings() {
        for (text, ms) in [
            ("10m", Some(600_000)),
            ("1h", Some(3_600_000)),
            ("PT5H", Some(18_000_000)),
            ("PT2M", Some(120_000)),
            ("P1DT1H", Some(90_000_000)),
            ("P1D", Some(86_400_000)),
            ("1h30m", Some(5_400_000)),
            ("30m1h", None),
            ("P1M", None),
            ("PT", None),
            ("P1DT", None),
            ("0s", None),
            ("10", None),
            ("-1s", None),
            ("99999999d", None),
        ] {
            assert_eq!(parse_duration_ms(text), ms, "{text}");
        }
        assert_eq!(format_duration(90_000_000), "P1DT1H");
    }
}
