//! The trace of a decision: each step of the evaluation, in order (AADP §14.4).
//! Absent on purpose: anything that state depends on. Folding never reads a trace, so an entry from the log keeps it as
//! the text that it is, and whoever audits takes it apart.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// One step of the evaluation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// Which check.
    pub check: String,
    /// What it demands.
    pub condition: String,
    /// How it went.
    pub result: CheckResult,
    /// Which rule of the policy.
    pub rule: String,
    /// What it saw; `none` when nothing was there.
    pub value: String,
}

/// How a check went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "three words that say themselves")]
pub enum CheckResult {
    Pass,
    Fail,
    Unresolved,
}

/// The steps of one evaluation, as the canonical text that stands in the entry.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Trace(Box<RawValue>);

impl Trace {
    /// The trace of these steps.
    pub fn of(checks: &[Check]) -> Self {
        // Strings and words; serialising them to memory has no way to fail.
        Self(serde_json::value::to_raw_value(checks).unwrap_or_else(|_| RawValue::NULL.to_owned()))
    }

    /// Whether its text is the one that these steps have: what was read keeps other spellings, and members of others.
    pub fn is_canonical(&self) -> bool {
        self.checks().is_ok_and(|checks| Self::of(&checks) == *self)
    }

    /// The steps. An error: the text is JSON and not a trace; what re-derives the entry finds it.
    pub fn checks(&self) -> Result<Vec<Check>, serde_json::Error> {
        serde_json::from_str(self.0.get())
    }
}

impl PartialEq for Trace {
    fn eq(&self, other: &Self) -> bool {
        self.0.get() == other.0.get()
    }
}

impl Eq for Trace {}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(value: &str) -> Check {
        Check {
            check: "bounds".to_owned(),
            condition: "at most 5".to_owned(),
            result: CheckResult::Fail,
            rule: "numeric.amount".to_owned(),
            value: value.to_owned(),
        }
    }

    /// Goal: a trace comes back as it was, inside an entry too, whatever text its values hold.
    #[test]
    fn a_trace_is_kept_as_its_text() {
        for value in ["7", "a \"quoted\" word", "line\nbreak", "\u{1f600}"] {
            let trace = Trace::of(&[check(value), check("8")]);
            let text = serde_json::to_string(&trace).unwrap();
            assert_eq!(text, serde_json::to_string(&[check(value), check("8")]).unwrap());
            let read: Trace = serde_json::from_str(&text).unwrap();
            assert_eq!(read, trace);
            assert_eq!(read.checks().unwrap(), [check(value), check("8")]);
            assert!(read.is_canonical());
        }
        assert_eq!(Trace::of(&[]).checks().unwrap(), []);
    }

    /// Goal: what is no trace is told, and is no panic.
    #[test]
    fn other_text_is_no_trace() {
        for text in ["null", "{}", "[1]", r#"[{"check":"x"}]"#] {
            let read: Trace = serde_json::from_str(text).unwrap();
            assert!(read.checks().is_err() && !read.is_canonical(), "{text}");
        }
    }

    /// Goal: text that says the same in another way, or says more, is not the one spelling.
    #[test]
    fn another_spelling_is_told() {
        let text = serde_json::to_string(&Trace::of(&[check("7")])).unwrap();
        for (from, to) in [
            ("[{", "[ {"),
            ("\"7\"", "\"\\u0037\""),
            ("\"7\"}", "\"7\",\"z\":1}"),
            ("{\"check\"", "{\"a\":1,\"check\""),
        ] {
            assert!(text.contains(from), "{from}: {text}");
            let read: Trace = serde_json::from_str(&text.replacen(from, to, 1)).unwrap();
            assert_eq!(read.checks().unwrap(), [check("7")]);
            assert!(!read.is_canonical(), "{to}");
        }
    }
}
