#![allow(clippy::unwrap_used)]

use metrics::{counter, describe_counter, describe_histogram, gauge, histogram, with_local_recorder};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use opentelemetry::metrics::MeterProvider;
use opentelemetry_sdk::metrics::data::{AggregatedMetrics, MetricData, ResourceMetrics};
use opentelemetry_sdk::metrics::reader::MetricReader;

use super::super::both;
use super::super::metrics::SharedReader;
use super::*;

/// Records some values by both recorders. Returns what Prometheus would read, and what is pushed, one line a value.
fn recorded(work: impl FnOnce()) -> (String, Vec<String>) {
    let reader = SharedReader::default();
    let provider = opentelemetry_sdk::metrics::SdkMeterProvider::builder().with_reader(reader.clone()).build();
    let instruments = Instruments::new(provider.meter("test"), HashMap::from([("wait_seconds", &[0.5, 1.0][..])]));
    let prometheus = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Full("wait_seconds".into()), &[0.5, 1.0])
        .unwrap()
        .build_recorder();
    let page = prometheus.handle();
    with_local_recorder(&both(prometheus, instruments), work);
    let mut metrics = ResourceMetrics::default();
    reader.collect(&mut metrics).unwrap();
    let mut lines: Vec<_> = metrics.scope_metrics().flat_map(|scope| scope.metrics()).flat_map(lines).collect();
    lines.sort();
    (page.render(), lines)
}

fn lines(metric: &opentelemetry_sdk::metrics::data::Metric) -> Vec<String> {
    let (name, unit, text) = (metric.name(), metric.unit(), metric.description());
    let labels = |attributes: &mut dyn Iterator<Item = &KeyValue>| {
        attributes.map(|pair| format!("{}={}", pair.key, pair.value)).collect::<Vec<_>>().join(",")
    };
    match metric.data() {
        AggregatedMetrics::U64(MetricData::Sum(sum)) => {
            assert!(sum.is_monotonic());
            let point = |point: &opentelemetry_sdk::metrics::data::SumDataPoint<u64>| {
                format!("{name}{{{}}} {} [{unit}] {text}", labels(&mut point.attributes()), point.value())
            };
            sum.data_points().map(point).collect()
        }
        AggregatedMetrics::F64(MetricData::Gauge(gauge)) => {
            let point = |point: &opentelemetry_sdk::metrics::data::GaugeDataPoint<f64>| {
                format!("{name}{{{}}} {} [{unit}] {text}", labels(&mut point.attributes()), point.value())
            };
            gauge.data_points().map(point).collect()
        }
        AggregatedMetrics::F64(MetricData::Histogram(histogram)) => {
            let point = |point: &opentelemetry_sdk::metrics::data::HistogramDataPoint<f64>| {
                let (bounds, buckets): (Vec<_>, Vec<_>) = (point.bounds().collect(), point.bucket_counts().collect());
                format!("{name} {bounds:?} {buckets:?} {} {} [{unit}] {text}", point.count(), point.sum())
            };
            histogram.data_points().map(point).collect()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn each_kind_of_metric_has_the_same_values_in_both_recorders() {
    let (page, pushed) = recorded(|| {
        describe_counter!("calls_total", "Calls");
        describe_histogram!("wait_seconds", Unit::Seconds, "Waits");
        for outcome in ["ok", "ok", "failed"] {
            counter!("calls_total", "outcome" => outcome).increment(2);
        }
        counter!("bytes_total").absolute(7);
        counter!("bytes_total").absolute(5);
        gauge!("runs", "state" => "queued").set(3);
        gauge!("runs", "state" => "queued").increment(1.5);
        gauge!("runs", "state" => "queued").decrement(1.0);
        for wait in [0.5, 0.75, 4.0] {
            histogram!("wait_seconds").record(wait);
        }
    });
    assert_eq!(
        pushed,
        [
            "bytes_total{} 7 [] ",
            "calls_total{outcome=failed} 2 [] Calls",
            "calls_total{outcome=ok} 4 [] Calls",
            "runs{state=queued} 3.5 [] ",
            "wait_seconds [0.5, 1.0] [1, 1, 1] 3 5.25 [s] Waits",
        ]
    );
    for line in [
        "bytes_total 7",
        "calls_total{outcome=\"failed\"} 2",
        "calls_total{outcome=\"ok\"} 4",
        "runs{state=\"queued\"} 3.5",
        "wait_seconds_bucket{le=\"0.5\"} 1",
        "wait_seconds_bucket{le=\"1\"} 2",
        "wait_seconds_bucket{le=\"+Inf\"} 3",
        "wait_seconds_sum 5.25",
    ] {
        assert!(page.lines().any(|found| found == line), "{line} in {page}");
    }
}

#[test]
fn units_have_the_codes_of_ucum() {
    let codes = [Unit::Seconds, Unit::Milliseconds, Unit::Bytes, Unit::Percent, Unit::Count].map(code);
    assert_eq!(codes, ["s", "ms", "By", "%", ""]);
}
