"""The flow of a payment over gRPC, with stubs that grpcio-tools generates from the .proto files at this moment."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import uuid

import grpc

stubs = tempfile.TemporaryDirectory()
proto = pathlib.Path(os.environ["PLACET_PROTO"])
subprocess.run(
    [sys.executable, "-m", "grpc_tools.protoc", f"-I{proto}", f"--python_out={stubs.name}",
     f"--grpc_python_out={stubs.name}", "placet/v1/placet.proto"],
    check=True,
)
sys.path.insert(0, stubs.name)
from placet.v1 import placet_pb2 as pb  # noqa: E402
from placet.v1 import placet_pb2_grpc as rpc  # noqa: E402

channels = [grpc.insecure_channel(address) for address in os.environ["PLACET_GRPC"].split(",")]
turn = 0


def stub(service):
    """A stub on the next node: any node answers any call."""
    global turn
    turn += 1
    return service(channels[turn % len(channels)])


def auth(role):
    return [("authorization", f"Bearer {os.environ[f'PLACET_{role}_TOKEN']}")]


def decide_request(action, params, **more):
    return pb.DecideRequest(
        protocol="aadp/0.2", request_id=str(uuid.uuid4()), action_type=action, params=json.dumps(params).encode(),
        source="llm", rationale="python", created_at="2026-12-01T00:00:00Z", **more,
    )


def decide(request, role="DECIDE"):
    return stub(rpc.DecisionServiceStub).Decide(request, metadata=auth(role), timeout=20)


def report_request(permit):
    return pb.ReportRequest(
        protocol="aadp/0.2", permit_id=permit, outcome="success", payload=b'{"ref": "tx-1"}',
        completed_at="2026-12-01T00:00:01Z",
    )


def refused(call, status, code):
    try:
        call()
    except grpc.RpcError as error:
        found = dict(error.trailing_metadata() or ()).get("placet-code")
        assert (error.code(), found) == (status, code), (error.code(), found, error.details())
        return error
    raise AssertionError(f"expected {status}")


policies = stub(rpc.PolicyServiceStub)
document = pathlib.Path(os.environ["PLACET_POLICY"]).read_text()
published = policies.Publish(pb.PublishPolicyRequest(document=document), metadata=auth("POLICY"), timeout=20)
assert len(published.digest) == 64
refused(lambda: policies.Publish(pb.PublishPolicyRequest(document="policies: 7"), metadata=auth("POLICY"), timeout=20),
        grpc.StatusCode.INVALID_ARGUMENT, "policy_mistakes")

# Permit and report, and the same request id a second time.
request = decide_request("payments.transfer", {"payee": "alice", "amount_eur": "12.50"})
first = decide(request)
assert (first.verdict, first.reason) == ("permit", "passed"), first
again = decide(request)
assert again.replayed and again.permit_id == first.permit_id
reports = stub(rpc.DecisionServiceStub)
check = pb.CheckPermitRequest(permit_id=first.permit_id)
assert reports.CheckPermit(check, metadata=auth("DECIDE"), timeout=20).usable
assert reports.Report(report_request(first.permit_id), metadata=auth("DECIDE"), timeout=20).accepted
assert not reports.Report(report_request(first.permit_id), metadata=auth("DECIDE"), timeout=20).accepted
assert reports.CheckPermit(check, metadata=auth("DECIDE"), timeout=20).reason == "reported"

# What cannot be read is denied, with status OK.
request = decide_request("payments.transfer", {})
request.params = b'{"payee": "x"}, "action_type": "payments.reverse"'
denied = decide(request)
assert (denied.verdict, denied.reason, denied.request_id) == ("deny", "malformed", request.request_id), denied

# Propose, grant by another principal, resume once.
params = {"batch": "b-1", "amount_eur": "900"}
proposal = decide(decide_request("payments.payout", params))
assert proposal.verdict == "propose" and proposal.approval_id
approvals = stub(rpc.ApprovalServiceStub)
listed = approvals.List(pb.ListApprovalsRequest(), metadata=auth("APPROVE"), timeout=20)
assert proposal.approval_id in [one.approval_id for one in listed.approvals]
grant = pb.ResolveApprovalRequest(approval_id=proposal.approval_id, note="by hand")
refused(lambda: approvals.Grant(grant, metadata=auth("DECIDE"), timeout=20), grpc.StatusCode.PERMISSION_DENIED, "forbidden")
assert approvals.Grant(grant, metadata=auth("APPROVE"), timeout=20).state == "approved"
assert decide(decide_request("payments.payout", params, approval_ref=proposal.approval_id)).verdict == "permit"
assert decide(decide_request("payments.payout", params, approval_ref=proposal.approval_id)).verdict == "propose"

# Many decides and their reports on one stream.
wanted = 50


def calls():
    for number in range(wanted):
        yield pb.StreamRequest(
            correlation_id=number,
            decide=decide_request("payments.transfer", {"payee": "bob", "amount_eur": "1"}),
        )


permits = {}
for answer in stub(rpc.DecisionServiceStub).Stream(calls(), metadata=auth("DECIDE"), timeout=60):
    assert answer.decide.verdict == "permit", answer
    permits[answer.correlation_id] = answer.decide.permit_id
assert sorted(permits) == list(range(wanted)) and len(set(permits.values())) == wanted

# The switch, and what a watcher hears of it.
control = stub(rpc.ControlServiceStub)
watch = stub(rpc.DecisionServiceStub).WatchPermits(pb.WatchPermitsRequest(), metadata=auth("DECIDE"), timeout=20)
assert next(watch).WhichOneof("notice") == "ready"
scope = pb.SwitchScope(action_type="payments.payout")
control.SetKillSwitch(pb.SetKillSwitchRequest(engaged=True, origin="python", scope=scope), metadata=auth("OPERATE"), timeout=20)
assert next(watch).kill_switch.scope == scope
assert next(watch).revoked.action_type == "payments.payout"
watch.cancel()
control.SetKillSwitch(pb.SetKillSwitchRequest(engaged=False, origin="python", scope=scope), metadata=auth("OPERATE"), timeout=20)
control.SetKillSwitch(pb.SetKillSwitchRequest(engaged=True, origin="python"), metadata=auth("OPERATE"), timeout=20)
stopped = decide(decide_request("payments.transfer", {"payee": "alice", "amount_eur": "1"}))
assert (stopped.verdict, stopped.reason) == ("deny", "kill_switch")
control.SetKillSwitch(pb.SetKillSwitchRequest(engaged=False, origin="python"), metadata=auth("OPERATE"), timeout=20)

# What an operator and an auditor see.
cluster = stub(rpc.ClusterServiceStub)
intents = cluster.ListIntents(pb.ListIntentsRequest(limit=1000), metadata=auth("OPERATE"), timeout=20)
assert len(intents.intents) == wanted + 1
assert any(one.name == "eur-daily" for one in cluster.ListBudgets(pb.ListBudgetsRequest(), metadata=auth("OPERATE"), timeout=20).budgets)
evidence = stub(rpc.EvidenceServiceStub)
entry = evidence.Get(pb.GetEvidenceRequest(evidence_id=first.evidence_id), metadata=auth("AUDIT"), timeout=20)
assert json.loads(entry.entry)["body"]["exec_intent"]["verdict"] == "permit"
tail = evidence.Tail(pb.TailEvidenceRequest(after="aud-0"), metadata=auth("AUDIT"), timeout=20)
assert [next(tail).evidence_id for _ in range(3)] == ["aud-1", "aud-2", "aud-3"]
tail.cancel()
found = evidence.Find(pb.FindEvidenceRequest(permit=first.permit_id), metadata=auth("AUDIT"), timeout=20)
assert [one.kind for one in found.evidence] == ["exec_intent", "exec_result", "report_refused"], found
refused(lambda: evidence.Get(pb.GetEvidenceRequest(evidence_id=first.evidence_id), timeout=20),
        grpc.StatusCode.UNAUTHENTICATED, "unauthenticated")

print("complete")
