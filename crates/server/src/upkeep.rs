//! What a node does by itself, beside serving: it signs the head of growing evidence while it leads, and folds its
//! metrics.

use std::sync::Arc;
use std::time::Duration;

use placet_core::ids::{EvidenceIndex, Principal};
use placet_core::op::{Answer, Call, Op};
use placet_core::state::Read;
use placet_replica::Node;

/// Folds measured values into their histograms, so that they do not pile up where nobody scrapes.
pub async fn fold_metrics(metrics: Arc<metrics_exporter_prometheus::PrometheusHandle>) {
    let mut clock = tokio::time::interval(Duration::from_secs(5));
    loop {
        clock.tick().await;
        metrics.run_upkeep();
    }
}

/// Records a signed head every `every` while this node leads and something else was recorded since the last one.
pub async fn sign_heads(node: Node, every: Duration) {
    let mut clock = tokio::time::interval(every);
    clock.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    clock.tick().await;
    let mut signed = EvidenceIndex(0);
    loop {
        clock.tick().await;
        let grown = node.records().meta().is_ok_and(|meta| meta.next_index > signed.next());
        if !node.leads() || !grown {
            continue;
        }
        match node.submit(Call { principal: Principal::system(), op: Op::SignHead }).await {
            Ok(Answer::Head(view)) => signed = view.evidence_id,
            Ok(_) => {}
            // The next round tries again.
            Err(reject) => tracing::warn!(detail = reject.detail(), "the head was not signed"),
        }
    }
}
