//! The command line: every command, flag and exit code.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Exit codes, for scripts. 2 is a wrong command line.
pub mod exit {
    /// Done; for `decide`: permit.
    pub const OK: u8 = 0;
    /// The program failed for a reason of its own.
    pub const FAILED: u8 = 1;
    /// No credential, or one without the role.
    pub const NOT_ALLOWED: u8 = 3;
    /// The node answered that the request cannot be served: not found, conflict, invalid.
    pub const REFUSED: u8 = 4;
    /// No node answered, or none could; asking again may help.
    pub const UNAVAILABLE: u8 = 5;
    /// `decide`: deny. `report`: not accepted.
    pub const DENY: u8 = 10;
    /// `decide`: propose.
    pub const PROPOSE: u8 = 11;
    /// `decide`: dry_run.
    pub const DRY_RUN: u8 = 12;
    /// `decide`: observe.
    pub const OBSERVE: u8 = 13;
}

/// Placet decides, per action, whether an AI agent may act now.
///
/// Exit codes: 0 done (decide: permit), 1 failed, 2 wrong usage, 3 not allowed, 4 refused (not found, conflict,
/// invalid), 5 no node could answer, 10 deny or report not accepted, 11 propose, 12 dry_run, 13 observe.
#[derive(Debug, Parser)]
#[command(name = "placet", version, propagate_version = true)]
pub struct Cli {
    #[command(flatten)]
    pub target: Target,
    #[command(subcommand)]
    pub command: Command,
}

/// Which cluster, as whom, and how to print.
#[derive(Debug, Args)]
pub struct Target {
    /// HTTP addresses of nodes, comma-separated; the first that answers is used.
    #[arg(long, global = true, env = "PLACET_HTTP", default_value = "http://127.0.0.1:7101", value_name = "URL,..")]
    pub node: String,
    /// Bearer token. Without it, the variable of the command's role is used: PLACET_DECIDE_TOKEN,
    /// PLACET_APPROVE_TOKEN, PLACET_OPERATE_TOKEN, PLACET_POLICY_TOKEN or PLACET_AUDIT_TOKEN.
    #[arg(long, global = true, env = "PLACET_TOKEN", hide_env_values = true)]
    pub token: Option<String>,
    /// Certificate authority (PEM) that the nodes' certificates are checked against.
    #[arg(long, global = true, env = "PLACET_CA", value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// How to print.
    #[arg(long, global = true, value_enum, default_value_t = Output::Human)]
    pub output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// Lines for people; they may change.
    Human,
    /// The node's JSON; fields are only added.
    Json,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Runs a node.
    Serve(Serve),
    /// Asks for a decision.
    Decide(Decide),
    /// Reports what became of a permit.
    Report(Report),
    /// Lists, grants and denies approvals.
    #[command(subcommand)]
    Approvals(Approvals),
    /// Shows, engages and releases the kill switch.
    #[command(subcommand)]
    Kill(Kill),
    /// Publishes, shows and checks policies.
    #[command(subcommand)]
    Policy(Policy),
    /// Reads evidence.
    #[command(subcommand)]
    Evidence(Evidence),
    /// Lists permits without a report.
    Intents,
    /// Lists what budgets hold in their current windows.
    Budgets,
    /// Shows and changes the cluster.
    #[command(subcommand)]
    Cluster(Cluster),
}

#[derive(Debug, Args)]
pub struct Serve {
    /// Configuration file (TOML); see docs/CONFIGURATION.md.
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// Never waits for the disk: permits can be lost with the machine. For tests only.
    #[arg(long)]
    pub unsafe_no_fsync: bool,
    /// Stops when standard input ends, so that a supervisor that dies takes its nodes along.
    #[arg(long)]
    pub until_stdin_closes: bool,
}

#[derive(Debug, Args)]
pub struct Decide {
    /// What to do, such as payments.transfer; with --body it stays away.
    #[arg(required_unless_present = "body")]
    pub action_type: Option<String>,
    /// Arguments as NAME=VALUE (text) or NAME:=JSON.
    pub params: Vec<String>,
    /// The whole request as JSON, from a file or from `-`.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["action_type", "params", "approval_ref", "cost_eur"])]
    pub body: Option<PathBuf>,
    /// Repeat this to get the first answer again.
    #[arg(long, value_name = "UUID")]
    pub request_id: Option<String>,
    /// A granted approval to resume.
    #[arg(long, value_name = "APPROVAL_ID")]
    pub approval_ref: Option<String>,
    /// Cost of an action whose policy names no cost parameter.
    #[arg(long, value_name = "DECIMAL")]
    pub cost_eur: Option<String>,
    #[arg(long, default_value = "")]
    pub rationale: String,
    /// scheduler, rule, llm, ui, undo or system.
    #[arg(long, default_value = "ui")]
    pub source: String,
}

#[derive(Debug, Args)]
pub struct Report {
    pub permit_id: String,
    /// success, failure, timeout or not_attempted.
    pub outcome: String,
    /// The failure is known to have had no effect.
    #[arg(long)]
    pub no_effect: bool,
    /// What went wrong.
    #[arg(long)]
    pub error: Option<String>,
    /// Result data, a JSON object.
    #[arg(long, value_name = "JSON")]
    pub payload: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum Approvals {
    /// Pending and granted ones; with --all, every one.
    List {
        #[arg(long)]
        all: bool,
    },
    Show {
        approval_id: String,
    },
    /// One human yes is one action.
    Grant {
        approval_id: String,
        #[arg(long)]
        note: Option<String>,
    },
    /// Also withdraws a grant that is not used yet.
    Deny {
        approval_id: String,
        #[arg(long)]
        note: Option<String>,
    },
}

#[derive(Debug, Subcommand)]
pub enum Kill {
    Status,
    /// From this log position on, nothing is permitted.
    Engage {
        /// Who or what asks, for the record.
        #[arg(long, default_value = "placet kill")]
        origin: String,
    },
    Release {
        #[arg(long, default_value = "placet kill")]
        origin: String,
    },
}

#[derive(Debug, Subcommand)]
pub enum Policy {
    /// Checks a document, publishes it and puts it in force, all at one log position.
    Publish {
        file: PathBuf,
        /// Only if this digest (or `none`) is in force.
        #[arg(long, value_name = "DIGEST")]
        expect: Option<String>,
    },
    /// The canonical form of the policy in force, or of another.
    Show { digest: Option<String> },
    /// Checks a document here, without a node; every mistake with line and column.
    Check { file: PathBuf },
}

#[derive(Debug, Subcommand)]
pub enum Evidence {
    /// One entry, such as aud-17.
    Show { evidence_id: String },
    /// Entries behind a position, oldest first.
    Tail {
        #[arg(long, default_value = "aud-0", value_name = "EVIDENCE_ID")]
        after: String,
        #[arg(long, default_value_t = 20)]
        limit: u32,
    },
}

#[derive(Debug, Subcommand)]
pub enum Cluster {
    /// Every node's view, side by side.
    Status,
    /// Starts to send the log to a new node.
    AddLearner {
        id: u64,
        #[arg(long, value_name = "HOST:PORT")]
        peer: String,
        #[arg(long, value_name = "URL")]
        http: String,
        #[arg(long, value_name = "URL")]
        grpc: String,
    },
    /// Makes a learner a voter.
    Promote { id: u64 },
    /// Removes a voter or a learner.
    Remove { id: u64 },
}
