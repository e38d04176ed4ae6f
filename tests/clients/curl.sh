#!/usr/bin/env bash
# The flow of a payment with nothing but curl. Every step checks its answer.
set -euo pipefail
node=${PLACET_HTTP%%,*}

# call TOKEN METHOD PATH [BODY [MEDIA TYPE]]: prints the answer; an HTTP error ends the script.
call() {
  local body=()
  [ $# -ge 4 ] && body=(-H "content-type: ${5:-application/json}" --data-binary "$4")
  curl -sS --fail-with-body -X "$2" -H "authorization: Bearer $1" "${body[@]}" "$node$3"
}
# The text of a member.
member() { sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p"; }
expect() { [ "$1" = "$2" ] || { echo "expected '$2', got '$1': $3" >&2; exit 1; }; }
decide() {
  printf '{"protocol":"aadp/0.2","request_id":"%s","action_type":"%s","params":%s,"source":"llm","rationale":"curl","created_at":"2026-12-01T00:00:00Z"%s}' \
    "$(cat /proc/sys/kernel/random/uuid)" "$1" "$2" "${3:-}"
}

call "$PLACET_POLICY_TOKEN" POST /v1/policies "@$PLACET_POLICY" application/yaml >/dev/null

reply=$(call "$PLACET_DECIDE_TOKEN" POST /v1/decide "$(decide payments.transfer '{"payee":"alice","amount_eur":"12.50"}')")
expect "$(member verdict <<<"$reply")" permit "$reply"
permit=$(member permit_id <<<"$reply")
check="{\"permit_id\":\"$permit\"}"
[[ $(call "$PLACET_DECIDE_TOKEN" POST /v1/permits/check "$check") == *'"usable":true'* ]]
report="{\"protocol\":\"aadp/0.2\",\"permit_id\":\"$permit\",\"outcome\":\"success\",\"completed_at\":\"2026-12-01T00:00:01Z\"}"
[[ $(call "$PLACET_DECIDE_TOKEN" POST /v1/report "$report") == *'"accepted":true'* ]]
[[ $(call "$PLACET_DECIDE_TOKEN" POST /v1/report "$report") == *'"accepted":false'* ]]
[[ $(call "$PLACET_DECIDE_TOKEN" POST /v1/permits/check "$check") == *'"reason":"reported"'* ]]
[[ $(call "$PLACET_AUDIT_TOKEN" GET "/v1/evidence?permit=$permit&kind=exec_result") == *'"success":true'* ]]

params='{"batch":"b-1","amount_eur":"900"}'
reply=$(call "$PLACET_DECIDE_TOKEN" POST /v1/decide "$(decide payments.payout "$params")")
expect "$(member verdict <<<"$reply")" propose "$reply"
approval=$(member approval_id <<<"$reply")
[[ $(call "$PLACET_APPROVE_TOKEN" GET /v1/approvals) == *"$approval"* ]]
call "$PLACET_APPROVE_TOKEN" POST "/v1/approvals/$approval/grant" '{"note":"by hand"}' >/dev/null
reply=$(call "$PLACET_DECIDE_TOKEN" POST /v1/decide "$(decide payments.payout "$params" ",\"approval_ref\":\"$approval\"")")
expect "$(member verdict <<<"$reply")" permit "$reply"

# Granted and resumed at once, in the name of who proposed.
reply=$(call "$PLACET_DECIDE_TOKEN" POST /v1/decide "$(decide payments.payout "$params")")
reply=$(call "$PLACET_APPROVE_TOKEN" POST "/v1/approvals/$(member approval_id <<<"$reply")/approve")
expect "$(member verdict <<<"$reply")" permit "$reply"

scope='"scope":{"action_type":"payments.transfer"}'
call "$PLACET_OPERATE_TOKEN" POST /v1/killswitch "{\"engaged\":true,\"origin\":\"curl\",$scope}" >/dev/null
reply=$(call "$PLACET_DECIDE_TOKEN" POST /v1/decide "$(decide payments.transfer '{"payee":"alice","amount_eur":"1"}')")
expect "$(member reason <<<"$reply")" kill_switch "$reply"
call "$PLACET_OPERATE_TOKEN" POST /v1/killswitch "{\"engaged\":false,\"origin\":\"curl\",$scope}" >/dev/null

call "$PLACET_OPERATE_TOKEN" POST /v1/killswitch '{"engaged":true,"origin":"curl"}' >/dev/null
reply=$(call "$PLACET_DECIDE_TOKEN" POST /v1/decide "$(decide payments.transfer '{"payee":"alice","amount_eur":"1"}')")
expect "$(member reason <<<"$reply")" kill_switch "$reply"
[[ $(call "$PLACET_OPERATE_TOKEN" GET /v1/killswitch) == *'"engaged":true'* ]]
call "$PLACET_OPERATE_TOKEN" POST /v1/killswitch '{"engaged":false,"origin":"curl"}' >/dev/null

reply=$(call "$PLACET_DECIDE_TOKEN" POST /v1/decide '{bad')
expect "$(member reason <<<"$reply")" malformed "$reply"
evidence=$(member evidence_id <<<"$reply")
[[ $(call "$PLACET_AUDIT_TOKEN" GET "/v1/evidence/$evidence") == *malformed_request* ]]
[[ $(call "$PLACET_OPERATE_TOKEN" GET /v1/intents) == *payments.payout* ]]
[[ $(call "$PLACET_OPERATE_TOKEN" GET /v1/budgets) == *eur-daily* ]]
[[ $(curl -sS "$node/v1/health") == *serving* ]]
echo complete
