//! `placet decide` and `placet report`.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use anyhow::Context;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::{field, print};
use crate::cli::{Decide, Report, Target, exit};
use crate::client::{Client, Request, Role};

pub async fn decide(target: &Target, command: &Decide) -> anyhow::Result<u8> {
    let body = match &command.body {
        Some(path) => read(path)?,
        None => request(command)?,
    };
    let client = Client::new(target, Role::Decide)?;
    let answer = client.send(&Request::post_bytes("/v1/decide", body, "application/json")).await?;
    Ok(decided(target, &answer))
}

/// Prints a decision and chooses its exit code.
pub(super) fn decided(target: &Target, answer: &Value) -> u8 {
    print(target.output, answer, describe);
    match answer.get("verdict").and_then(Value::as_str) {
        Some("permit") => exit::OK,
        Some("propose") => exit::PROPOSE,
        Some("dry_run") => exit::DRY_RUN,
        Some("observe") => exit::OBSERVE,
        _ => exit::DENY,
    }
}

pub async fn report(target: &Target, command: &Report) -> anyhow::Result<u8> {
    let payload = match &command.payload {
        Some(text) => Some(exact(text).context("in --payload")?),
        None => None,
    };
    let body = ReportBody {
        protocol: "aadp/0.2",
        permit_id: &command.permit_id,
        outcome: &command.outcome,
        payload,
        error: command.error.as_deref(),
        completed_at: now(),
        no_effect: command.no_effect,
    };
    let body = serde_json::to_vec(&body)?;
    let client = Client::new(target, Role::Decide)?;
    let answer = client.send(&Request::post_bytes("/v1/report", body, "application/json")).await?;
    let accepted = answer.get("accepted").and_then(Value::as_bool).unwrap_or(false);
    print(target.output, &answer, |answer| {
        let word = if accepted { "accepted" } else { "not accepted" };
        match field(answer, "detail").as_str() {
            "-" => format!("{word}  {}", field(answer, "evidence_id")),
            detail => format!("{word}  {}  {detail}", field(answer, "evidence_id")),
        }
    });
    Ok(if accepted { exit::OK } else { exit::DENY })
}

/// A decide body; arguments keep the text that was typed, so that no digit of an amount is lost on the way.
#[derive(Serialize)]
struct DecideBody<'a> {
    protocol: &'static str,
    request_id: String,
    action_type: &'a str,
    params: BTreeMap<&'a str, Box<RawValue>>,
    source: &'a str,
    rationale: &'a str,
    created_at: String,
    approval_ref: Option<&'a str>,
    cost_eur: Option<&'a str>,
}

#[derive(Serialize)]
struct ReportBody<'a> {
    protocol: &'static str,
    permit_id: &'a str,
    outcome: &'a str,
    payload: Option<Box<RawValue>>,
    error: Option<&'a str>,
    completed_at: String,
    no_effect: bool,
}

fn exact(text: &str) -> anyhow::Result<Box<RawValue>> {
    RawValue::from_string(text.to_owned()).with_context(|| format!("`{text}` is not JSON"))
}

fn request(command: &Decide) -> anyhow::Result<Vec<u8>> {
    let mut params = BTreeMap::new();
    for param in &command.params {
        let (name, value) = match (param.split_once(":="), param.split_once('=')) {
            (Some((name, text)), _) if !name.contains('=') => (name, exact(text)?),
            (_, Some((name, text))) => (name, exact(&Value::from(text).to_string())?),
            _ => anyhow::bail!("`{param}` is neither NAME=VALUE nor NAME:=JSON"),
        };
        anyhow::ensure!(params.insert(name, value).is_none(), "argument `{name}` is given twice");
    }
    let request_id = match &command.request_id {
        Some(id) => id.clone(),
        None => uuid()?,
    };
    let body = DecideBody {
        protocol: "aadp/0.2",
        request_id,
        action_type: command.action_type.as_deref().unwrap_or_default(),
        params,
        source: &command.source,
        rationale: &command.rationale,
        created_at: now(),
        approval_ref: command.approval_ref.as_deref(),
        cost_eur: command.cost_eur.as_deref(),
    };
    Ok(serde_json::to_vec(&body)?)
}

fn describe(answer: &Value) -> String {
    let replayed = if answer.get("replayed") == Some(&Value::Bool(true)) { " (replayed)" } else { "" };
    let mut lines = vec![format!("{}  {}{replayed}", field(answer, "verdict"), field(answer, "reason"))];
    for name in ["detail", "request_id", "permit_id", "approval_id", "evidence_id"] {
        match field(answer, name).as_str() {
            "-" | "" => {}
            text => lines.push(format!("  {name:<12} {text}")),
        }
    }
    lines.push(format!("  {:<12} {} -> {}", "tier", field(answer, "nominal_tier"), field(answer, "effective_tier")));
    for obligation in answer.get("obligations").and_then(Value::as_array).into_iter().flatten() {
        let value = field(obligation, "value");
        let value = if value == "-" { String::new() } else { format!(" {value}") };
        lines.push(format!("  {:<12} {}{value}", "obligation", field(obligation, "type")));
    }
    if let Some(budget) = answer.get("budget").filter(|budget| budget.is_object()) {
        lines.push(format!(
            "  {:<12} {}: {} of {} {} left, resets {}",
            "budget",
            field(budget, "name"),
            field(budget, "remaining"),
            field(budget, "limit"),
            field(budget, "dimension"),
            field(budget, "window_resets_at"),
        ));
    }
    lines.join("\n")
}

/// The whole of a file, or of standard input for `-`.
pub(super) fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    if path.as_os_str() == "-" {
        let mut bytes = Vec::new();
        std::io::stdin().read_to_end(&mut bytes)?;
        return Ok(bytes);
    }
    std::fs::read(path).with_context(|| format!("cannot read `{}`", path.display()))
}

fn now() -> String {
    jiff::Timestamp::now().to_string()
}

/// A random UUID, version 4.
fn uuid() -> anyhow::Result<String> {
    let mut bits = [0u8; 16];
    getrandom::fill(&mut bits).map_err(|error| anyhow::anyhow!("no randomness: {error}"))?;
    let number = (u128::from_be_bytes(bits) & !(0xf << 76) & !(0x3 << 62)) | (0x4 << 76) | (0x2 << 62);
    let hex = format!("{number:032x}");
    let part = |from: usize, to: usize| hex.get(from..to).unwrap_or_default();
    Ok([part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32)].join("-"))
}

#[cfg(test)]
mod tests {
    use super::uuid;

    #[test]
    fn a_uuid_is_of_version_4() {
        let text = uuid().unwrap();
        assert_eq!(text.len(), 36);
        assert_eq!(text.as_bytes()[14], b'4');
        assert!(b"89ab".contains(&text.as_bytes()[19]));
        assert!(placet_core::ids::RequestId::parse(&text).is_some());
    }
}
