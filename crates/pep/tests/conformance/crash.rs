//! Case 113: a process that is killed after it acted. The process is this test program, started again for one test.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use placet_pep::testing::LocalPdp;
use placet_pep::{Action, Obligation, ObligationHandler, Pep, Unreachable};

use crate::support::{POLICIES, builder, flush, lamp};

const URL: &str = "PLACET_PEP_TEST_URL";
const FOLDER: &str = "PLACET_PEP_TEST_FOLDER";
const STEP: &str = "PLACET_PEP_TEST_STEP";

fn enforcement_point(url: String, token: &str, folder: &Path) -> Pep {
    let builder = builder(&folder.join("outbox")).endpoint(url).bearer_token(token);
    let builder = builder.obligation("x-acme.audit", Hangs(folder.to_owned()));
    builder.sink_within(Duration::from_secs(60)).unreachable(Unreachable::FailOpen).build().unwrap()
}

/// Says that it works, and never ends.
struct Hangs(PathBuf);

#[async_trait::async_trait]
impl ObligationHandler for Hangs {
    async fn discharge(&self, _: &Obligation) -> Result<serde_json::Value, String> {
        append(&self.0, "discharging");
        std::future::pending().await
    }
}

fn append(folder: &Path, line: &str) {
    let path = folder.join("acts");
    let before = fs::read_to_string(&path).unwrap_or_default();
    fs::write(path, format!("{before}{line}\n")).unwrap();
}

/// The child's side: acts, says so, and waits to be killed. Without its environment, it is no test.
#[tokio::test]
async fn the_child_of_case_113() {
    let (Ok(url), Ok(folder)) = (std::env::var(URL), std::env::var(FOLDER)) else { return };
    let folder = PathBuf::from(folder);
    let pep = enforcement_point(url, "token-of-the-local-decision-point", &folder);
    let step = std::env::var(STEP).unwrap();
    let inside = step == "inside";
    if step == "discharging" {
        pep.run(Action::new("log.audit"), async |_| Ok(())).await.unwrap();
    }
    let at = folder.clone();
    let act = async move |_| {
        append(&at, "acted");
        if inside { std::future::pending().await } else { Ok(()) }
    };
    pep.run(lamp(), act).await.unwrap();
    append(&folder, "done");
    std::future::pending::<()>().await;
}

/// Starts a child, waits for `line`, and kills it with SIGKILL.
async fn kill_child_after(pdp: &LocalPdp, folder: &Path, step: &str, line: &str) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::the_child_of_case_113", "--nocapture"])
        .env(URL, pdp.url())
        .env(FOLDER, folder)
        .env(STEP, step)
        .spawn()
        .unwrap();
    let started = Instant::now();
    while !fs::read_to_string(folder.join("acts")).unwrap_or_default().lines().any(|said| said == line) {
        assert!(started.elapsed() < Duration::from_secs(20), "the child does not act");
        assert!(child.try_wait().unwrap().is_none(), "the child ended");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Killed in the act: the next life reports `timeout`, once, and does not act again.
#[tokio::test]
async fn case_113_a_process_killed_in_the_act_reports_timeout_once() {
    let pdp = LocalPdp::start(POLICIES).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    kill_child_after(&pdp, folder.path(), "inside", "acted").await;
    assert!(pdp.received("/v1/report").is_empty());
    for _ in 0..2 {
        let pep = enforcement_point(pdp.url(), pdp.token(), folder.path());
        flush(&pep).await;
        pep.close().await;
    }
    assert_eq!(pdp.results(), ["timeout"]);
    assert_eq!(pdp.received("/v1/report").len(), 1);
    assert_eq!(fs::read_to_string(folder.path().join("acts")).unwrap(), "acted\n");
}

/// Killed while an obligation was discharged: what was begun is reported as `timeout`, once, and nothing is done again.
#[tokio::test]
async fn a_process_killed_while_it_discharged_reports_timeout_once() {
    let pdp = LocalPdp::start(POLICIES).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    kill_child_after(&pdp, folder.path(), "discharging", "discharging").await;
    for _ in 0..2 {
        let pep = enforcement_point(pdp.url(), pdp.token(), folder.path());
        flush(&pep).await;
        pep.close().await;
    }
    assert_eq!((pdp.results(), pdp.received("/v1/report").len()), (vec!["timeout".to_owned()], 1));
    assert_eq!(fs::read_to_string(folder.path().join("acts")).unwrap(), "discharging\n");
}

/// Killed between the act and its report: the next life reports what happened, once.
#[tokio::test]
async fn case_113_a_process_killed_before_its_report_reports_success_once() {
    let pdp = LocalPdp::start(POLICIES).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    // No report arrives while the child lives.
    let busy = || placet_pep::testing::Fault::Answer { status: 503, body: "{}".to_owned() };
    for _ in 0..1000 {
        pdp.fault("/v1/report", busy());
    }
    kill_child_after(&pdp, folder.path(), "after", "done").await;
    assert!(pdp.results().is_empty());
    pdp.clear_faults();
    for _ in 0..2 {
        let pep = enforcement_point(pdp.url(), pdp.token(), folder.path());
        flush(&pep).await;
        pep.close().await;
    }
    assert_eq!(pdp.results(), ["success"]);
    assert_eq!(fs::read_to_string(folder.path().join("acts")).unwrap(), "acted\ndone\n");
}
