//! `placet evidence`: reads of a cluster's evidence, and checks of what was read, without trust in who gave it.

mod export;
mod offline;
pub(super) mod progress;
mod proofs;

use placet_core::export::Failure;
use placet_core::ids::PermitId;
use placet_core::op::SignedHeadView;
use reqwest::Method;
use serde_json::{Value, json};

use super::{field, print, rows, segment, table};
use crate::cli::{Evidence, Find, Output, Target, exit};
use crate::client::{Client, Refused, Request, Role};

/// Matches of one page of a search.
const PAGE: u32 = 1000;

pub async fn run(target: &Target, command: &Evidence) -> anyhow::Result<u8> {
    match command {
        Evidence::Verify { file, trust } => return offline::verify(target.output, file, trust),
        Evidence::Rederive { file, trust } => return offline::rederive(target.output, file, trust),
        _ => {}
    }
    let client = Client::new(target, Role::Audit)?;
    match command {
        Evidence::Show { evidence_id } => {
            let answer = client.send(&Request::get(format!("/v1/evidence/{}", segment(evidence_id)))).await?;
            print(target.output, &answer, |answer| serde_json::to_string_pretty(answer).unwrap_or_default());
        }
        Evidence::Tail { after, limit } => {
            let answer =
                client.send(&Request::get(format!("/v1/evidence?after={}&limit={limit}", segment(after)))).await?;
            print(target.output, &answer, |answer| listed(answer, "no entries behind this"));
        }
        Evidence::Find(find) => {
            let answer = search(&client, find).await?;
            print(target.output, &answer, |answer| listed(answer, "no entry matches"));
        }
        Evidence::Head => {
            let view = sign_head(&client).await?;
            // One line that `--head FILE` reads back, whatever the form.
            print(Output::Json, &json!(view.signed), |_| String::new());
        }
        Evidence::Export { out, no_sign } => return export::export(target, &client, out.as_deref(), !no_sign).await,
        Evidence::Proof { evidence_id, trust } => proofs::inclusion(target, &client, evidence_id, trust).await?,
        Evidence::Consistency { old_head, new_head, key } => {
            proofs::consistency(target, &client, old_head, new_head, key).await?;
        }
        Evidence::Verify { .. } | Evidence::Rederive { .. } => {}
    }
    Ok(exit::OK)
}

/// Has the head of the evidence signed; the signature is itself an entry.
async fn sign_head(client: &Client) -> anyhow::Result<SignedHeadView> {
    let request = Request { method: Method::POST, ..Request::get("/v1/evidence/head") };
    Ok(serde_json::from_value(client.send(&request).await?)?)
}

/// Follows the pages of a search until it has enough matches or ends.
async fn search(client: &Client, find: &Find) -> anyhow::Result<Value> {
    // A permit is a capability: only its digest leaves this machine.
    let permit = find.permit.as_ref().map(|permit| match permit.strip_prefix("pmt-") {
        Some(_) => PermitId::new(permit.as_str()).digest().to_string(),
        None => permit.clone(),
    });
    let filters = [
        ("since", &find.since),
        ("until", &find.until),
        ("kind", &find.kind),
        ("action_type", &find.action_type),
        ("principal", &find.principal),
        ("verdict", &find.verdict),
        ("reason", &find.reason),
        ("request_id", &find.request_id),
        ("permit", &permit),
    ];
    let mut query = String::new();
    for (name, value) in filters {
        if let Some(value) = value {
            query.push_str(&format!("&{name}={}", segment(value)));
        }
    }
    if find.reconcile {
        query.push_str("&reconcile=true");
    }
    let (mut found, mut after, mut left) = (Vec::new(), find.after.clone(), find.limit);
    while left > 0 {
        let path = format!("/v1/evidence?after={}&limit={}{query}", segment(&after), left.min(PAGE));
        let page = client.send(&Request::get(path)).await?;
        let matches = page.get("evidence").and_then(Value::as_array).cloned().unwrap_or_default();
        left = left.saturating_sub(u32::try_from(matches.len()).unwrap_or(u32::MAX));
        found.extend(matches);
        match page.get("next").and_then(Value::as_str) {
            Some(next) => next.clone_into(&mut after),
            None => return Ok(json!({"evidence": found, "next": null})),
        }
    }
    Ok(json!({"evidence": found, "next": after}))
}

fn listed(answer: &Value, empty: &str) -> String {
    let rows = rows(answer, "evidence", |one| {
        let entry = one.get("entry").cloned().unwrap_or_default();
        let first = entry.get("body").and_then(Value::as_object).and_then(|body| body.iter().next());
        let (kind, body) = first.map(|(kind, body)| (kind.clone(), body.clone())).unwrap_or_default();
        let mut row = vec![field(one, "evidence_id"), field(&entry, "at"), kind];
        row.extend(["action_type", "verdict", "reason"].map(|name| field(&body, name)));
        row.push(field(&entry, "principal"));
        row
    });
    table(&["ENTRY", "AT", "KIND", "ACTION", "VERDICT", "REASON", "PRINCIPAL"], &rows, empty)
}

/// A failed check, with the exit code of its kind.
pub(super) fn failed(failure: &Failure) -> anyhow::Error {
    let Failure { kind, entry, line, detail } = failure;
    let body = json!({
        "code": kind.as_str(), "entry": entry.map(|index| index.to_string()), "line": line, "detail": detail,
    });
    Refused { code: kind.code(), text: failure.to_string(), body: Some(body) }.into()
}
