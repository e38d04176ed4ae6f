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

/// What is let through. The spans of calls are there where they are exported, unless somebody says otherwise.
fn directives(asked: Option<String>, exported: bool) -> String {
    let calls = placet_edge::telemetry::CALLS;
    match asked.filter(|asked| !asked.trim().is_empty() && EnvFilter::try_new(asked).is_ok()) {
        Some(asked) if exported && !asked.contains(calls) => format!("{asked},{calls}=info"),
        Some(asked) => asked,
        None => format!("{LOGGED},{calls}={}", if exported { "info" } else { "off" }),
    }
}

/// Installs all three. Logs go to standard error; `RUST_LOG` chooses them.
pub fn install(node_id: u64, otlp_endpoint: Option<&str>) -> anyhow::Result<Telemetry> {
    let filter = EnvFilter::new(directives(std::env::var(EnvFilter::DEFAULT_ENV).ok(), otlp_endpoint.is_some()));
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: who exports traces gets the spans of calls, whatever else is logged; who asks for something gets it.
    #[test]
    fn spans_of_calls_are_there_where_they_are_exported() {
        let of = |asked: Option<&str>, exported| directives(asked.map(str::to_owned), exported);
        assert!(of(None, true).ends_with(",placet::calls=info"));
        for asked in [None, Some(""), Some("placet=loud")] {
            assert!(of(asked, false).ends_with(",placet::calls=off"), "{asked:?}");
        }
        assert_eq!(of(Some("warn"), false), "warn");
        assert_eq!(of(Some("warn"), true), "warn,placet::calls=info");
        assert_eq!(of(Some("info,placet::calls=off"), true), "info,placet::calls=off");
        for directives in [of(None, true), of(Some("warn"), true)] {
            assert!(EnvFilter::try_new(&directives).is_ok(), "{directives}");
        }
    }
}
