//! Cases 111, 112 and what else can happen to an act: one report, and nothing is done twice.

use std::time::Duration;

use placet_pep::{Action, Outcome, RunError, Sink, SinkError, Unreachable};

use crate::support::{CountingSink, House, builder, flush, in_ms, lamp, with_deadline};

#[tokio::test]
async fn case_111_a_sink_that_fails_is_reported_as_failure_once() {
    let house = House::open().await;
    let result = house
        .pep
        .run(lamp(), async |_| {
            "x".parse::<u32>().map_err(|error| SinkError::failed(error.to_string()))?;
            Ok(())
        })
        .await;
    assert!(matches!(result, Err(RunError::Failed { no_effect: false, .. })), "{result:?}");
    let report = house.only_report("failure").await;
    assert!(report["error"].as_str().unwrap().contains("invalid digit"), "{report}");
}

/// An error that nobody judged says nothing about the act: a client's timeout, a lost answer, a text that is no number.
#[tokio::test]
async fn case_111_an_error_alone_is_reported_as_timeout() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let client = reqwest::Client::builder().timeout(Duration::from_millis(100)).no_proxy().build().unwrap();
    let timeout = client.post(url).send().await.unwrap_err();
    assert!(timeout.is_timeout());
    for error in [
        SinkError::from(timeout),
        SinkError::from("x".parse::<u32>().unwrap_err()),
        SinkError::from(std::io::Error::from(std::io::ErrorKind::NotFound)),
        // What the sink did before this connection is not in the error.
        SinkError::from(std::io::Error::from(std::io::ErrorKind::ConnectionRefused)),
    ] {
        let house = House::open().await;
        let result = house.pep.run::<(), _, _>(lamp(), async move |_| Err(error)).await;
        assert!(matches!(result, Err(RunError::TimedOut { .. })), "{result:?}");
        house.only_report("timeout").await;
    }
}

/// Every way to end, one table: what the sink says, what is reported.
#[tokio::test]
async fn case_111_what_the_sink_knows_is_what_is_reported() {
    let torn = || SinkError::from(std::io::Error::from(std::io::ErrorKind::UnexpectedEof));
    for (said, outcome, no_effect) in [
        (SinkError::failed("no"), "failure", false),
        (SinkError::no_effect("404"), "failure", true),
        (SinkError::refused("locked"), "not_attempted", false),
        (SinkError::unknown("gone"), "timeout", false),
        (torn(), "timeout", false),
    ] {
        let house = House::open().await;
        let result = house.pep.run::<(), _, _>(lamp(), async move |_| Err(said)).await;
        assert!(result.is_err());
        let report = house.only_report(outcome).await;
        assert_eq!(report["no_effect"].as_bool().unwrap_or_default(), no_effect, "{report}");
    }
}

/// A sink that hangs is cut off: `timeout`, once, and it is not called again.
#[tokio::test]
async fn case_112_a_sink_that_hangs_is_reported_as_timeout_and_not_repeated() {
    let house = House::open().await;
    let sink = CountingSink::default();
    let act = sink.act();
    let result = house
        .pep
        .run(lamp(), async move |permit| {
            act(permit).await?;
            std::future::pending::<Result<(), SinkError>>().await
        })
        .await;
    let error = result.unwrap_err();
    assert!(matches!(error, RunError::TimedOut { .. }), "{error:?}");
    assert_eq!(error.outcome(), Outcome::Timeout);
    house.only_report("timeout").await;
    assert_eq!(sink.calls(), 1);
}

/// `execute_within` bounds the act although the sink may take longer, and the report is in time.
#[tokio::test]
async fn case_112_the_deadline_cuts_the_act_off() {
    let house = House::open().await;
    with_deadline(&house.pdp, || in_ms(800));
    let sink = Sink::new(async |_| std::future::pending::<Result<(), SinkError>>().await);
    let started = std::time::Instant::now();
    let result = house.pep.run_sink(lamp(), sink.within(Duration::from_secs(30))).await;
    assert!(matches!(result, Err(RunError::TimedOut { .. })), "{result:?}");
    assert!(started.elapsed() < Duration::from_millis(800), "{:?}", started.elapsed());
    house.only_report("timeout").await;
}

/// A run that is dropped in the middle of the act: nobody knows, and that is reported.
#[tokio::test]
async fn a_run_that_is_dropped_in_the_act_is_reported_as_timeout() {
    let house = House::open().await;
    let (begun, told) = tokio::sync::oneshot::channel();
    let pep = house.pep.clone();
    let run = tokio::spawn(async move {
        pep.run::<(), _, _>(lamp(), async move |_| {
            begun.send(()).unwrap();
            std::future::pending().await
        })
        .await
    });
    told.await.unwrap();
    run.abort();
    let _ = run.await;
    house.only_report("timeout").await;
}

/// A sink that panics takes its task down, and not the report.
#[tokio::test]
async fn a_run_that_panics_in_the_act_is_reported_as_timeout() {
    let house = House::open().await;
    let pep = house.pep.clone();
    let run = tokio::spawn(async move { pep.run::<(), _, _>(lamp(), async |_| panic!("planted by the test")).await });
    assert!(run.await.unwrap_err().is_panic());
    house.only_report("timeout").await;
}

/// A caller that leaves before the answer: the permit is given back.
#[tokio::test]
async fn a_run_that_is_dropped_while_asking_reports_not_attempted() {
    let house = House::open().await;
    house.pdp.fault("/v1/decide", placet_pep::testing::Fault::LoseAnswer);
    let sink = CountingSink::default();
    {
        let run = house.pep.run(lamp(), sink.act());
        // The first attempt is on its way, or lost; nobody waits for the second.
        let _ = tokio::time::timeout(Duration::from_millis(5), run).await;
    }
    let mut waited = 0;
    while house.pdp.results().is_empty() && waited < 200 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        waited += 1;
    }
    house.only_report("not_attempted").await;
    assert_eq!(sink.calls(), 0);
}

/// The answer is there, and its caller leaves before looking at it.
#[tokio::test]
async fn a_run_that_is_dropped_with_its_permit_unread_reports_not_attempted() {
    let house = House::open().await;
    let sink = CountingSink::default();
    let mut run = Box::pin(house.pep.run(lamp(), sink.act()));
    assert!(tokio::time::timeout(Duration::ZERO, &mut run).await.is_err());
    while house.pdp.evidence().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // Long enough for the answer to arrive; if it does not, the case above is tested again.
    tokio::time::sleep(Duration::from_millis(50)).await;
    drop(run);
    while house.pdp.results().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    house.only_report("not_attempted").await;
    assert_eq!(sink.calls(), 0);
}

/// The same request id again: the permit was acted on, and nothing is done twice.
#[tokio::test]
async fn a_request_id_that_was_permitted_is_not_acted_on_again() {
    let house = House::open().await;
    let id = "0d9c1f3e-0000-4000-8000-000000000001";
    let sink = CountingSink::default();
    house.pep.run(lamp().request_id(id), sink.act()).await.unwrap();
    house.flush().await;
    let again = house.pep.run(lamp().request_id(id), sink.act()).await;
    assert!(matches!(again, Err(RunError::FailClosed(_))), "{again:?}");
    house.only_report("success").await;

    // Another outbox does not remember the permit; that the answer is a repetition is enough.
    let folder = tempfile::tempdir().unwrap();
    let next = builder(folder.path()).endpoint(house.pdp.url()).bearer_token(house.pdp.token());
    let next = next.unreachable(Unreachable::FailOpen).build().unwrap();
    let again = next.run(lamp().request_id(id), sink.act()).await;
    assert!(matches!(again, Err(RunError::FailClosed(_))), "{again:?}");
    assert_eq!(sink.calls(), 1);
    flush(&next).await;
    assert_eq!(house.pdp.received("/v1/report").len(), 1);
}

/// A payload that is too large is left out; its size, and the report, arrive.
#[tokio::test]
async fn a_payload_that_is_too_large_is_left_out() {
    let house = House::open().await;
    house
        .pep
        .run(lamp(), async |permit| {
            permit.note("log", "x".repeat(1 << 20));
            Ok(())
        })
        .await
        .unwrap();
    let report = house.only_report("success").await;
    assert!(report["payload"]["payload_left_out"]["bytes"].as_u64().unwrap() > 1 << 20, "{report}");
    assert!(report["payload"]["obligations"].is_array(), "{report}");
}

/// Notes of the sink are in the payload.
#[tokio::test]
async fn notes_of_the_sink_are_reported() {
    let house = House::open().await;
    let action = Action::new("pay.small").param("payee", "acme").param("amount_eur", "60.00");
    house
        .pep
        .run(action, async |permit| {
            permit.note("transaction", "tx-17");
            Ok(())
        })
        .await
        .unwrap();
    let report = house.only_report("success").await;
    assert_eq!(report["payload"]["transaction"], "tx-17");
}
