//! Logs, metrics and traces of the process. Absent on purpose: what is measured; each crate names its own.

use std::io::IsTerminal;
use std::sync::Arc;

use anyhow::Context;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::WithExportConfig;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// What has to be flushed at the end, and what `GET /metrics` renders.
#[derive(Debug)]
pub struct Telemetry {
    pub metrics: Arc<PrometheusHandle>,
    traces: Option<SdkTracerProvider>,
}

/// Upper bounds of the latency histograms, in seconds.
const LATENCY_BUCKETS: [f64; 12] = [0.000_5, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.125, 0.25, 1.0, 5.0];

/// What is logged unless `RUST_LOG` says otherwise. Consensus warns of every attempt at a member that is down, several
/// times a second; the replica tells when it begins and when it ends.
const LOGGED: &str = "info,openraft=warn,openraft::replication=error,\
    openraft::engine::handler::replication_handler=error,openraft::core::heartbeat=error";

/// Installs all three. Logs go to standard error; `RUST_LOG` chooses them.
pub fn install(node_id: u64, otlp_endpoint: Option<&str>) -> anyhow::Result<Telemetry> {
    let calls = if otlp_endpoint.is_some() { "info" } else { "off" };
    let usual = || EnvFilter::new(format!("{LOGGED},{}={calls}", placet_edge::telemetry::CALLS));
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| usual());
    // Colours are for people: a file or a collector gets none.
    let colours = std::io::stderr().is_terminal();
    let logs = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(colours).with_target(true);
    let traces = match otlp_endpoint {
        None => None,
        Some(endpoint) => {
            let exporter = opentelemetry_otlp::SpanExporter::builder()
                .with_tonic()
                .with_endpoint(endpoint)
                .build()
                .with_context(|| format!("`otlp_endpoint` `{endpoint}` cannot be used"))?;
            let resource = Resource::builder()
                .with_service_name("placet")
                .with_attribute(opentelemetry::KeyValue::new("service.instance.id", node_id.to_string()))
                .build();
            Some(SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build())
        }
    };
    let spans = traces.as_ref().map(|provider| tracing_opentelemetry::layer().with_tracer(provider.tracer("placet")));
    tracing_subscriber::registry().with(filter).with(logs).with(spans).try_init()?;
    let metrics = PrometheusBuilder::new().set_buckets(&LATENCY_BUCKETS)?.install_recorder()?;
    placet_edge::telemetry::describe();
    Ok(Telemetry { metrics: Arc::new(metrics), traces })
}

impl Telemetry {
    /// Sends what is still buffered.
    pub fn flush(&self) {
        if let Some(provider) = &self.traces
            && let Err(error) = provider.shutdown()
        {
            tracing::warn!(%error, "the last spans were not exported");
        }
    }
}
