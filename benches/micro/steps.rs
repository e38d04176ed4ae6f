//! The steps of one decide, each alone, without disk or network: what a change of the core costs or saves.
//! Absent on purpose: sums of them. How the whole is, the comparison tells.
#![expect(clippy::expect_used, reason = "a benchmark stops where a test would")]

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use placet_core::evaluate::{Keys, evaluate};
use placet_core::event::Event;
use placet_core::fold::fold;
use placet_core::ids::{Entropy, Principal};
use placet_core::op::{Call, Op};
use placet_core::request::DecideRequest;
use placet_core::stamp::Stamp;
use placet_core::state::{MemState, Overlay};
use placet_core::{evidence, json};
use placet_wire::log;

/// Events of a usual batch under load.
const BATCH: u64 = 64;

const NOW: Stamp = Stamp(1_786_957_200_000);

fn body(number: u64) -> Vec<u8> {
    format!(
        r#"{{"protocol":"aadp/0.2","request_id":"0d9c1f3e-0000-4000-8000-{number:012x}","action_type":"payments.transfer","params":{{"payee":"acme","amount_eur":"1.00"}},"source":"llm","rationale":"bench","session_id":"s","created_at":"2026-08-17T09:00:00Z"}}"#
    )
    .into_bytes()
}

fn entropy(number: u64) -> Entropy {
    let mut entropy = Entropy::default();
    entropy.permit[..8].copy_from_slice(&number.to_be_bytes());
    entropy
}

fn call(op: Op) -> Call {
    Call { principal: Principal::new("agent"), op }
}

/// A state under the benchmark's policy, and the events of `BATCH` decides on it.
fn state_and_batch() -> (MemState, Vec<Event>) {
    let mut state = MemState::default();
    let document = include_str!("../policy.yaml").to_owned();
    let publish = call(Op::PublishPolicy { document, expect: None, activate: true });
    let published = evaluate(&state, &publish, NOW, entropy(0), &Keys::default()).expect("the policy is valid");
    let changes = {
        let mut overlay = Overlay::new(&state);
        published.events.iter().for_each(|event| fold(&mut overlay, event).expect("memory"));
        overlay.into_changes()
    };
    state.write(changes);
    let mut overlay = Overlay::new(&state);
    let mut batch = Vec::new();
    for number in 0..BATCH {
        let decide = call(Op::Decide(body(number)));
        let outcome = evaluate(&overlay, &decide, NOW, entropy(number), &Keys::default()).expect("it is judged");
        outcome.events.iter().for_each(|event| fold(&mut overlay, event).expect("memory"));
        batch.extend(outcome.events);
    }
    assert!(batch.iter().all(|event| event.permit_id.is_some()), "the benchmark's requests are permitted");
    drop(overlay);
    (state, batch)
}

fn steps(criterion: &mut Criterion) {
    let (state, batch) = state_and_batch();
    let request = body(BATCH);
    let first = batch.first().expect("a batch");

    criterion.bench_function("json: parse a decide strictly", |b| b.iter(|| json::parse(black_box(&request))));
    criterion.bench_function("request: read a decide", |b| b.iter(|| DecideRequest::parse(black_box(&request))));
    let decide = call(Op::Decide(request.clone()));
    criterion.bench_function("evaluate: one decide", |b| {
        b.iter(|| evaluate(&state, black_box(&decide), NOW, entropy(BATCH), &Keys::default()))
    });
    criterion.bench_function("fold: one intent", |b| {
        b.iter_batched_ref(|| Overlay::new(&state), |overlay| fold(overlay, black_box(first)), BatchSize::SmallInput)
    });
    criterion.bench_function("encode: one entry", |b| b.iter(|| evidence::encode(black_box(&first.entry))));
    criterion.bench_function("decode: one entry", |b| b.iter(|| evidence::decode(black_box(&first.bytes))));
    criterion.bench_function("chain: hash one entry", |b| b.iter(|| evidence::hash(black_box(&first.bytes))));

    let chain_head = batch.last().expect("a batch").hash;
    let record = log::Batch { term: 1, base: first.entry.index, chain_head, events: batch.clone() };
    let mut group = criterion.benchmark_group("log record of 64 intents");
    group.throughput(Throughput::Elements(BATCH));
    for format in [log::OLDEST, log::NEWEST] {
        let bytes = log::encode(format, &record);
        group.bench_function(format!("encode, format {format}, {} bytes", bytes.len()), |b| {
            b.iter(|| log::encode(format, black_box(&record)))
        });
        group.bench_function(format!("decode, format {format}"), |b| b.iter(|| log::decode(black_box(bytes.clone()))));
    }
    group.finish();
}

criterion_group!(benches, steps);
criterion_main!(benches);
