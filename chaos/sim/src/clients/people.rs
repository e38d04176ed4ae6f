//! People: the board that approves, the operator at the kill switch, and a reader who asks how far the evidence is.

use placet_core::op::{Answer, Op, Query};

use super::Client;

/// Grants and denies what waits.
pub(super) async fn approve(client: Client) {
    while client.pause(100, 900).await {
        let query = Op::Query(Query::Approvals { all: false, after: None, limit: 8 });
        let Some(Ok(Answer::Approvals(waiting))) = client.call(query).await else { continue };
        for approval in waiting {
            if !client.chance(500) {
                continue;
            }
            let grant = client.chance(850);
            client.call(Op::ResolveApproval { id: approval.approval_id, grant, note: None }).await;
        }
    }
}

/// Engages and releases the switch.
pub(super) async fn operate(client: Client) {
    while client.pause(800, 5000).await {
        set(&client, true).await;
        client.pause(50, 1500).await;
        // The one who engaged it stays until it is released again.
        for _ in 0..200 {
            if set(&client, false).await {
                break;
            }
            client.pause(50, 300).await;
        }
    }
}

async fn set(client: &Client, engaged: bool) -> bool {
    let op = Op::SetKillSwitch { engaged, origin: "simulation".to_owned(), note: None, scope: None };
    matches!(client.call(op).await, Some(Ok(Answer::KillSwitch(view))) if view.engaged == engaged)
}

/// Reads how far the evidence is.
pub(super) async fn read(client: Client) {
    while client.pause(50, 400).await {
        client.call(Op::Query(Query::Position)).await;
    }
}
