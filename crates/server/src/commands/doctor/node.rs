//! What a node's own words and its peer watch show.

use serde_json::Value;

use super::{Facts, Finding, Report};
use crate::commands::field;

/// A member that was not heard for this long does not answer: the watch asks every second and waits a second at most.
const SILENT_MS: u64 = 5_000;

/// Entries that a member may lack before it is called behind; so many keep a learner from promotion, too.
const LAG_MAX: u64 = 1_000;

/// Approvers' events that may wait for a moment.
const BACKLOG_MAX: u64 = 100;

fn number(value: &Value, name: &str) -> u64 {
    value.get(name).and_then(Value::as_u64).unwrap_or_default()
}

fn members(view: &Value) -> impl Iterator<Item = &Value> {
    view.get("members").and_then(Value::as_array).into_iter().flatten()
}

/// Findings about one node and what it knows of the others.
pub(super) fn judge(address: &str, facts: &Facts) -> Vec<Finding> {
    let view = &facts.view;
    let me = number(view, "node_id");
    let mut report = Report::about(format!("node {me}"));
    health(&mut report, address, facts);
    quorum(&mut report, view, me);
    lag(&mut report, view, me);
    clock(&mut report, view);
    versions(&mut report, view, me);
    switch(&mut report, facts);
    backlog(&mut report, facts);
    report.findings
}

fn health(report: &mut Report, address: &str, Facts { view, health, .. }: &Facts) {
    let (status, detail) = (field(health, "status"), field(health, "detail"));
    match status.as_str() {
        "serving" if detail == "-" => {
            report.ok("health", format!("{address} serves; node {} leads", field(view, "leader_id")));
        }
        "serving" => report.warning("health", format!("it serves, but: {detail}"), "wait until it has caught up"),
        "stopping" => report.warning("health", "it was told to stop", "nothing, if that is what you want"),
        "no_leader" => report.problem(
            "health",
            format!("{detail}; nothing is decided here"),
            "bring back a majority of the voters, or the network between them",
        ),
        "clock_off" => {
            report.problem("health", detail, "set this machine's clock by NTP; it recovers by itself within seconds");
        }
        _ => report.problem(
            "health",
            format!("{status}: {detail}"),
            "look at its log; ERRORS.md tells what each text asks for",
        ),
    }
    if health.get("durable") == Some(&Value::Bool(false)) {
        let advice = "restart it without --unsafe-no-fsync: permits can be lost with the machine";
        report.problem("fsync", "it does not wait for its disk", advice);
    } else {
        report.ok("fsync", "every permit is on its disk before it leaves");
    }
    let late = number(health, "late_reports");
    if late > 0 {
        let advice = "reconcile them: `placet evidence find --reconcile`";
        report.warning("reports", format!("{late} reports came after their permits had expired"), advice);
    }
}

/// Who answers, and how many may fail.
fn quorum(report: &mut Report, view: &Value, me: u64) {
    let voters: Vec<&Value> = members(view).filter(|one| field(one, "role") == "voter").collect();
    let silent: Vec<u64> = voters.iter().filter(|one| silent(one, me)).map(|one| number(one, "id")).collect();
    let (all, there) = (voters.len(), voters.len() - silent.len());
    let needed = all / 2 + 1;
    let said = format!("{there} of {all} voters answer, {needed} are needed");
    let who = if silent.is_empty() {
        String::new()
    } else {
        let ids: Vec<String> = silent.iter().map(u64::to_string).collect();
        format!("; silent: {}", ids.join(", "))
    };
    if there < needed {
        report.problem("quorum", format!("{said}{who}"), "nothing can be decided: bring voters back");
    } else if !silent.is_empty() {
        let spare = there - needed;
        report.warning(
            "quorum",
            format!("{said}{who}; {spare} more may fail"),
            "bring the silent ones back, or replace them",
        );
    } else if all < 3 {
        report.warning(
            "quorum",
            format!("{said}; none may fail"),
            "have three voters or five: `placet cluster add-learner`",
        );
    } else if all % 2 == 0 {
        let text = format!("{said}; {} may fail, as with one voter less", there - needed);
        report.warning("quorum", text, "have an odd number of voters");
    } else {
        report.ok("quorum", format!("{said}; {} may fail", there - needed));
    }
    for one in members(view).filter(|one| field(one, "role") != "voter" && silent_member(one, me)) {
        let text = format!("node {}, a learner, does not answer", number(one, "id"));
        report.warning("learners", text, "start it, or remove it: `placet cluster remove`");
    }
}

fn silent_member(member: &Value, me: u64) -> bool {
    silent(&member, me)
}

fn silent(member: &&Value, me: u64) -> bool {
    number(member, "id") != me && member.get("heard").is_none_or(|heard| number(heard, "ago_ms") > SILENT_MS)
}

fn lag(report: &mut Report, view: &Value, me: u64) {
    let heard: Vec<(u64, &Value)> = members(view)
        .filter(|one| !silent_member(one, me))
        .filter_map(|one| Some((number(one, "id"), one.get("heard")?)))
        .collect();
    let ends = heard.iter().map(|(_, heard)| number(heard, "last_log_index"));
    let end = ends.chain([number(view, "last_log_index")]).max().unwrap_or_default();
    let applied = heard.iter().map(|(id, heard)| (*id, number(heard, "applied_index")));
    let mut furthest = (0, me);
    let mut late = false;
    for (id, applied) in applied.chain([(me, number(view, "applied_index"))]) {
        let behind = end.saturating_sub(applied);
        furthest = furthest.max((behind, id));
        if behind > LAG_MAX {
            late = true;
            let advice = "it catches up by itself; if the number does not fall, look at its disk and network";
            report.warning("lag", format!("node {id} is {behind} entries behind"), advice);
        }
    }
    for (id, _) in heard.iter().filter(|(_, heard)| heard.get("recovering") == Some(&Value::Bool(true))) {
        late = true;
        let advice = "it catches up by itself once every other voter answers";
        report.warning("lag", format!("node {id} lost its data and gives no votes yet"), advice);
    }
    if !late {
        report.ok("lag", format!("nobody is more than {} entries behind", furthest.0));
    }
}

fn clock(report: &mut Report, view: &Value) {
    let Some(clock) = view.get("clock") else {
        return report.warning(
            "clock",
            "this node does not say how its clock is",
            "it runs an older version; update it",
        );
    };
    let offset = clock.get("offset_ms").and_then(Value::as_i64).unwrap_or_default();
    let bound = number(clock, "bound_ms");
    let ntp = "let NTP set this machine's clock (chronyc tracking, timedatectl)";
    match field(clock, "state").as_str() {
        "trusted" if offset.unsigned_abs() > bound / 2 => {
            report.warning("clock", format!("{offset} ms from the median; {bound} ms are allowed"), ntp);
        }
        "trusted" => report.ok("clock", format!("{offset} ms from the median of the voters; {bound} ms are allowed")),
        "off" => report.problem("clock", format!("{offset} ms from the majority's; {bound} ms are allowed"), ntp),
        "split" => {
            let text = format!("no majority of clocks agrees within {bound} ms: nothing is decided");
            report.problem("clock", text, "let NTP set the clocks of all machines");
        }
        _ => report.warning("clock", "too few voters answered to know", "see quorum"),
    }
    for one in members(view) {
        let Some(heard) = one.get("heard") else { continue };
        let ahead = heard.get("clock_ahead_ms").and_then(Value::as_i64).unwrap_or_default();
        if ahead.unsigned_abs() > bound && number(heard, "ago_ms") <= SILENT_MS {
            let text = format!("node {}'s clock is {ahead} ms ahead of this one's", number(one, "id"));
            report.warning("clock", text, "see which of the two is off");
        }
    }
    let stands = number(clock, "stamp_ahead_ms");
    if stands > bound {
        let text = format!("the last entry's stamp is {stands} ms ahead of the clock: until then nothing expires");
        report.warning("time", text, "wait; all clocks were ahead, or were set back");
    }
}

fn versions(report: &mut Report, view: &Value, me: u64) {
    let mut known: Vec<(u64, String, u64)> = vec![(me, field(view, "version"), number(view, "log_format"))];
    for one in members(view).filter(|one| number(one, "id") != me) {
        if let Some(heard) = one.get("heard") {
            let version = field(heard, "version");
            let version = if version.is_empty() { "unknown".to_owned() } else { version };
            known.push((number(one, "id"), version, number(heard, "log_format")));
        }
    }
    let (_, version, format) = known.first().cloned().unwrap_or_default();
    if known.iter().all(|(_, other, written)| *other == version && *written == format) {
        report.ok("versions", format!("{version}, log format {format}, on every node that answered"));
    } else {
        let all: Vec<String> =
            known.iter().map(|(id, version, format)| format!("node {id}: {version} (log format {format})")).collect();
        report.warning("versions", all.join(", "), "bring every node to the newest of them");
    }
}

fn switch(report: &mut Report, Facts { switch, health, .. }: &Facts) {
    let engaged = |one: &Value| one.get("engaged") == Some(&Value::Bool(true));
    let scoped: Vec<&Value> =
        switch.get("scoped").and_then(Value::as_array).into_iter().flatten().filter(|one| engaged(one)).collect();
    let look = "`placet kill status` tells who and why; `placet kill release` ends it";
    if engaged(switch) || health.get("kill_switch") == Some(&Value::Bool(true)) {
        report.warning("switch", "the kill switch is engaged: nothing is permitted", look);
    }
    if !scoped.is_empty() {
        report.warning("switch", format!("{} scoped kill switches are engaged", scoped.len()), look);
    }
    if !engaged(switch) && scoped.is_empty() && health.get("kill_switch") == Some(&Value::Bool(false)) {
        report.ok("switch", "no kill switch is engaged");
    }
}

/// How far the webhook is behind; only the node that sends knows.
fn backlog(report: &mut Report, Facts { view, metrics, .. }: &Facts) {
    let value = metrics.lines().find_map(|line| line.strip_prefix("placet_webhook_position "));
    let Some(position) = value.and_then(|value| value.trim().parse::<u64>().ok()).filter(|position| *position > 0)
    else {
        return;
    };
    let waiting = number(view, "evidence_index").saturating_sub(position);
    let text = format!("{waiting} entries wait to be looked at for approvers");
    if waiting > BACKLOG_MAX {
        report.warning("webhook", text, "see whether the webhook's receiver answers; nothing is lost meanwhile");
    } else {
        report.ok("webhook", text);
    }
}

/// Findings that only several nodes together show.
pub(super) fn compare(views: &[Value]) -> Vec<Finding> {
    let mut report = Report::about("cluster");
    for (at, one) in views.iter().enumerate() {
        for other in views.iter().skip(at + 1) {
            let head = |view: &Value| (field(view, "evidence_index"), field(view, "chain_head"));
            let ((entry, mine), (same, theirs)) = (head(one), head(other));
            if entry == same && mine != theirs {
                let (a, b) = (number(one, "node_id"), number(other, "node_id"));
                let text = format!("nodes {a} and {b} hold different evidence at entry {entry}: {mine} and {theirs}");
                report.problem("evidence", text, "stop both, keep their data folders, and verify an export of each");
            }
        }
    }
    if views.len() > 1 && report.findings.is_empty() {
        report.ok("evidence", format!("{} nodes were compared and do not contradict each other", views.len()));
    }
    report.findings
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::Level;
    use super::*;

    fn heard(ago: u64, change: impl FnOnce(&mut Value)) -> Value {
        let mut heard = json!({
            "ago_ms": ago, "round_trip_ms": 1, "clock_ahead_ms": 3, "version": "1", "log_format": 1,
            "last_log_index": 100, "applied_index": 100, "recovering": false,
        });
        change(&mut heard);
        heard
    }

    fn facts(others: Vec<Value>) -> Facts {
        let mut members = vec![json!({"id": 1, "role": "voter"})];
        members
            .extend(others.into_iter().zip(2..).map(|(heard, id)| json!({"id": id, "role": "voter", "heard": heard})));
        Facts {
            view: json!({
                "node_id": 1, "leader_id": 1, "version": "1", "log_format": 1, "last_log_index": 100, "applied_index": 100,
                "evidence_index": 500, "chain_head": "aa", "members": members,
                "clock": {"state": "trusted", "offset_ms": 2, "bound_ms": 1000, "stamp_ahead_ms": 0},
            }),
            health: json!({"status": "serving", "kill_switch": false, "late_reports": 0, "durable": true}),
            switch: json!({"engaged": false, "scoped": []}),
            metrics: "placet_webhook_position 500\n".to_owned(),
        }
    }

    /// Goal: a healthy cluster has no finding but "ok"; every kind of trouble is found, once, at its level.
    #[test]
    fn each_trouble_is_found() {
        let healthy = || facts(vec![heard(300, |_| ()), heard(900, |_| ())]);
        let found = |facts: &Facts| -> Vec<(Level, &'static str, String)> {
            let all = judge("http://a", facts).into_iter();
            all.filter(|one| one.level != Level::Ok).map(|one| (one.level, one.check, one.text)).collect()
        };
        assert_eq!(found(&healthy()), []);
        let check = |change: &dyn Fn(&mut Facts), wanted: &[(Level, &str, &str)]| {
            let mut facts = healthy();
            change(&mut facts);
            let found = found(&facts);
            let alike = found.len() == wanted.len()
                && found.iter().zip(wanted).all(|(a, b)| a.0 == b.0 && a.1 == b.1 && a.2.contains(b.2));
            assert!(alike, "wanted {wanted:#?}, found {found:#?}");
        };
        use Level::{Problem, Warning};
        check(
            &|it| it.view["members"][1]["heard"]["ago_ms"] = json!(9000),
            &[(Warning, "quorum", "2 of 3 voters answer, 2 are needed; silent: 2; 0 more")],
        );
        check(
            &|it| {
                it.view["members"][1]["heard"]["ago_ms"] = json!(9000);
                it.view["members"][2] = json!({"id": 3, "role": "voter"});
            },
            &[(Problem, "quorum", "1 of 3 voters answer, 2 are needed; silent: 2, 3")],
        );
        check(&|it| *it = facts(vec![heard(1, |_| ())]), &[(Warning, "quorum", "none may fail")]);
        check(
            &|it| *it = facts((0..3).map(|_| heard(1, |_| ())).collect()),
            &[(Warning, "quorum", "as with one voter less")],
        );
        check(
            &|it| it.view["members"][2]["heard"]["last_log_index"] = json!(5000),
            &[
                (Warning, "lag", "node 2 is 4900 entries"),
                (Warning, "lag", "node 3 is 4900 entries"),
                (Warning, "lag", "node 1 is 4900 entries"),
            ],
        );
        check(
            &|it| it.view["members"][1]["heard"]["recovering"] = json!(true),
            &[(Warning, "lag", "node 2 lost its data")],
        );
        check(&|it| it.view["clock"]["offset_ms"] = json!(-700), &[(Warning, "clock", "-700 ms from the median")]);
        check(
            &|it| it.view["clock"] = json!({"state": "off", "offset_ms": 7000, "bound_ms": 1000}),
            &[(Problem, "clock", "7000 ms from the majority")],
        );
        check(&|it| it.view["clock"]["state"] = json!("split"), &[(Problem, "clock", "no majority of clocks")]);
        check(&|it| it.view["clock"]["stamp_ahead_ms"] = json!(60_000), &[(Warning, "time", "60000 ms ahead")]);
        check(
            &|it| it.view["members"][1]["heard"]["clock_ahead_ms"] = json!(-4000),
            &[(Warning, "clock", "node 2's clock is -4000 ms")],
        );
        check(
            &|it| it.view["members"][1]["heard"]["version"] = json!("2"),
            &[(Warning, "versions", "node 1: 1 (log format 1), node 2: 2")],
        );
        check(&|it| it.health["durable"] = json!(false), &[(Problem, "fsync", "does not wait")]);
        check(&|it| it.health["late_reports"] = json!(2), &[(Warning, "reports", "2 reports")]);
        check(&|it| it.health["kill_switch"] = json!(true), &[(Warning, "switch", "nothing is permitted")]);
        check(&|it| it.switch["scoped"] = json!([{"engaged": true}]), &[(Warning, "switch", "1 scoped")]);
        check(
            &|it| {
                it.health = json!({"status": "no_leader", "detail": "no leader is known", "durable": true, "kill_switch": false})
            },
            &[(Problem, "health", "no leader is known")],
        );
        check(&|it| it.metrics = "placet_webhook_position 20\n".to_owned(), &[(Warning, "webhook", "480 entries")]);
    }

    /// Goal: two nodes that contradict each other are named; different positions are no contradiction.
    #[test]
    fn contradictions_between_nodes_are_found() {
        let view =
            |id: u64, entry: u64, head: &str| json!({"node_id": id, "evidence_index": entry, "chain_head": head});
        let level = |views: &[Value]| compare(views).into_iter().map(|one| one.level).collect::<Vec<_>>();
        assert_eq!(level(&[view(1, 5, "aa")]), []);
        assert_eq!(level(&[view(1, 5, "aa"), view(2, 4, "bb"), view(3, 5, "aa")]), [Level::Ok]);
        assert_eq!(level(&[view(1, 5, "aa"), view(2, 4, "bb"), view(3, 5, "cc")]), [Level::Problem]);
    }
}
