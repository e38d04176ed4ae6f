//! `placet approvals`, `placet kill` and `placet policy`.

use anyhow::Context;
use serde_json::{Value, json};

use super::decisions::read;
use super::listings::every_page;
use super::{field, print, table};
use crate::cli::{Approvals, Kill, Output, Policy, Target, exit};
use crate::client::{Client, Refused, Request, Role};

pub async fn approvals(target: &Target, command: &Approvals) -> anyhow::Result<u8> {
    let client = Client::new(target, Role::Approve)?;
    match command {
        Approvals::List { all } => {
            let query = if *all { "?all=true" } else { "" };
            let answer = every_page(&client, &format!("/v1/approvals{query}"), "approvals").await?;
            print(target.output, &answer, |answer| {
                let rows: Vec<Vec<String>> = answer
                    .get("approvals")
                    .and_then(Value::as_array)
                    .into_iter()
                    .flatten()
                    .map(|one| {
                        ["approval_id", "state", "action_type", "proposer", "deadline", "params"]
                            .map(|name| field(one, name))
                            .to_vec()
                    })
                    .collect();
                table(&["APPROVAL", "STATE", "ACTION", "PROPOSER", "DEADLINE", "PARAMS"], &rows, "no open approvals")
            });
        }
        Approvals::Show { approval_id } => {
            let answer = client.send(&Request::get(format!("/v1/approvals/{}", segment(approval_id)))).await?;
            print(target.output, &answer, describe_approval);
        }
        Approvals::Grant { approval_id, note } => {
            resolve(target, &client, approval_id, "grant", note.as_deref()).await?
        }
        Approvals::Deny { approval_id, note } => resolve(target, &client, approval_id, "deny", note.as_deref()).await?,
    }
    Ok(exit::OK)
}

async fn resolve(target: &Target, client: &Client, id: &str, verb: &str, note: Option<&str>) -> anyhow::Result<()> {
    let body = note.map_or_else(|| json!({}), |note| json!({ "note": note }));
    let answer = client.send(&Request::post(format!("/v1/approvals/{}/{verb}", segment(id)), &body)).await?;
    print(target.output, &answer, describe_approval);
    Ok(())
}

fn describe_approval(approval: &Value) -> String {
    let names = [
        "approval_id",
        "state",
        "action_type",
        "params",
        "rationale",
        "reason",
        "proposer",
        "created",
        "deadline",
        "decided_by",
        "decided_at",
        "note",
        "proposal",
    ];
    names.map(|name| format!("{name:<12} {}", field(approval, name))).join("\n")
}

pub async fn kill(target: &Target, command: &Kill) -> anyhow::Result<u8> {
    let client = Client::new(target, Role::Operate)?;
    let request = match command {
        Kill::Status => Request::get("/v1/killswitch"),
        Kill::Engage { origin } => Request::post("/v1/killswitch", &json!({"engaged": true, "origin": origin})),
        Kill::Release { origin } => Request::post("/v1/killswitch", &json!({"engaged": false, "origin": origin})),
    };
    let answer = client.send(&request).await?;
    print(target.output, &answer, |answer| {
        let word = if answer.get("engaged") == Some(&Value::Bool(true)) { "engaged" } else { "released" };
        let since = field(answer, "since");
        let mut text = if since == "-" {
            format!("{word}, never used")
        } else {
            format!("{word} since {since} by {} ({})", field(answer, "by"), field(answer, "origin"))
        };
        if answer.get("policy").is_some_and(Value::is_string) {
            text.push_str(&format!("; policy meanwhile: {}", field(answer, "policy")));
        }
        text
    });
    Ok(exit::OK)
}

pub async fn policy(target: &Target, command: &Policy) -> anyhow::Result<u8> {
    match command {
        Policy::Check { file } => return check(target.output, &read(file)?),
        Policy::Publish { file, expect } => {
            let mut request = Request::post_bytes("/v1/policies", read(file)?, "application/yaml");
            request.if_match =
                expect.as_ref().map(|digest| if digest == "none" { digest.clone() } else { format!("\"{digest}\"") });
            let answer = Client::new(target, Role::Policy)?.send(&request).await?;
            print(target.output, &answer, |answer| {
                let mut text = format!(
                    "in force: {}\nbefore:   {}\nentry:    {}",
                    field(answer, "digest"),
                    field(answer, "previous"),
                    field(answer, "evidence_id")
                );
                for warning in answer.get("warnings").and_then(Value::as_array).into_iter().flatten() {
                    text.push_str(&format!(
                        "\nwarning, line {}, column {}: {}",
                        field(warning, "line"),
                        field(warning, "column"),
                        field(warning, "message")
                    ));
                }
                text
            });
        }
        Policy::Show { digest } => {
            let path = digest
                .as_ref()
                .map_or_else(|| "/v1/policies".to_owned(), |digest| format!("/v1/policies/{}", segment(digest)));
            let answer = Client::new(target, Role::Policy)?.send(&Request::get(path)).await?;
            print(target.output, &answer, |answer| {
                let state = if answer.get("active") == Some(&Value::Bool(true)) { "in force" } else { "not in force" };
                let document = answer.get("document").cloned().unwrap_or_default();
                let document = match &document {
                    Value::String(text) => serde_json::from_str(text).unwrap_or(document.clone()),
                    other => other.clone(),
                };
                format!(
                    "{} ({state})\n{}",
                    field(answer, "digest"),
                    serde_json::to_string_pretty(&document).unwrap_or_default()
                )
            });
        }
    }
    Ok(exit::OK)
}

/// The same loader that a node uses, without a node.
fn check(output: Output, bytes: &[u8]) -> anyhow::Result<u8> {
    let text = std::str::from_utf8(bytes).context("the document is not UTF-8")?;
    match placet_core::policy::load(text) {
        Ok(loaded) => {
            let body = json!({"digest": loaded.policy.digest(), "warnings": loaded.warnings});
            print(output, &body, |_| {
                let warnings: Vec<String> =
                    loaded.warnings.iter().map(|warning| format!("\nwarning, {warning}")).collect();
                format!("good: {}{}", loaded.policy.digest(), warnings.concat())
            });
            Ok(exit::OK)
        }
        Err(mistakes) => {
            let lines: Vec<String> = mistakes.iter().map(|mistake| format!("\n  {mistake}")).collect();
            let text = format!("{} mistakes{}", mistakes.len(), lines.concat());
            Err(Refused {
                code: exit::REFUSED,
                text,
                body: Some(json!({"code": "policy_mistakes", "mistakes": mistakes})),
            }
            .into())
        }
    }
}

/// One segment of a path, whatever was typed.
pub(super) fn segment(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => char::from(byte).to_string(),
            other => format!("%{other:02X}"),
        })
        .collect()
}
