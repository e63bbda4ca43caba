//! What the page shows of what was counted.

use super::*;

#[test]
fn c_104_a_replica_that_is_gone_has_no_request_in_flight() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let render = recorder.handle();
    let told = |replica: &str| {
        let page = page(&render);
        let line = page.lines().find(|line| line.starts_with(name::IN_FLIGHT) && line.contains(replica));
        line.and_then(|line| line.rsplit(' ').next()).map(str::to_owned)
    };
    metrics::with_local_recorder(&recorder, || {
        let meter = DeploymentMeter::new("chat");
        let at = |in_flight: &[(&str, u32)]| {
            let in_flight = in_flight.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
            meter.gauges(&Figures { in_flight, ..Figures::default() });
        };
        at(&[("chat-1", 7), ("chat-2", 3)]);
        assert_eq!(told("chat-1").as_deref(), Some("7"));
        at(&[("chat-2", 4)]);
        assert_eq!((told("chat-1").as_deref(), told("chat-2").as_deref()), (Some("0"), Some("4")));
        at(&[("chat-1", 1)]);
        assert_eq!((told("chat-1").as_deref(), told("chat-2").as_deref()), (Some("1"), Some("0")));
    });
}

#[tokio::test]
async fn g1_histograms_are_summed_up_though_nobody_scrapes() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let render = recorder.handle();
    metrics::with_local_recorder(&recorder, || metrics::histogram!("told").record(1.0));
    let summed = || !format!("{render:?}").contains("distributions: RwLock { data: {}");
    assert!(!summed());
    let upkeep = tokio::spawn(keep_up(render.clone(), Duration::from_millis(1)));
    let watch = async {
        while !summed() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), watch).await.expect("summed up by itself");
    upkeep.abort();
}

#[test]
fn statuses_that_mean_nothing_are_one_series() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let render = recorder.handle();
    metrics::with_local_recorder(&recorder, || {
        let meter = DeploymentMeter::new("chat");
        for status in 590..=999 {
            meter.answered(None, status, None, Duration::ZERO);
        }
    });
    let page = page(&render);
    let series = |status: &str| {
        let label = format!("status=\"{status}\"");
        let found = page.lines().filter(|line| line.starts_with(name::REQUESTS) && line.contains(&label));
        found.map(|line| line.rsplit(' ').next().unwrap_or_default()).collect::<Vec<_>>()
    };
    assert_eq!((series("599"), series("600"), series("other")), (vec!["1"], vec![], vec!["400"]));
    assert_eq!(page.lines().filter(|line| line.starts_with(name::REQUESTS)).count(), 11);
}

#[test]
fn q2_refusals_are_told_as_zero_before_the_first() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let render = recorder.handle();
    metrics::with_local_recorder(&recorder, || {
        let meter = DeploymentMeter::new("chat");
        DeploymentMeter::new("");
        meter.refused(Refusal::QueueFull);
    });
    let page = page(&render);
    for reason in Refusal::ALL {
        let count = u8::from(reason == Refusal::QueueFull);
        let line = format!("{}{{deployment=\"chat\",reason=\"{reason}\"}} {count}\n", name::REFUSALS);
        assert!(page.contains(&line), "{line}{page}");
    }
    assert!(!page.contains("deployment=\"\",reason"), "{page}");
}
