//! Streams: many calls on one, bounded; evidence as it comes.

use std::collections::BTreeMap;

use futures::StreamExt;
use placet_edge::limits::STREAM_IN_FLIGHT_MAX;
use placet_wire::v1;
use placet_wire::v1::decision_service_client::DecisionServiceClient;
use placet_wire::v1::evidence_service_client::EvidenceServiceClient;
use placet_wire::v1::stream_request::Call;
use placet_wire::v1::stream_response::Answer;
use tonic::Code;

use crate::client::{channel, signed};
use crate::grpc::decide;
use crate::house::House;

#[tokio::test]
async fn answers_name_their_calls() {
    let house = House::open().await;
    let report = v1::ReportRequest { protocol: "nonsense".into(), ..Default::default() };
    let calls = [
        Some(Call::Decide(decide(b"{\"n\":1}"))),
        Some(Call::Report(report)),
        None,
        Some(Call::Decide(decide(b"{\"n\":2}"))),
    ];
    let calls = (10..).zip(calls).map(|(correlation_id, call)| v1::StreamRequest { correlation_id, call });
    let mut client = DecisionServiceClient::new(channel(&house).await);
    let answers = client.stream(signed(futures::stream::iter(calls.collect::<Vec<_>>()))).await.unwrap().into_inner();
    let answers: Vec<_> = answers.map(Result::unwrap).collect().await;
    let answers: BTreeMap<_, _> =
        answers.into_iter().map(|answer| (answer.correlation_id, answer.answer.unwrap())).collect();
    assert_eq!(answers.len(), 4);
    assert!(matches!(&answers[&10], Answer::Decide(reply) if reply.detail == "{\"n\":1}"));
    assert!(matches!(&answers[&11], Answer::Report(reply) if !reply.accepted));
    assert!(matches!(&answers[&12], Answer::Error(error) if error.code == "invalid"));
    assert!(matches!(&answers[&13], Answer::Decide(reply) if reply.detail == "{\"n\":2}"));
}

/// Goal: a stream takes no more calls than its bound, and all of them in the end.
#[tokio::test]
async fn calls_in_work_are_bounded() {
    let house = House::open().await;
    house.fake.gate.forget_permits(usize::MAX);
    let count = STREAM_IN_FLIGHT_MAX + 50;
    let calls = (0..count).map(|id| v1::StreamRequest {
        correlation_id: id.try_into().unwrap(),
        call: Some(Call::Decide(decide(b"{}"))),
    });
    let mut client = DecisionServiceClient::new(channel(&house).await);
    let answers = client.stream(signed(futures::stream::iter(calls.collect::<Vec<_>>()))).await.unwrap().into_inner();
    let collected = tokio::spawn(answers.map(Result::unwrap).collect::<Vec<_>>());
    house.fake.waiting.subscribe().wait_for(|(now, _)| *now == STREAM_IN_FLIGHT_MAX).await.unwrap();
    house.fake.gate.add_permits(count);
    assert_eq!(collected.await.unwrap().len(), count);
    assert_eq!(house.fake.waiting.borrow().1, STREAM_IN_FLIGHT_MAX);
}

/// Goal: what waits on streams takes its share of the lane, and other calls find theirs.
#[tokio::test]
async fn streams_leave_places_to_other_calls() {
    let house = House::with(None, |edge| edge.with_in_flight_max(4, 1)).await;
    house.fake.gate.forget_permits(usize::MAX);
    let mut clients = Vec::new();
    for _ in 0..3 {
        let calls = (0..10).map(|id| v1::StreamRequest { correlation_id: id, call: Some(Call::Decide(decide(b"{}"))) });
        let calls = futures::stream::iter(calls.collect::<Vec<_>>());
        let mut client = DecisionServiceClient::new(channel(&house).await);
        let answers = client.stream(signed(calls)).await.unwrap().into_inner();
        clients.push(tokio::spawn(answers.map(Result::unwrap).collect::<Vec<_>>()));
    }
    let mut waiting = house.fake.waiting.subscribe();
    waiting.wait_for(|(now, _)| *now == 2).await.unwrap();
    let mut client = DecisionServiceClient::new(channel(&house).await);
    let unary = tokio::spawn(async move { client.decide(signed(decide(b"{}"))).await });
    waiting.wait_for(|(now, _)| *now == 3).await.unwrap();
    house.fake.gate.add_permits(31);
    assert!(unary.await.unwrap().is_ok());
    for client in clients {
        assert_eq!(client.await.unwrap().len(), 10);
    }
}

/// Goal: a stream that is open when the door closes gets the answers that it waits for, then ends.
#[tokio::test]
async fn a_closing_door_answers_open_streams() {
    let house = House::open().await;
    house.fake.gate.forget_permits(usize::MAX);
    let call = v1::StreamRequest { correlation_id: 1, call: Some(Call::Decide(decide(b"{}"))) };
    let calls = futures::stream::iter([call]).chain(futures::stream::pending());
    let mut client = DecisionServiceClient::new(channel(&house).await);
    let mut answers = client.stream(signed(calls)).await.unwrap().into_inner();
    house.fake.waiting.subscribe().wait_for(|(now, _)| *now == 1).await.unwrap();
    house.close();
    house.fake.gate.add_permits(1);
    assert_eq!(answers.next().await.unwrap().unwrap().correlation_id, 1);
    assert!(answers.next().await.is_none());
    house.closed().await;
}

#[tokio::test]
async fn a_tail_sends_what_is_there_and_follows() {
    let house = House::open().await;
    for index in 1..=70 {
        house.fake.record(index, r#"{"body":{"decision":{}}}"#);
    }
    let mut client = EvidenceServiceClient::new(channel(&house).await);
    let mut tail = client.tail(signed(v1::TailEvidenceRequest { after: "aud-2".into() })).await.unwrap().into_inner();
    for index in 3..=70 {
        let entry = tail.next().await.unwrap().unwrap();
        assert_eq!((entry.evidence_id, entry.kind.as_str()), (format!("aud-{index}"), "decision"));
    }
    house.fake.record(71, "{ }");
    let entry = tail.next().await.unwrap().unwrap();
    assert_eq!((entry.evidence_id.as_str(), &entry.entry[..]), ("aud-71", &b"{ }"[..]));
    house.close();
    let status = tail.next().await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(status.message().contains("`aud-71`"), "{}", status.message());
    drop((tail, client));
    house.closed().await;
}
