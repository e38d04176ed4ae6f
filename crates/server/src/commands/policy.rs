//! `placet policy`: documents here, and the policies that a cluster keeps.

mod documents;

use anyhow::Context;
use placet_core::policy::PolicySet;
use placet_core::policy::convert::to_yaml;
use reqwest::Method;
use serde_json::Value;

use super::decisions::read;
use super::listings::every_page;
use super::{field, print, rows, segment, table};
use crate::cli::{Policy, Target, exit};
use crate::client::{Client, Request, Role};

pub async fn run(target: &Target, command: &Policy) -> anyhow::Result<u8> {
    let answer = match command {
        Policy::Check { file } => return documents::check(target.output, &read(file)?),
        Policy::Test { paths } => return documents::test(target.output, paths),
        Policy::Diff { before, after, fail_if_looser } => {
            return documents::diff(target, before, after, *fail_if_looser).await;
        }
        Policy::Convert { file } => return documents::convert(target.output, &read(file)?),
        Policy::List => {
            let answer = every_page(&client(target)?, "/v1/policies?all=true", "policies").await?;
            print(target.output, &answer, list);
            return Ok(exit::OK);
        }
        Policy::Show { digest } => {
            let answer = kept(target, digest.as_deref()).await?;
            print(target.output, &answer, show);
            return Ok(exit::OK);
        }
        Policy::Drop { digest } => {
            let request = Request { method: Method::DELETE, ..Request::get(path(digest)) };
            let answer = client(target)?.send(&request).await?;
            print(target.output, &answer, |answer| {
                format!("dropped:  {}\nentry:    {}", field(answer, "digest"), field(answer, "evidence_id"))
            });
            return Ok(exit::OK);
        }
        Policy::Publish { file, no_activate, expect } => {
            let query = if *no_activate { "?activate=false" } else { "" };
            let mut request = Request::post_bytes(format!("/v1/policies{query}"), read(file)?, "application/yaml");
            request.if_match = expect.as_deref().map(if_match);
            client(target)?.send(&request).await?
        }
        Policy::Activate { digest, expect } => {
            let mut request = Request { method: Method::POST, ..Request::get(format!("{}/activate", path(digest))) };
            request.if_match = expect.as_deref().map(if_match);
            client(target)?.send(&request).await?
        }
    };
    print(target.output, &answer, published);
    Ok(exit::OK)
}

fn client(target: &Target) -> anyhow::Result<Client> {
    Client::new(target, Role::Policy)
}

fn path(digest: &str) -> String {
    format!("/v1/policies/{}", segment(digest))
}

/// What a node has under a digest, or has in force.
async fn kept(target: &Target, digest: Option<&str>) -> anyhow::Result<Value> {
    let path = digest.map_or_else(|| "/v1/policies".to_owned(), path);
    client(target)?.send(&Request::get(path)).await
}

/// The meaning of what a node has.
fn meaning(answer: &Value) -> anyhow::Result<PolicySet> {
    let canonical = answer.get("document").and_then(Value::as_str).context("the node's answer has no `document`")?;
    PolicySet::from_canonical(canonical)
        .map_err(|error| anyhow::anyhow!("this version cannot read the policy: {error}"))
}

fn if_match(digest: &str) -> String {
    if digest == "none" { digest.to_owned() } else { format!("\"{digest}\"") }
}

/// A document that can be published again; the canonical form where this version cannot read it.
fn show(answer: &Value) -> String {
    let state = if answer.get("active") == Some(&Value::Bool(true)) { "in force" } else { "not in force" };
    let document = match meaning(answer) {
        Ok(policy) => to_yaml(policy.document()),
        Err(_) => field(answer, "document"),
    };
    format!("# {} ({state})\n{document}", field(answer, "digest"))
}

fn list(answer: &Value) -> String {
    let word = |one: &Value, name: &str, yes: &str, no: &str| {
        if one.get(name) == Some(&Value::Bool(true)) { yes.to_owned() } else { no.to_owned() }
    };
    let rows = rows(answer, "policies", |one| {
        let mut row = vec![field(one, "digest"), word(one, "active", "in force", &word(one, "used", "was", "never"))];
        row.extend(["published_at", "published_by", "evidence_id"].map(|name| field(one, name)));
        row
    });
    table(&["POLICY", "IN FORCE", "PUBLISHED", "BY", "ENTRY"], &rows, "no policies")
}

fn published(answer: &Value) -> String {
    let active = answer.get("active") == Some(&Value::Bool(true));
    let word = if active { "in force:" } else { "kept:    " };
    let mut text = format!("{word} {}", field(answer, "digest"));
    match (active, field(answer, "previous").as_str()) {
        (true, previous) => text.push_str(&format!("\nbefore:   {previous}")),
        (false, in_force) => text.push_str(&format!("\nin force: {in_force}")),
    }
    text.push_str(&format!("\nentry:    {}", field(answer, "evidence_id")));
    for warning in answer.get("warnings").and_then(Value::as_array).into_iter().flatten() {
        let [line, column, message] = ["line", "column", "message"].map(|name| field(warning, name));
        text.push_str(&format!("\nwarning, line {line}, column {column}: {message}"));
    }
    text
}
