//! The command line: every command, flag and exit code.

use std::path::PathBuf;
use std::sync::LazyLock;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// What `--version` prints after the name: the version, the commit where the build was told it (PLACET_COMMIT), and
/// the features that change what the program does.
static BANNER: LazyLock<String> = LazyLock::new(|| {
    let mut about = vec![option_env!("PLACET_COMMIT").unwrap_or("commit unknown")];
    if cfg!(feature = "crash-points") {
        about.push("crash-points");
    }
    format!("{} ({})", env!("CARGO_PKG_VERSION"), about.join(", "))
});

/// Exit codes, for scripts.
pub mod exit {
    /// Done; for `decide`: permit.
    pub const OK: u8 = 0;
    /// The program failed for a reason of its own.
    pub const FAILED: u8 = 1;
    /// A wrong command line; for `policy test`: a case file with mistakes.
    pub const WRONG: u8 = 2;
    /// No credential, or one without the role.
    pub const NOT_ALLOWED: u8 = 3;
    /// The node answered that the request cannot be served: not found, conflict, invalid. For commands about documents:
    /// mistakes in a policy, failed cases, a change that loosens.
    pub const REFUSED: u8 = 4;
    /// No node answered, or none could; asking again may help.
    pub const UNAVAILABLE: u8 = 5;
    /// `decide`: deny. `report`: not accepted. `permit check`: not usable.
    pub const DENY: u8 = 10;
    /// `decide`: propose. `approvals approve`: more is needed.
    pub const PROPOSE: u8 = 11;
    /// `decide`: dry_run.
    pub const DRY_RUN: u8 = 12;
    /// `decide`: observe.
    pub const OBSERVE: u8 = 13;
    /// A backup whose files are not what its manifest says.
    pub const DAMAGED: u8 = 28;
    /// `doctor`: something will be wrong, or may be.
    pub const WARNINGS: u8 = 30;
    /// `doctor`: something is wrong.
    pub const PROBLEMS: u8 = 31;
}

/// Placet decides, per action, whether an AI agent may act now.
///
/// Exit codes: 0 done (decide: permit), 1 failed, 2 wrong usage or case file, 3 not allowed, 4 refused (not found,
/// conflict, invalid, failed cases), 5 no node could answer, 10 deny, report not accepted or permit not usable,
/// 11 propose or more votes needed, 12 dry_run, 13 observe, 20 to 27 evidence that fails a check (see
/// `placet evidence rederive --help`), 28 a damaged backup, 30 warnings and 31 problems found by `placet doctor`.
#[derive(Debug, Parser)]
#[command(name = "placet", version = BANNER.as_str(), propagate_version = true)]
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
    /// Checks, tests, compares, publishes and activates policies.
    #[command(subcommand)]
    Policy(Policy),
    /// Asks whether a permit may still be acted on.
    #[command(subcommand)]
    Permit(Permit),
    /// Makes key files.
    #[command(subcommand)]
    Keys(Keys),
    /// Reads, exports and verifies evidence.
    #[command(subcommand)]
    Evidence(Evidence),
    /// Lists permits without a report.
    Intents,
    /// Lists what budgets hold in their current windows.
    Budgets,
    /// Looks for what is wrong or soon will be, one line each, with what to do. Exits 0 when all is well, 30 with
    /// warnings, 31 with problems.
    Doctor(Doctor),
    /// Shows and changes the cluster.
    #[command(subcommand)]
    Cluster(Cluster),
    /// Takes a backup of a living cluster, or of a stopped node, and verifies it; or verifies one.
    Backup(Backup),
    /// Writes the data folder of a founding member of a new cluster from a backup.
    Restore(Restore),
    /// Shows what is damaged in the data of a stopped node; moves it aside on demand.
    Repair(Repair),
    /// Loads a cluster and says what it took. Every call is a real decision: use a cluster that is there for it.
    Bench(Bench),
}

/// Which door is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Door {
    /// HTTP/1.1 with keep-alive.
    Http,
    /// gRPC, one call after the other for each caller.
    Grpc,
    /// gRPC streams.
    Stream,
}

/// What a caller does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Work {
    /// Decides alone; permits are left to expire.
    Decide,
    /// Decides, and reports each permit.
    Cycle,
}

/// Latencies are of answered calls, from the moment when each was due. Exits 1 when a call failed.
#[derive(Debug, Args)]
pub struct Bench {
    #[arg(long, value_enum, default_value_t = Door::Grpc)]
    pub door: Door,
    /// gRPC addresses; connections go to them in turn. For HTTP the addresses are those of --node.
    #[arg(long, env = "PLACET_GRPC", value_name = "HOST:PORT,..")]
    pub grpc: Option<String>,
    /// Calls at a time, over all connections.
    #[arg(long, default_value_t = 64, value_parser = counted(1..=65_536))]
    pub in_flight: usize,
    /// Connections; without it one for each call at a time, or one stream.
    #[arg(long, value_parser = counted(1..=65_536))]
    pub connections: Option<usize>,
    /// Calls that become due each second, whatever the answers do. Without it, each caller calls again when it has its
    /// answer.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub rate: Option<u64>,
    /// How long it is measured.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub seconds: u64,
    /// How long it runs before that.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(0..=3_600))]
    pub warm_up: u64,
    #[arg(long, value_enum, default_value_t = Work::Decide)]
    pub work: Work,
    #[arg(long, default_value = "payments.transfer")]
    pub action_type: String,
    #[arg(long, default_value = r#"{"payee":"acme","amount_eur":"1.00"}"#, value_name = "JSON")]
    pub params: String,
    /// Session ids in use, in turn: with a budget for each session, as many counters.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub sessions: u64,
}

/// A count within bounds.
fn counted(bounds: std::ops::RangeInclusive<usize>) -> impl Fn(&str) -> Result<usize, String> + Clone {
    move |text| match text.parse() {
        Ok(number) if bounds.contains(&number) => Ok(number),
        _ => Err(format!("a number from {} to {}", bounds.start(), bounds.end())),
    }
}

/// Reads everything in the data folder of a stopped node: log, state, evidence, snapshots. Exits 0 when all of it is
/// whole and 4 when something is damaged.
#[derive(Debug, Args)]
pub struct Repair {
    /// The node's configuration file.
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// Moves the data folder aside, whatever was found, and notes in a new one that this node had data: started again,
    /// it asks the other members, catches up, and gives no vote before. Nothing is deleted.
    #[arg(long)]
    pub from_peers: bool,
    /// A member to ask, beside the founders and those that the old data names.
    #[arg(long, value_name = "ID=HOST:PORT", requires = "from_peers")]
    pub peer: Vec<String>,
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
pub struct Doctor {
    /// Asks every address of --node, and not only the first that answers.
    #[arg(long)]
    pub all: bool,
    /// Also looks at this machine, with a node's configuration file: disk, folders, keys, certificates.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Looks at this machine only and asks no node.
    #[arg(long, requires = "config", conflicts_with = "all")]
    pub local: bool,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Backup {
    /// A folder that is not there yet, or empty.
    #[arg(long, value_name = "FOLDER", required = true)]
    pub to: Option<PathBuf>,
    /// From the data folder of this configuration, whose node is stopped; without it, from the first node that answers.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// As the node that answers has it, which may be behind: for a cluster that has lost its quorum.
    #[arg(long, conflicts_with = "config")]
    pub local: bool,
    /// How much is checked.
    #[arg(long, value_enum, default_value_t = Level::Chain)]
    pub verify: Level,
    #[command(subcommand)]
    pub command: Option<BackupCommand>,
}

#[derive(Debug, Subcommand)]
pub enum BackupCommand {
    /// Checks a backup, without a node.
    Verify {
        folder: PathBuf,
        /// How much is checked.
        #[arg(long, value_enum, default_value_t = Level::Chain)]
        verify: Level,
    },
}

/// How much of a backup is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Level {
    /// Every file's checksum, the whole chain and the tree.
    Chain,
    /// That, and every entry derived again: the records must be what the entries add up to. Holds all of it in memory.
    Full,
}

#[derive(Debug, Args)]
pub struct Restore {
    #[arg(long, value_name = "FOLDER")]
    pub from: PathBuf,
    /// The configuration of the new node. Its `initial_cluster` are the members of the new cluster, each of which is
    /// restored from the same backup; its data folder is not there yet, or empty.
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// How much is checked.
    #[arg(long, value_enum, default_value_t = Level::Chain)]
    pub verify: Level,
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
    /// One approval: what is asked, what it costs, what its budgets have left, who decided.
    Show { approval_id: String },
    /// Grants, and decides the proposal again at once in its proposer's name. Exits like decide; 11 while more votes
    /// are needed.
    Approve {
        approval_id: String,
        #[arg(long)]
        note: Option<String>,
    },
    /// Grants; the proposer resumes with --approval-ref. One human yes is one action.
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
    /// The switch, and what scoped ones stop.
    Status,
    /// From this log position on, nothing in its scope is permitted.
    Engage(Switch),
    Release(Switch),
}

/// Which switch; without a scope, the one for everything.
#[derive(Debug, Args)]
pub struct Switch {
    /// Who or what asks, for the record.
    #[arg(long, default_value = "placet kill")]
    pub origin: String,
    /// Why, for the record.
    #[arg(long)]
    pub note: Option<String>,
    /// Only this action type.
    #[arg(long, group = "scope", value_name = "NAME")]
    pub action_type: Option<String>,
    /// Only actions with this effect.
    #[arg(long, group = "scope", value_name = "LABEL")]
    pub effect: Option<String>,
    /// Only this principal.
    #[arg(long, group = "scope", value_name = "NAME")]
    pub principal: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum Permit {
    /// Exits 0 while the act may begin, 10 when it may not.
    Check { permit_id: String },
}

#[derive(Debug, Subcommand)]
pub enum Keys {
    /// Writes a new random key, 64 hex digits, for its owner alone. Never replaces a file.
    New { file: PathBuf },
}

#[derive(Debug, Subcommand)]
pub enum Policy {
    /// Checks a document here, without a node; every mistake with line and column.
    Check { file: PathBuf },
    /// Runs case files, without a node. Folders are searched for them. Exits 4 when a case fails, 2 when a file has
    /// mistakes.
    Test {
        #[arg(required = true, value_name = "FILE_OR_FOLDER")]
        paths: Vec<PathBuf>,
    },
    /// What changes in meaning between two policies, and what loosens. Each is a file, a digest, or `active`.
    Diff {
        before: String,
        after: String,
        /// Exits 4 when a change loosens.
        #[arg(long)]
        fail_if_looser: bool,
    },
    /// Prints a document, in either dialect, as placet/v1 with the same digest. Comments are lost.
    Convert { file: PathBuf },
    /// Checks a document, publishes it and puts it in force, all at one log position.
    Publish {
        file: PathBuf,
        /// Only keeps it; `policy activate` puts it in force.
        #[arg(long)]
        no_activate: bool,
        /// Only if this digest (or `none`) is in force.
        #[arg(long, value_name = "DIGEST")]
        expect: Option<String>,
    },
    /// Puts a kept policy in force: a new one, or an older one again.
    Activate {
        digest: String,
        /// Only if this digest (or `none`) is in force.
        #[arg(long, value_name = "DIGEST")]
        expect: Option<String>,
    },
    /// Forgets a policy that was never in force.
    Drop { digest: String },
    /// Every kept policy.
    List,
    /// The policy in force, or another, as a placet/v1 document; with --output json, its canonical form.
    Show { digest: Option<String> },
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
    /// Entries that match every filter, oldest first.
    Find(Box<Find>),
    /// Has the head of the evidence signed, and prints it; keep it, to hold later exports against it.
    Head,
    /// Writes the whole evidence as JSON Lines, verified on the way.
    Export {
        /// Replaced at once, when the export is whole; standard output without it.
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
        /// Has no new head signed first.
        #[arg(long)]
        no_sign: bool,
    },
    /// Checks an export, without a node: chain, tree, signatures. Exit codes: 20 unreadable, 21 chain, 22 hash, 23 tree,
    /// 24 signature, 25 truncated, 26 a signed head contradicts.
    Verify {
        /// `-` for standard input.
        file: PathBuf,
        #[command(flatten)]
        trust: TrustArgs,
    },
    /// Checks an export and derives every entry again from those before it, without a node. Exit codes: those of
    /// `verify`, and 27 for an entry that does not follow.
    Rederive {
        /// `-` for standard input.
        file: PathBuf,
        #[command(flatten)]
        trust: TrustArgs,
    },
    /// Proves that an entry is under a signed head that you kept.
    Proof {
        evidence_id: String,
        #[command(flatten)]
        trust: TrustArgs,
    },
    /// Proves that the evidence under a newer signed head begins with that under an older one.
    Consistency {
        #[arg(value_name = "OLD_HEAD_FILE")]
        old_head: PathBuf,
        #[arg(value_name = "NEW_HEAD_FILE")]
        new_head: PathBuf,
        /// A key whose signatures count, 64 hex digits.
        #[arg(long, value_name = "HEX")]
        key: Vec<String>,
    },
}

/// What an auditor knows from elsewhere.
#[derive(Debug, Args)]
pub struct TrustArgs {
    /// Signed heads that you kept, one for each line.
    #[arg(long, value_name = "FILE")]
    pub head: Vec<PathBuf>,
    /// A key whose signatures count, 64 hex digits; without any, nobody vouches for anything.
    #[arg(long, value_name = "HEX")]
    pub key: Vec<String>,
}

#[derive(Debug, Args)]
pub struct Find {
    /// Recorded at this instant or later, such as 2026-08-17T09:00:00Z.
    #[arg(long, value_name = "INSTANT")]
    pub since: Option<String>,
    /// Recorded before this instant.
    #[arg(long, value_name = "INSTANT")]
    pub until: Option<String>,
    /// decision, exec_intent, exec_result, ..; a wrong word is answered with all of them.
    #[arg(long)]
    pub kind: Option<String>,
    #[arg(long)]
    pub action_type: Option<String>,
    #[arg(long)]
    pub principal: Option<String>,
    /// permit, deny, propose, dry_run or observe.
    #[arg(long)]
    pub verdict: Option<String>,
    #[arg(long)]
    pub reason: Option<String>,
    #[arg(long, value_name = "UUID")]
    pub request_id: Option<String>,
    /// A permit, or its digest as evidence shows it.
    #[arg(long, value_name = "PERMIT_ID")]
    pub permit: Option<String>,
    /// Only reports that came too late and that a human must reconcile.
    #[arg(long)]
    pub reconcile: bool,
    #[arg(long, default_value = "aud-0", value_name = "EVIDENCE_ID")]
    pub after: String,
    /// Stops at so many matches.
    #[arg(long, default_value_t = 1000)]
    pub limit: u32,
}

#[derive(Debug, Subcommand)]
pub enum Cluster {
    /// Every node's view, side by side.
    Status,
    /// Starts to send the log to a new node.
    #[command(visible_alias = "add")]
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
    /// Hands the leadership to another voter that is up to date.
    TransferLeader {
        /// Which; without it the leader chooses.
        #[arg(long, value_name = "ID")]
        to: Option<u64>,
    },
}
