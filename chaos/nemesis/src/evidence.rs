//! Evidence as the properties read it: an export, line by line, reduced to what they compare.
//! Absent on purpose: the product's own types and arithmetic. What is checked here is checked by other means.

use std::io::{BufRead, BufReader, Read};

use anyhow::{Context, bail};
use rust_decimal::Decimal;
use serde_json::Value;

use crate::doors::text;

/// One delta of a reservation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draw {
    pub budget: String,
    pub window: String,
    pub scope: String,
    pub amount: Decimal,
}

/// A decision, with or without a permit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decided {
    pub request: String,
    pub verdict: String,
    pub reason: String,
    pub permit_digest: Option<String>,
    /// Milliseconds since the epoch.
    pub deadline: Option<i64>,
    pub draws: Vec<Draw>,
    /// The approval that this decision used up.
    pub consumes: Option<String>,
    /// The approval that this proposal opened.
    pub opens: Option<String>,
}

/// What an entry says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    Intent(Decided),
    Decision(Decided),
    Result { intent: u64 },
    Released { intent: u64, draws: Vec<Draw> },
    Expired { intent: u64, draws: Vec<Draw> },
    Switch { engaged: bool, origin: String },
    Approval { id: String, to: String, votes: Vec<String> },
    Other,
}

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub index: u64,
    /// Milliseconds since the epoch.
    pub at: i64,
    pub principal: String,
    pub prev: String,
    pub hash: String,
    pub fact: Fact,
}

/// Reads an export. Its first line says what it is, its last where it ends; entries are those between.
pub fn read(export: impl Read) -> anyhow::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for line in BufReader::new(export).lines() {
        let line = line?;
        if line.starts_with("{\"entry\"") {
            entries.push(entry(&line)?);
        }
    }
    if entries.is_empty() {
        bail!("the export holds no entry");
    }
    Ok(entries)
}

fn entry(line: &str) -> anyhow::Result<Entry> {
    let value: Value = serde_json::from_str(line).with_context(|| format!("no entry: {line}"))?;
    let entry = value.get("entry").context("a line has no entry")?;
    let (kind, body) = entry
        .get("body")
        .and_then(Value::as_object)
        .and_then(|body| body.iter().next())
        .context("an entry has no body")?;
    Ok(Entry {
        index: entry.get("index").and_then(Value::as_u64).context("an entry has no index")?,
        at: millis(text(entry, "at"))?,
        principal: text(entry, "principal").to_owned(),
        prev: text(entry, "prev").to_owned(),
        hash: text(&value, "hash").to_owned(),
        fact: fact(kind, body)?,
    })
}

fn fact(kind: &str, body: &Value) -> anyhow::Result<Fact> {
    let intent = || body.get("intent").and_then(Value::as_u64).context("an end has no intent");
    Ok(match kind {
        "exec_intent" => Fact::Intent(decided(body)?),
        "decision" => Fact::Decision(decided(body)?),
        "exec_result" => Fact::Result { intent: intent()? },
        "reservation_released" => Fact::Released { intent: intent()?, draws: draws(body.get("released"))? },
        "reservation_expired" => Fact::Expired { intent: intent()?, draws: draws(body.get("released"))? },
        "kill_switch" if body.get("scope").is_none() => Fact::Switch {
            engaged: body.get("engaged").and_then(Value::as_bool).context("a switch has no position")?,
            origin: text(body, "origin").to_owned(),
        },
        "approval_transition" => {
            let votes = body.get("votes").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            Fact::Approval {
                id: text(body, "approval_id").to_owned(),
                to: text(body, "to").to_owned(),
                votes: votes.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            }
        }
        _ => Fact::Other,
    })
}

fn decided(body: &Value) -> anyhow::Result<Decided> {
    let optional = |name: &str| body.get(name).and_then(Value::as_str).map(str::to_owned);
    let honored = text(body, "approval_ref_status") == "honored";
    Ok(Decided {
        request: text(body, "request_id").to_owned(),
        verdict: text(body, "verdict").to_owned(),
        reason: text(body, "reason").to_owned(),
        permit_digest: optional("permit_digest"),
        deadline: optional("deadline").map(|at| millis(&at)).transpose()?,
        draws: draws(body.get("draws"))?,
        consumes: optional("approval_ref").filter(|_| honored),
        opens: optional("approval_id"),
    })
}

fn draws(list: Option<&Value>) -> anyhow::Result<Vec<Draw>> {
    let list = list.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let draw = |one: &Value| {
        Ok(Draw {
            budget: text(one, "budget").to_owned(),
            window: text(one, "window").to_owned(),
            scope: text(one, "scope").to_owned(),
            amount: text(one, "amount").parse().context("an amount")?,
        })
    };
    list.iter().map(draw).collect()
}

fn millis(at: &str) -> anyhow::Result<i64> {
    match at.parse::<jiff::Timestamp>() {
        Ok(at) => Ok(at.as_millisecond()),
        Err(error) => bail!("`{at}` is no time: {error}"),
    }
}

/// What an entry shows in place of a permit.
pub fn digest(permit: &str) -> String {
    blake3::hash(permit.as_bytes()).to_hex().to_string()
}
