//! `placet doctor`: findings about a cluster and about this machine, one line each, with what to do.
//! Absent on purpose: mending. An operator decides; every finding says how.

mod certificates;
mod machine;
mod node;

use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};

use super::print;
use crate::cli::{self, Target, exit};
use crate::client::{Client, Refused, Request, Role};
use crate::config::Config;

/// Longest that one node is waited for: a doctor is called when something hangs.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
enum Level {
    Ok,
    /// It will be wrong, or may be.
    Warning,
    /// It is wrong.
    Problem,
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Finding {
    level: Level,
    /// A node or this machine.
    subject: String,
    check: &'static str,
    text: String,
    /// What to do; empty when all is well.
    advice: String,
}

/// Findings about one subject.
#[derive(Debug, Default)]
struct Report {
    subject: String,
    findings: Vec<Finding>,
}

impl Report {
    fn about(subject: impl Into<String>) -> Self {
        Self { subject: subject.into(), findings: Vec::new() }
    }

    fn add(&mut self, level: Level, check: &'static str, text: impl Into<String>, advice: impl Into<String>) {
        let (subject, text, advice) = (self.subject.clone(), text.into(), advice.into());
        self.findings.push(Finding { level, subject, check, text, advice });
    }

    fn ok(&mut self, check: &'static str, text: impl Into<String>) {
        self.add(Level::Ok, check, text, "");
    }

    fn warning(&mut self, check: &'static str, text: impl Into<String>, advice: impl Into<String>) {
        self.add(Level::Warning, check, text, advice);
    }

    fn problem(&mut self, check: &'static str, text: impl Into<String>, advice: impl Into<String>) {
        self.add(Level::Problem, check, text, advice);
    }
}

pub async fn run(target: &Target, command: &cli::Doctor) -> anyhow::Result<u8> {
    let mut findings = Vec::new();
    if !command.local {
        findings.extend(ask(target, command.all).await?);
    }
    if let Some(path) = &command.config {
        findings.extend(match Config::load(path) {
            Ok(config) => machine::look(&config),
            Err(error) => {
                let mut report = Report::about("this machine");
                report.problem("configuration", format!("{error:#}"), "the node would not start; correct the file");
                report.findings
            }
        });
    }
    let worst = findings.iter().map(|one| one.level).max().unwrap_or(Level::Ok);
    print(target.output, &json!({"worst": worst, "findings": findings}), |_| describe(&findings));
    Ok(match worst {
        Level::Ok => exit::OK,
        Level::Warning => exit::WARNINGS,
        Level::Problem => exit::PROBLEMS,
    })
}

/// Asks the nodes: the first that answers, or all.
async fn ask(target: &Target, all: bool) -> anyhow::Result<Vec<Finding>> {
    let client = Client::new(target, Role::Operate)?;
    let mut findings = Vec::new();
    let mut views = Vec::new();
    for address in client.nodes() {
        match facts(&client, address).await {
            Ok(facts) => {
                findings.extend(node::judge(address, &facts));
                views.push(facts.view);
                if !all {
                    break;
                }
            }
            // Whoever may not ask is told so; there is nothing to find.
            Err(error) if error.downcast_ref::<Refused>().is_some_and(|it| it.code == exit::NOT_ALLOWED) => {
                return Err(error);
            }
            Err(error) => {
                let mut report = Report::about(address.clone());
                let advice = "start the node, or look at its log; check the address, the network and --ca";
                report.problem("reach", format!("no answer: {error:#}"), advice);
                findings.extend(report.findings);
            }
        }
    }
    findings.extend(node::compare(&views));
    Ok(findings)
}

/// What one node says.
#[derive(Clone, Debug, Default)]
struct Facts {
    view: Value,
    health: Value,
    switch: Value,
    /// Prometheus text; empty when there is none.
    metrics: String,
}

async fn facts(client: &Client, address: &str) -> anyhow::Result<Facts> {
    let within = |request: Request| async move {
        let answer = tokio::time::timeout(ANSWER_WITHIN, client.send_to(address, &request)).await;
        answer.map_err(|_| anyhow::anyhow!("it took longer than {} s", ANSWER_WITHIN.as_secs()))?
    };
    let view = within(Request::get("/v1/cluster")).await?;
    // An unhealthy node answers 503 with its health all the same.
    let health = match within(Request::get("/v1/health")).await {
        Ok(health) => health,
        Err(error) => match error.downcast_ref::<Refused>().and_then(|refused| refused.body.clone()) {
            Some(body) if body.get("status").is_some() => body,
            _ => return Err(error),
        },
    };
    // The switch is read through the leader, which may not be there: that is a finding of its own.
    let switch = within(Request::get("/v1/killswitch")).await.unwrap_or_default();
    let text = tokio::time::timeout(ANSWER_WITHIN, client.text_from(address, "/metrics")).await;
    let metrics = text.ok().and_then(Result::ok).unwrap_or_default();
    Ok(Facts { view, health, switch, metrics })
}

fn describe(findings: &[Finding]) -> String {
    let count = |level| findings.iter().filter(|one| one.level == level).count();
    let width = |of: fn(&Finding) -> &str| findings.iter().map(|one| of(one).chars().count()).max().unwrap_or_default();
    let (subjects, checks) = (width(|one| &one.subject), width(|one| one.check));
    let mut lines = Vec::new();
    for one in findings {
        let word = match one.level {
            Level::Ok => "ok",
            Level::Warning => "warning",
            Level::Problem => "PROBLEM",
        };
        let advice = if one.advice.is_empty() { String::new() } else { format!("; {}", one.advice) };
        // What a node says is one line here, whatever it says.
        let text: String =
            format!("{}{advice}", one.text).chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        lines.push(format!("{word:<7}  {:<subjects$}  {:<checks$}  {text}", one.subject, one.check));
    }
    let (warnings, problems) = (count(Level::Warning), count(Level::Problem));
    lines.push(format!("{} checks: {problems} problems, {warnings} warnings", findings.len()));
    lines.join("\n")
}
