//! What is asked: bodies that differ in their request id and session alone.
//! Absent on purpose: work for each call that is not needed; the generator shares the machine with what it measures.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context;
use bytes::Bytes;
use placet_wire::v1;
use serde_json::Value;

/// Makes bodies, for many tasks at once.
#[derive(Debug)]
pub(super) struct Calls {
    action_type: String,
    params: Bytes,
    /// Session ids in use, one after the other.
    sessions: u64,
    /// Of this run alone, so that no request id repeats one of another run.
    run: u64,
    next: AtomicU64,
    begun: String,
}

impl Calls {
    pub(super) fn new(action_type: &str, params: &str, sessions: u64) -> anyhow::Result<Self> {
        let value: Value = serde_json::from_str(params).with_context(|| format!("--params: `{params}` is not JSON"))?;
        anyhow::ensure!(value.is_object(), "--params: `{params}` is not an object");
        let mut run = [0; 8];
        getrandom::fill(&mut run).map_err(|error| anyhow::anyhow!("no randomness: {error}"))?;
        Ok(Self {
            action_type: action_type.to_owned(),
            params: Bytes::copy_from_slice(params.as_bytes()),
            sessions: sessions.max(1),
            run: u64::from_be_bytes(run),
            next: AtomicU64::new(0),
            begun: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        })
    }

    /// A request id that no call had before, and its session.
    fn fresh(&self) -> (String, u64) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (high, low) = (self.run, number);
        let id = format!(
            "{:08x}-{:04x}-4{:03x}-8{:03x}-{:012x}",
            high >> 32,
            (high >> 16) & 0xffff,
            high & 0xfff,
            (high >> 12) & 0xf | (low >> 48) << 4 & 0xff0,
            low & 0xffff_ffff_ffff
        );
        (id, number % self.sessions)
    }

    pub(super) fn decide(&self) -> v1::DecideRequest {
        let (request_id, session) = self.fresh();
        v1::DecideRequest {
            protocol: "aadp/0.2".to_owned(),
            request_id,
            action_type: self.action_type.clone(),
            params: self.params.clone(),
            source: "llm".to_owned(),
            rationale: "bench".to_owned(),
            session_id: format!("bench-{session}"),
            created_at: self.begun.clone(),
            ..Default::default()
        }
    }

    pub(super) fn report(&self, permit_id: String) -> v1::ReportRequest {
        v1::ReportRequest {
            protocol: "aadp/0.2".to_owned(),
            permit_id,
            outcome: "success".to_owned(),
            completed_at: self.begun.clone(),
            ..Default::default()
        }
    }

    pub(super) fn decide_json(&self) -> String {
        let (request_id, session) = self.fresh();
        let mut body = String::with_capacity(256);
        let params = String::from_utf8_lossy(&self.params);
        // Writing into a string does not fail; the action type is checked where it is read.
        let _ = write!(
            body,
            r#"{{"protocol":"aadp/0.2","request_id":"{request_id}","action_type":{},"params":{params},"source":"llm","rationale":"bench","session_id":"bench-{session}","created_at":"{}"}}"#,
            Value::from(self.action_type.as_str()),
            self.begun,
        );
        body
    }

    pub(super) fn report_json(&self, permit_id: &str) -> String {
        format!(
            r#"{{"protocol":"aadp/0.2","permit_id":"{permit_id}","outcome":"success","completed_at":"{}"}}"#,
            self.begun
        )
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_call_has_an_id_of_its_own_that_can_be_read() {
        let calls = Calls::new("payments.transfer", "{}", 3).unwrap();
        let ids: BTreeSet<String> = (0..1000).map(|_| calls.decide().request_id).collect();
        assert_eq!(ids.len(), 1000);
        assert!(ids.iter().all(|id| placet_core::ids::RequestId::parse(id).is_some()));
        let sessions: BTreeSet<String> = (0..10).map(|_| calls.decide().session_id).collect();
        assert_eq!(sessions.len(), 3);
    }

    #[test]
    fn both_doors_are_asked_the_same() {
        let calls = Calls::new("payments.transfer", r#"{"amount_eur":"1.00"}"#, 1).unwrap();
        let text: Value = serde_json::from_str(&calls.decide_json()).unwrap();
        let message = calls.decide();
        for (name, value) in [
            ("protocol", &message.protocol),
            ("action_type", &message.action_type),
            ("source", &message.source),
            ("rationale", &message.rationale),
            ("session_id", &message.session_id),
            ("created_at", &message.created_at),
        ] {
            assert_eq!(text[name], value.as_str());
        }
        assert_eq!(text["params"]["amount_eur"], "1.00");
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for params in ["", "[]", "1", "{"] {
            assert!(Calls::new("a.b", params, 1).is_err(), "{params}");
        }
    }
}
