//! From paths and JSON bodies to messages. A member that no field carries, or that has another type, is the test's
//! mistake.

use std::collections::BTreeMap;

use placet_wire::v1;
use serde_json::value::RawValue;

use crate::harness::client::Call;

/// A path below `/v1`, taken apart.
#[derive(Clone, Debug)]
pub struct Query {
    pub segments: Vec<String>,
    params: BTreeMap<String, String>,
}

impl Query {
    pub fn of(path: &str) -> Self {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let segments = path.strip_prefix("/v1/").unwrap_or(path).split('/').map(str::to_owned).collect();
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        let params = pairs.map(|pair| pair.split_once('=').unwrap()).map(|(name, text)| (name.to_owned(), plain(text)));
        Self { segments, params: params.collect() }
    }

    pub fn text(&mut self, name: &str) -> String {
        self.params.remove(name).unwrap_or_default()
    }

    pub fn number(&mut self, name: &str) -> u32 {
        self.params.remove(name).map_or(0, |text| text.parse().unwrap())
    }

    pub fn maybe_flag(&mut self, name: &str) -> Option<bool> {
        self.params.remove(name).map(|text| text.parse().unwrap())
    }

    pub fn flag(&mut self, name: &str) -> bool {
        self.maybe_flag(name).unwrap_or(false)
    }

    pub fn end(self) {
        assert!(self.params.is_empty(), "no field carries {:?}", self.params);
    }
}

fn plain(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digits: Vec<u8> = rest.by_ref().take(2).collect();
                u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap()
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).unwrap()
}

/// The members of a JSON object, their values as text.
#[derive(Debug)]
pub struct Members {
    of: BTreeMap<String, Box<RawValue>>,
    params: Option<String>,
}

impl Members {
    pub fn of(call: &Call<'_>) -> Self {
        let body = call.body.as_deref().filter(|body| !body.is_empty()).unwrap_or(b"{}");
        let of = serde_json::from_slice(body).expect("no message carries this body");
        Self { of, params: call.params.map(str::to_owned) }
    }

    fn inner(text: &str) -> Self {
        Self { of: serde_json::from_str(text).expect("no message carries this member"), params: None }
    }

    fn raw(&mut self, name: &str) -> String {
        self.of.remove(name).map(|raw| raw.get().to_owned()).filter(|text| text != "null").unwrap_or_default()
    }

    pub fn text(&mut self, name: &str) -> String {
        let raw = self.raw(name);
        if raw.is_empty() { raw } else { serde_json::from_str(&raw).expect("no message carries this type") }
    }

    pub fn flag(&mut self, name: &str) -> bool {
        self.raw(name) == "true"
    }

    pub fn maybe_number(&mut self, name: &str) -> Option<u64> {
        let raw = self.raw(name);
        (!raw.is_empty() && raw != "null").then(|| raw.parse().unwrap())
    }

    fn number(&mut self, name: &str) -> u64 {
        self.raw(name).parse().unwrap()
    }

    /// JSON text as it stands in the body.
    fn json(&mut self, name: &str) -> bytes::Bytes {
        self.raw(name).into_bytes().into()
    }

    pub fn end(self) {
        assert!(self.of.is_empty(), "no field carries {:?}", self.of.keys());
    }
}

pub fn decide(mut members: Members) -> v1::DecideRequest {
    let params = match (members.json("params"), members.params.take()) {
        (_, Some(text)) => text.into_bytes().into(),
        (json, None) => json,
    };
    let message = v1::DecideRequest {
        protocol: members.text("protocol"),
        request_id: members.text("request_id"),
        action_type: members.text("action_type"),
        params,
        source: members.text("source"),
        rationale: members.text("rationale"),
        session_id: members.text("session_id"),
        cost_eur: members.text("cost_eur"),
        created_at: members.text("created_at"),
        parent_id: members.text("parent_id"),
        approval_ref: members.text("approval_ref"),
        presented_audience: members.text("presented_audience"),
        ..Default::default()
    };
    members.end();
    message
}

pub fn report(mut members: Members) -> v1::ReportRequest {
    let message = v1::ReportRequest {
        protocol: members.text("protocol"),
        permit_id: members.text("permit_id"),
        request_id: members.text("request_id"),
        outcome: members.text("outcome"),
        payload: members.json("payload"),
        error: members.text("error"),
        completed_at: members.text("completed_at"),
        no_effect: members.flag("no_effect"),
    };
    members.end();
    message
}

pub fn local(mut members: Members) -> v1::RecordLocalRequest {
    let entries: Vec<Box<RawValue>> = serde_json::from_str(&members.raw("entries")).unwrap();
    let protocol = members.text("protocol");
    members.end();
    let entries = entries.iter().map(|entry| local_decision(Members::inner(entry.get()))).collect();
    v1::RecordLocalRequest { protocol, entries }
}

fn local_decision(mut members: Members) -> v1::LocalDecision {
    let message = v1::LocalDecision {
        request_id: members.text("request_id"),
        action_type: members.text("action_type"),
        params: members.json("params"),
        source: members.text("source"),
        rationale: members.text("rationale"),
        mode: members.text("mode"),
        policy: members.text("policy"),
        decided_at: members.text("decided_at"),
        outcome: members.text("outcome"),
        error: members.text("error"),
        completed_at: members.text("completed_at"),
    };
    members.end();
    message
}

pub fn mandate(mut members: Members) -> v1::SetMandateRequest {
    let message = v1::SetMandateRequest {
        action_type: members.text("action_type"),
        denied: members.flag("denied"),
        serial: members.number("serial"),
        signature: members.text("signature"),
    };
    members.end();
    message
}

pub fn switch(mut members: Members) -> v1::SetKillSwitchRequest {
    use v1::switch_scope::Of;
    let scope = match members.raw("scope") {
        none if none.is_empty() => None,
        text => {
            let of: BTreeMap<String, String> = serde_json::from_str(&text).unwrap();
            let (kind, name) = of.into_iter().next().unwrap();
            let of = match kind.as_str() {
                "action_type" => Of::ActionType(name),
                "effect" => Of::Effect(name),
                _ => Of::Principal(name),
            };
            Some(v1::SwitchScope { of: Some(of) })
        }
    };
    let (engaged, origin, note) = (members.flag("engaged"), members.text("origin"), members.text("note"));
    members.end();
    v1::SetKillSwitchRequest { engaged, origin, note, scope }
}

pub fn find(mut query: Query) -> v1::FindEvidenceRequest {
    let message = v1::FindEvidenceRequest {
        after: query.text("after"),
        limit: query.number("limit"),
        since: query.text("since"),
        until: query.text("until"),
        kind: query.text("kind"),
        action_type: query.text("action_type"),
        principal: query.text("principal"),
        verdict: query.text("verdict"),
        reason: query.text("reason"),
        request_id: query.text("request_id"),
        permit: query.text("permit"),
        reconcile: query.flag("reconcile"),
    };
    query.end();
    message
}
