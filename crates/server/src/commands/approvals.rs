//! `placet approvals`.

use serde_json::{Value, json};

use super::decisions::decided;
use super::listings::every_page;
use super::{field, print, rows, segment, table};
use crate::cli::{Approvals, Target, exit};
use crate::client::{Client, Request, Role};

pub async fn run(target: &Target, command: &Approvals) -> anyhow::Result<u8> {
    let client = Client::new(target, Role::Approve)?;
    match command {
        Approvals::List { all } => {
            let query = if *all { "?all=true" } else { "" };
            let answer = every_page(&client, &format!("/v1/approvals{query}"), "approvals").await?;
            print(target.output, &answer, list);
        }
        Approvals::Show { approval_id } => {
            let answer = client.send(&Request::get(format!("/v1/approvals/{}", segment(approval_id)))).await?;
            print(target.output, &answer, describe);
        }
        Approvals::Approve { approval_id, note } => {
            let answer = change(&client, approval_id, "approve", note.as_deref()).await?;
            if answer.get("verdict").is_some() {
                return Ok(decided(target, &answer));
            }
            print(target.output, &answer, describe);
            return Ok(exit::PROPOSE);
        }
        Approvals::Grant { approval_id, note } => {
            print(target.output, &change(&client, approval_id, "grant", note.as_deref()).await?, describe);
        }
        Approvals::Deny { approval_id, note } => {
            print(target.output, &change(&client, approval_id, "deny", note.as_deref()).await?, describe);
        }
    }
    Ok(exit::OK)
}

async fn change(client: &Client, id: &str, verb: &str, note: Option<&str>) -> anyhow::Result<Value> {
    let body = note.map_or_else(|| json!({}), |note| json!({ "note": note }));
    client.send(&Request::post(format!("/v1/approvals/{}/{verb}", segment(id)), &body)).await
}

fn list(answer: &Value) -> String {
    let rows = rows(answer, "approvals", |one| {
        let mut row = ["approval_id", "state", "action_type", "proposer", "cost"].map(|name| field(one, name)).to_vec();
        row.push(format!("{} of {}", votes(one).len(), field(one, "quorum")));
        row.extend(["deadline", "params"].map(|name| field(one, name)));
        row
    });
    let heading = ["APPROVAL", "STATE", "ACTION", "PROPOSER", "COST", "VOTES", "DEADLINE", "PARAMS"];
    table(&heading, &rows, "no open approvals")
}

/// Everything that a person needs before saying yes.
fn describe(approval: &Value) -> String {
    let mut lines = Vec::new();
    let mut line = |name: &str, text: String| lines.push(format!("{name:<12} {text}"));
    for name in ["approval_id", "state", "action_type", "params", "cost"] {
        line(name, field(approval, name));
    }
    for budget in approval.get("budgets").and_then(Value::as_array).into_iter().flatten() {
        let [name, remaining, limit, unit, resets] =
            ["name", "remaining", "limit", "dimension", "window_resets_at"].map(|name| field(budget, name));
        line("budget", format!("{name}: {remaining} of {limit} {unit} left, resets {resets}"));
    }
    for name in ["rationale", "reason", "nominal_tier", "proposer", "created", "deadline"] {
        line(name, field(approval, name));
    }
    line("needs", needs(approval));
    let votes = votes(approval);
    if !votes.is_empty() {
        line("granted by", votes.join(", "));
    }
    for name in ["decided_by", "decided_at", "note", "proposal"] {
        line(name, field(approval, name));
    }
    for name in ["consumed_by", "resumed_request"] {
        if field(approval, name) != "-" {
            line(name, field(approval, name));
        }
    }
    let redacted = approval.get("redacted").and_then(Value::as_array).filter(|paths| !paths.is_empty());
    if redacted.is_some() {
        line("redacted", field(approval, "redacted"));
    }
    lines.join("\n")
}

/// Who must still say yes: people, and the mandate authority.
fn needs(approval: &Value) -> String {
    let flag = |name: &str| approval.get(name) == Some(&Value::Bool(true));
    let mut text = match field(approval, "group").as_str() {
        "-" => "one approver".to_owned(),
        group => format!("{} of group {group}, {} so far", field(approval, "quorum"), votes(approval).len()),
    };
    match (flag("needs_authority"), flag("ratified")) {
        (true, true) => text.push_str("; the mandate authority has ratified it"),
        (true, false) => text.push_str("; the mandate authority's ratification first"),
        (false, _) => {}
    }
    text
}

fn votes(approval: &Value) -> Vec<String> {
    let votes = approval.get("votes").and_then(Value::as_array).into_iter().flatten();
    votes.map(|vote| field(&json!({ "vote": vote }), "vote")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: an approver sees what it costs, what is left, and who must still say yes.
    #[test]
    fn an_approval_is_described_whole() {
        let approval = json!({
            "approval_id": "apr-1", "state": "pending", "action_type": "pay", "params": "{}", "cost": "900",
            "budgets": [{"name": "eur", "remaining": "100", "limit": "500", "dimension": "EUR", "window_resets_at": "T"}],
            "group": "treasury", "quorum": 2, "votes": ["alice\u{1b}"], "needs_authority": true, "ratified": true,
            "redacted": [], "consumed_by": null,
        });
        let text = describe(&approval);
        for part in [
            "cost         900",
            "budget       eur: 100 of 500 EUR left, resets T",
            "needs        2 of group treasury, 1 so far; the mandate authority has ratified it",
            "granted by   alice\\u{1b}",
        ] {
            assert!(text.lines().any(|line| line == part), "{part}\n{text}");
        }
        assert!(!text.contains("redacted") && !text.contains("consumed_by"));
        assert_eq!(needs(&json!({"group": null})), "one approver");
        assert!(list(&json!({"approvals": [approval]})).contains("1 of 2"));
    }
}
