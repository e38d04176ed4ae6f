//! The runner itself: that the examples pass, that a failure says what decided, and that mistakes have a place.

use super::{CaseReport, describe, is_case_file, run};

const POLICY: &str = include_str!("../../../../../examples/payments.yaml");

fn examples(name: &str) -> String {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/cases/");
    std::fs::read_to_string(format!("{folder}{name}")).unwrap()
}

fn reports(text: &str) -> Vec<CaseReport> {
    run(text, |_| Ok(POLICY.to_owned())).unwrap_or_else(|mistakes| panic!("{mistakes:#?}"))
}

fn one(state: &str, request: &str, expect: &str) -> CaseReport {
    let text =
        format!("policy: p\ncases:\n  - name: n\n    state: {state}\n    request: {request}\n    expect: {expect}\n");
    reports(&text).remove(0)
}

#[test]
fn the_examples_pass() {
    for (name, least) in [("transfer.yaml", 14), ("people.yaml", 13), ("accounts.yaml", 3)] {
        let text = examples(name);
        assert!(is_case_file(&text));
        let found = run(&text, |path| Ok(examples(path))).unwrap_or_else(|mistakes| panic!("{name}: {mistakes:#?}"));
        assert!(found.len() >= least);
        let failed: Vec<String> = found.iter().filter(|report| !report.passed).map(describe).collect();
        assert!(failed.is_empty(), "{name}\n{}", failed.join("\n"));
    }
    assert!(!is_case_file(POLICY) && !is_case_file("a: [") && !is_case_file(""));
}

/// Goal: what the page says about documents and cases is what happens.
#[test]
fn the_page_holds() {
    let page = include_str!("../../../../../docs/POLICY.md");
    let blocks: Vec<&str> =
        page.split("```yaml\n").skip(1).map(|rest| rest.split("```").next().unwrap_or_default()).collect();
    let [onedoor, converted, cases] = blocks[..] else { panic!("{} blocks", blocks.len()) };
    let policy = |text: &str| crate::policy::load(text).unwrap_or_else(|mistakes| panic!("{mistakes:#?}")).policy;
    assert_eq!(policy(onedoor).digest(), policy(converted).digest());
    let written = crate::policy::convert::to_yaml(policy(onedoor).document());
    assert_eq!(converted, format!("# the same, converted\n{written}"));
    for report in reports(cases) {
        assert!(report.passed, "{}", describe(&report));
    }
}

#[test]
fn a_failure_names_what_differs_and_which_check_decided() {
    let report = one(
        "{}",
        "{ action_type: payments.transfer, params: { payee: a, amount_eur: 501 } }",
        "{ verdict: permit, effects: [money.batch], obligations: [isolate], nominal_tier: 2 }",
    );
    assert_eq!((report.passed, report.line), (false, 3));
    let told = describe(&report);
    assert_eq!(
        told,
        "FAIL  n  (line 3)\n        \
         verdict          expected permit, got deny\n        \
         effects          expected [money.batch], got [money.egress]\n        \
         obligations      expected [isolate], got []\n        \
         because: `numeric.amount_eur` demands 0.01 to 500, found 501\n          \
         pass kill_switch            kill_switch: released; found released\n          \
         pass default_deny           payments.transfer: the policy in force names the action type; found payments.transfer\n          \
         pass reversibility          compensating_command: registered; found payments.reverse\n          \
         FAIL bounds                 numeric.amount_eur: 0.01 to 500; found 501"
    );
}

#[test]
fn a_step_that_cannot_be_taken_stops_the_case() {
    let transfer = "{ action_type: payments.transfer, params: { payee: a, amount_eur: 1 } }";
    let wire = "{ action_type: payments.wire, params: { payee: a, amount_eur: 1, currency: EUR } }";
    for (before, part) in [
        ("[{ grant: true }]".to_owned(), "line 4: nothing was proposed before"),
        ("[{ report: success }]".to_owned(), "nothing was permitted before"),
        (
            format!("[{{ request: {transfer} }}, {{ report: success }}, {{ report: success }}]"),
            "not accepted: this permit has",
        ),
        (format!("[{{ request: {transfer}, expect: {{ verdict: deny }} }}]"), "verdict: expected deny, got permit"),
        (format!("[{{ request: {wire} }}, {{ grant: agent-1 }}]"), "line 4"),
        (format!("[{{ request: {wire} }}, {{ grant: mallory }}]"), "group"),
        (format!("[{{ request: {wire} }}, {{ deny: true }}, {{ grant: true }}]"), "denied"),
        (format!("[{{ request: {wire} }}, {{ ratify: true }}]"), "does not wait for the mandate authority"),
        (format!("[{{ request: {wire} }}, {{ wait: 1h }}, {{ grant: true }}]"), "expired"),
    ] {
        let report = one(&format!("{{ before: {before} }}"), transfer, "{ verdict: permit }");
        let stopped = report.stopped.clone().unwrap_or_default();
        assert!(!report.passed && stopped.contains(part), "{before}: {}", describe(&report));
    }
}

#[test]
fn what_a_door_refuses_can_be_seen_refused() {
    let report = one("{}", "{ body: 'not json' }", "{ verdict: deny, reason: malformed, effects: [], cost: none }");
    assert!(report.passed, "{}", describe(&report));
    let request = "{ action_type: payments.transfer, source: nobody, params: [] }";
    assert!(one("{}", request, "{ reason: malformed }").passed);
    let twice = "{ action_type: payments.transfer, request_id: 11111111-1111-4111-8111-111111111111, params: { payee: a, amount_eur: 1 } }";
    let report = one(&format!("{{ before: [{{ request: {twice} }}] }}"), twice, "{ verdict: permit, replayed: true }");
    assert!(report.passed, "{}", describe(&report));
}

#[test]
fn the_mandate_authority_has_its_say() {
    let policy = r#"
apiVersion: placet/v1
mandate: { authority: d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a }
policies:
  - { action_type: a, tier: 1, dry_run: false, compensating_command: a, requires_external_authorization: true }
"#;
    let text = r"
policy: p
cases:
  - name: ratified
    state: { before: [{ request: { action_type: a } }, { ratify: true }] }
    request: { action_type: a, approval_ref: last }
    expect: { verdict: permit, approval_ref_status: honored }
  - name: refused
    state: { before: [{ request: { action_type: a } }, { ratify: false }] }
    request: { action_type: a, approval_ref: last }
    expect: { verdict: propose, reason: external_authorization, approval_ref_status: consumed }
  - name: denied for good
    state: { mandate_denied: [a] }
    request: { action_type: a }
    expect: { verdict: deny, reason: external_authorization }
";
    for report in run(text, |_| Ok(policy.to_owned())).unwrap() {
        assert!(report.passed, "{}", describe(&report));
    }
}

#[test]
fn every_mistake_in_one_pass() {
    let text = r#"policy: p
now: yesterday
colour: red
cases:
  - name: one
    state:
      kill_switch: maybe
      spent: { eur-daily: -1, eur-weekly: 5, calls-daily: 7, micro: { a: x } }
      before:
        - { grant: true, wait: 1m }
        - { report: perhaps }
        - {}
        - { wait: soon }
    request: { params: {}, colour: red }
    expect: { verdict: maybe, reason: because, effects: [nothing], budget: b, colour: red, cost: much }
  - request: { action_type: a }
    expect: {}
  - name: three
"#;
    let found = run(text, |_| Ok(POLICY.to_owned())).unwrap_err();
    for (line, column, part) in [
        (2, 6, "`now` is `yesterday`"),
        (3, 1, "`colour` is not a field of the case file"),
        (7, 20, "`kill_switch` is `maybe`"),
        (8, 27, "decimal of zero or more"),
        (8, 31, "budget `eur-weekly` is not in the policy"),
        (8, 59, "has a counter for each"),
        (8, 74, "decimal of zero or more"),
        (10, 13, "one step does one thing"),
        (11, 21, "`perhaps` is no outcome"),
        (12, 11, "a step has a request"),
        (13, 19, "not a duration"),
        (14, 16, "a request has no `action_type`"),
        (14, 28, "`colour` is not a field of a request"),
        (15, 24, "unknown variant `maybe`"),
        (15, 39, "unknown variant `because`"),
        (15, 58, "`nothing` of `effects` is not in the policy"),
        (15, 76, "budget `b` is not in the policy"),
        (15, 79, "`colour` is not a field of `expect`"),
        (15, 98, "`cost` is `much`"),
        (16, 5, "a case has no `name`"),
        (18, 5, "no `request`"),
        (18, 5, "a case has no `expect`"),
    ] {
        let hit = found.iter().any(|one| (one.line, one.column) == (line, column) && one.message.contains(part));
        assert!(hit, "{line}:{column} {part}\n{}", found.iter().map(|one| format!("{one}\n")).collect::<String>());
    }
    let nothing =
        run("policy: p\ncases:\n  - { name: n, request: { action_type: a }, expect: {} }", |_| Ok(POLICY.to_owned()));
    assert!(nothing.unwrap_err()[0].message.contains("nothing would be tested"));
}

#[test]
fn mistakes_of_the_policy_stand_where_it_is_named() {
    let text = "# c\npolicy: ../p.yaml\ncases: [{ name: n, request: { action_type: a }, expect: { verdict: deny } }]\n";
    let found = run(text, |_| Ok("policies:\n  - { action_type: a, tier: 9 }".to_owned())).unwrap_err();
    assert_eq!((found[0].line, found[0].column), (2, 9));
    assert!(found[0].message.starts_with("policy `../p.yaml`, line 2, column"), "{found:#?}");
    let found = run(text, |_| Err("no such file".to_owned())).unwrap_err();
    assert_eq!(found[0].message, "policy `../p.yaml` cannot be read: no such file");
    for (text, part) in
        [("", "empty"), ("cases: []", "`policy` is missing"), ("[]", "not a mapping"), ("a: &x 1", "anchor")]
    {
        let found = run(text, |_| Ok(POLICY.to_owned())).unwrap_err();
        assert!(found.iter().any(|one| one.message.contains(part)), "{text}: {found:#?}");
    }
}
