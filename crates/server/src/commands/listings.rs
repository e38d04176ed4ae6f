//! `placet intents`, `placet budgets` and `placet cluster`.

use reqwest::Method;
use serde_json::{Value, json};

use super::{field, print, rows, segment, table};
use crate::cli::{Cluster, Target, exit};
use crate::client::{Client, Request, Role};

pub async fn intents(target: &Target) -> anyhow::Result<u8> {
    let client = Client::new(target, Role::Operate)?;
    let answer = every_page(&client, "/v1/intents", "intents").await?;
    print(target.output, &answer, |answer| {
        let rows = rows(answer, "intents", |one| {
            ["permit_id", "action_type", "principal", "at", "deadline", "evidence_id"]
                .map(|name| field(one, name))
                .to_vec()
        });
        table(&["PERMIT", "ACTION", "PRINCIPAL", "AT", "DEADLINE", "ENTRY"], &rows, "every permit has its report")
    });
    Ok(exit::OK)
}

pub async fn budgets(target: &Target) -> anyhow::Result<u8> {
    let client = Client::new(target, Role::Operate)?;
    let answer = every_page(&client, "/v1/budgets", "budgets").await?;
    print(target.output, &answer, |answer| {
        let rows = rows(answer, "budgets", |one| {
            ["name", "scope", "window_key", "limit", "reserved", "settled", "remaining", "dimension"]
                .map(|name| field(one, name))
                .to_vec()
        });
        let heading = ["BUDGET", "SCOPE", "WINDOW", "LIMIT", "RESERVED", "SETTLED", "REMAINING", "UNIT"];
        table(&heading, &rows, "the policy in force has no budgets")
    });
    Ok(exit::OK)
}

pub async fn cluster(target: &Target, command: &Cluster) -> anyhow::Result<u8> {
    let client = Client::new(target, Role::Operate)?;
    let delete = |path: String| Request { method: Method::DELETE, ..Request::get(path) };
    let request = match command {
        Cluster::Status => return status(target, &client).await,
        Cluster::AddLearner { id, peer, http, grpc } => {
            let addresses = json!({"peer": peer, "http": http, "grpc": grpc});
            Request::post("/v1/cluster/members", &json!({"id": id, "addresses": addresses}))
        }
        Cluster::Promote { id } => {
            Request { method: Method::POST, ..Request::get(format!("/v1/cluster/members/{id}/promote")) }
        }
        Cluster::Remove { id } => delete(format!("/v1/cluster/members/{id}")),
        Cluster::TransferLeader { to } => Request::post("/v1/cluster/leader", &json!({"to": to})),
    };
    let answer = client.send(&request).await?;
    print(target.output, &answer, |answer| {
        if matches!(command, Cluster::TransferLeader { .. }) {
            return format!("node {} leads", field(answer, "leader_id"));
        }
        let rows = rows(answer, "members", |one| {
            vec![
                field(one, "id"),
                field(one, "role"),
                one.get("addresses").map_or_else(String::new, |a| field(a, "peer")),
            ]
        });
        table(&["NODE", "ROLE", "PEER"], &rows, "no members")
    });
    Ok(exit::OK)
}

/// Asks every node that `--node` names: differences between them are the point.
async fn status(target: &Target, client: &Client) -> anyhow::Result<u8> {
    let mut views = Vec::new();
    let mut answered = false;
    for node in client.nodes() {
        match client.send_to(node, &Request::get("/v1/cluster")).await {
            Ok(view) => {
                answered = true;
                views.push((node.clone(), Ok(view)));
            }
            Err(error) => views.push((node.clone(), Err(error.to_string()))),
        }
    }
    let body = json!({"nodes": views.iter().map(|(node, view)| match view {
        Ok(view) => json!({"node": node, "view": view}),
        Err(error) => json!({"node": node, "error": error}),
    }).collect::<Vec<_>>()});
    print(target.output, &body, |_| {
        let rows: Vec<Vec<String>> = views
            .iter()
            .map(|(node, view)| match view {
                Ok(view) => {
                    let head: String = field(view, "chain_head").chars().take(12).collect();
                    let mut row = vec![node.clone()];
                    row.extend(
                        ["node_id", "leader_id", "term", "applied_index", "evidence_index"]
                            .map(|name| field(view, name)),
                    );
                    row.push(head);
                    row
                }
                Err(_) => vec![node.clone(), "does not answer".to_owned()],
            })
            .collect();
        let nodes =
            table(&["ADDRESS", "NODE", "LEADER", "TERM", "APPLIED", "EVIDENCE", "CHAIN HEAD"], &rows, "no nodes");
        match views.iter().find_map(|(_, view)| view.as_ref().ok()) {
            Some(view) => format!("{nodes}\n\n{}", members(view)),
            None => nodes,
        }
    });
    Ok(if answered { exit::OK } else { exit::UNAVAILABLE })
}

/// The members as one node knows them; what it heard of itself stands beside them.
fn members(view: &Value) -> String {
    let me = view.get("node_id");
    let rows = rows(view, "members", |one| {
        let peer = one.get("addresses").map_or_else(String::new, |at| field(at, "peer"));
        let mut row = vec![field(one, "id"), field(one, "role"), peer];
        row.extend(match one.get("heard") {
            Some(heard) => [
                format!("{} ms ago", field(heard, "ago_ms")),
                field(heard, "applied_index"),
                format!("{} ms", field(heard, "clock_ahead_ms")),
                field(heard, "version"),
            ],
            None if one.get("id") == me => {
                ["itself".to_owned(), field(view, "applied_index"), "0 ms".to_owned(), field(view, "version")]
            }
            None => ["never".to_owned(), "-".to_owned(), "-".to_owned(), "-".to_owned()],
        });
        row
    });
    let heading = ["MEMBER", "ROLE", "PEER", "HEARD", "APPLIED", "CLOCK", "VERSION"];
    format!("as node {} knows them:\n{}", field(view, "node_id"), table(&heading, &rows, "no members"))
}

/// Follows `next` until the listing ends.
pub(super) async fn every_page(client: &Client, path: &str, name: &str) -> anyhow::Result<Value> {
    let mut all = Vec::new();
    let mut cursor: Option<String> = None;
    let joint = if path.contains('?') { '&' } else { '?' };
    loop {
        let after = cursor.as_deref().map(|cursor| format!("&after={}", segment(cursor))).unwrap_or_default();
        let page = client.send(&Request::get(format!("{path}{joint}limit=1000{after}"))).await?;
        all.extend(page.get(name).and_then(Value::as_array).cloned().unwrap_or_default());
        match page.get("next").and_then(Value::as_str) {
            Some(next) => cursor = Some(next.to_owned()),
            None => return Ok(json!({ name: all })),
        }
    }
}
