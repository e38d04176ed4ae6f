# shellcheck shell=bash
# A short story on the running cluster, each step checked: what an agent may do, and what survives a killed leader.
# Sourced by deploy/dev/cluster.sh, after dev.env.

run_scenario() {
  say "an agent wants to pay 120 EUR: permitted, done, reported"
  local permit
  permit=$(permitted payments.transfer payee=alice amount_eur=120)
  expect 0 report "$permit" success

  say "an action that no policy names: denied"
  expect 10 decide payments.mint amount_eur=1

  say "an argument outside its bounds: denied"
  expect 10 decide payments.transfer payee=alice amount_eur=500.0000000000000000001

  say "a new action still rehearses: dry_run, nothing is reserved"
  expect 12 decide payments.refund amount_eur=20 payment=pay-1

  say "a read is recorded and never reserved: observe"
  expect 13 decide accounts.balance account=main

  say "a payout needs a human: proposed, granted by another principal, resumed once"
  local approval
  approval=$(answer decide payments.payout batch=2026-12 amount_eur=900 | field approval_id)
  expect 0 approvals grant "$approval" --note "checked the batch"
  permit=$(permitted payments.payout batch=2026-12 amount_eur=900 --approval-ref "$approval")
  expect 0 report "$permit" success
  say "the same approval a second time: proposed again, one human yes is one action"
  expect 11 decide payments.payout batch=2026-12 amount_eur=900 --approval-ref "$approval"

  say "the agent goes on until a budget is used up: 150 EUR in any minute for one principal"
  local paid=0
  while permit=$(answer decide payments.micro payee=bob amount_eur=40 | field permit_id) && [ -n "$permit" ]; do
    "$placet" report "$permit" success >/dev/null
    paid=$((paid + 1))
    [ $paid -lt 10 ] || die "the budget never ended"
  done
  expect 10 decide payments.micro payee=bob amount_eur=40
  "$placet" budgets

  say "an operator pulls the kill switch: nothing is permitted, reads are still recorded"
  expect 0 kill engage --origin "dev scenario"
  expect 10 decide payments.transfer payee=alice amount_eur=1
  expect 13 decide accounts.balance account=main
  expect 0 kill release --origin "dev scenario"

  say "the leader is killed (SIGKILL) after a permit left it and before the report"
  permit=$(permitted payments.transfer payee=carol amount_eur=30)
  local leader
  leader=$("$placet" cluster status --output json | json 'next(n["view"]["leader_id"] for n in d["nodes"] if n.get("view"))')
  echo "    killing node $leader, process $(pid_of "$leader")"
  kill -9 "$(pid_of "$leader")"
  expect 0 intents
  say "the permit is known to the new leader and reportable exactly once"
  expect 0 report "$permit" success
  expect 10 report "$permit" success

  say "the killed node comes back and catches up: every chain head is the same"
  start_node "$leader"
  local deadline=$((SECONDS + 30))
  until [ "$("$placet" cluster status --output json | json 'len({n["view"]["chain_head"] for n in d["nodes"] if n.get("view")}) == 1 and all("view" in n for n in d["nodes"])')" = True ]; do
    [ $SECONDS -lt $deadline ] || die "the nodes do not agree after 30 s"
    sleep 0.2
  done
  echo "    all nodes agree"
}

# Runs a command of the CLI, shows it with its answer, and stops the story when its exit code is another one.
expect() {
  local code=$1 got=0 out
  shift
  echo "    \$ placet $*"
  out=$("$placet" "$@" 2>&1) || got=$?
  printf '%s\n' "$out" | sed 's/^/      /'
  [ $got -eq "$code" ] || die "expected exit code $code, got $got"
}

answer() { "$placet" "$@" --output json || true; }

permitted() {
  echo "    \$ placet decide $*" >&2
  local out permit
  out=$(answer decide "$@")
  permit=$(field permit_id <<<"$out")
  [ -n "$permit" ] || die "expected a permit, got: $out"
  echo "      permit $permit" >&2
  echo "$permit"
}

# One member of a JSON object on standard input; empty when it is not there.
field() { json "d.get('$1') or ''"; }
json() { python3 -c "import json, sys; d = json.load(sys.stdin); print($1)"; }
