//! The trace of a decision: each step of the evaluation, in order (AADP §14.4).
//! Absent on purpose: anything that state depends on. Folding never reads a trace, so an entry from the log keeps it as
//! the text that it is, and whoever audits takes it apart.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

/// One step of the evaluation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// Which check.
    pub check: Cow<'static, str>,
    /// What it demands.
    pub condition: Cow<'static, str>,
    /// How it went.
    pub result: CheckResult,
    /// Which rule of the policy.
    pub rule: Cow<'static, str>,
    /// What it saw; `none` when nothing was there.
    pub value: Cow<'static, str>,
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

/// The steps of one evaluation.
#[derive(Clone, Debug)]
pub struct Trace(Form);

#[derive(Clone, Debug)]
enum Form {
    /// As they were taken here.
    Steps(Vec<Check>),
    /// As they stand in an entry that was read.
    Text(Box<RawValue>),
}

impl Trace {
    /// The trace of these steps.
    pub fn of(checks: Vec<Check>) -> Self {
        Self(Form::Steps(checks))
    }

    /// Whether its text is the one that its steps have: what was read keeps other spellings, and members of others.
    pub fn is_canonical(&self) -> bool {
        match &self.0 {
            Form::Steps(_) => true,
            Form::Text(text) => self.checks().is_ok_and(|checks| Self::of(checks).text() == text.get()),
        }
    }

    /// The steps. An error: the text is JSON and not a trace; what re-derives the entry finds it.
    pub fn checks(&self) -> Result<Vec<Check>, serde_json::Error> {
        match &self.0 {
            Form::Steps(checks) => Ok(checks.clone()),
            Form::Text(text) => serde_json::from_str(text.get()),
        }
    }

    fn text(&self) -> Cow<'_, str> {
        match &self.0 {
            // Strings and words; serialising them to memory has no way to fail.
            Form::Steps(checks) => Cow::Owned(serde_json::to_string(checks).unwrap_or_default()),
            Form::Text(text) => Cow::Borrowed(text.get()),
        }
    }
}

impl Serialize for Trace {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Form::Steps(checks) => checks.serialize(serializer),
            Form::Text(text) => text.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Trace {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::deserialize(deserializer).map(|text| Self(Form::Text(text)))
    }
}

impl PartialEq for Trace {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Form::Steps(one), Form::Steps(two)) => one == two,
            _ => self.text() == other.text(),
        }
    }
}

impl Eq for Trace {}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(value: &str) -> Check {
        Check {
            check: "bounds".into(),
            condition: "at most 5".into(),
            result: CheckResult::Fail,
            rule: "numeric.amount".into(),
            value: value.to_owned().into(),
        }
    }

    /// Goal: a trace comes back as it was, inside an entry too, whatever text its values hold.
    #[test]
    fn a_trace_is_kept_as_its_text() {
        for value in ["7", "a \"quoted\" word", "line\nbreak", "\u{1f600}"] {
            let trace = Trace::of(vec![check(value), check("8")]);
            let text = serde_json::to_string(&trace).unwrap();
            assert_eq!(text, serde_json::to_string(&[check(value), check("8")]).unwrap());
            let read: Trace = serde_json::from_str(&text).unwrap();
            assert_eq!(read, trace);
            assert_eq!(read.checks().unwrap(), [check(value), check("8")]);
            assert!(read.is_canonical());
        }
        assert_eq!(Trace::of(vec![]).checks().unwrap(), []);
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
        let text = serde_json::to_string(&Trace::of(vec![check("7")])).unwrap();
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
