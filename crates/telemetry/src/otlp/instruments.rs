//! A recorder of metrics over the instruments of OpenTelemetry. Names, units and bucket limits are those of
//! `GET /metrics`, so that both agree.
//!
//! Counters and gauges are observable instruments: a value is one atomic number, and the collection reads it. Histograms
//! are those of the SDK.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use metrics::atomics::AtomicU64;
use metrics::{Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use metrics_util::registry::{Registry, Storage};
use opentelemetry::KeyValue;
use opentelemetry::metrics::{Histogram as OtelHistogram, Meter};
use std::sync::atomic::Ordering;

/// The recorder.
pub struct Instruments {
    series: Registry<Key, Arc<Store>>,
    store: Arc<Store>,
}

impl Instruments {
    /// A recorder over this meter. `bounds`: the upper bounds of the buckets of each histogram.
    pub(crate) fn new(meter: Meter, bounds: HashMap<&'static str, &'static [f64]>) -> Self {
        let store = Arc::new(Store { meter, bounds, described: Mutex::default(), families: Mutex::default() });
        Self { series: Registry::new(store.clone()), store }
    }

    fn describe(&self, name: KeyName, unit: Option<Unit>, text: SharedString) {
        lock(&self.store.described).entry(name.as_str().to_owned()).or_insert((unit, text));
    }
}

impl Recorder for Instruments {
    fn describe_counter(&self, name: KeyName, unit: Option<Unit>, text: SharedString) {
        self.describe(name, unit, text);
    }

    fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, text: SharedString) {
        self.describe(name, unit, text);
    }

    fn describe_histogram(&self, name: KeyName, unit: Option<Unit>, text: SharedString) {
        self.describe(name, unit, text);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        self.series.get_or_create_counter(key, |value| value.clone().into())
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        self.series.get_or_create_gauge(key, |value| value.clone().into())
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        self.series.get_or_create_histogram(key, |value| value.clone().into())
    }
}

/// The series of one name with their attributes, which the callback of its instrument reads.
type Family = Arc<Mutex<Vec<(Vec<KeyValue>, Arc<AtomicU64>)>>>;

/// Makes the instruments. A lock of a family is only held to add or to read its series, so that a collection, which
/// holds locks of the SDK, never waits for the making of an instrument.
struct Store {
    meter: Meter,
    bounds: HashMap<&'static str, &'static [f64]>,
    described: Mutex<HashMap<String, (Option<Unit>, SharedString)>>,
    families: Mutex<Families>,
}

/// The instruments by name.
#[derive(Default)]
struct Families {
    counters: HashMap<String, Family>,
    gauges: HashMap<String, Family>,
    histograms: HashMap<String, OtelHistogram<f64>>,
}

impl Store {
    /// The unit and the text of a name; empty ones if it is not described.
    fn description(&self, name: &str) -> (&'static str, String) {
        let described = lock(&self.described);
        let Some((unit, text)) = described.get(name) else { return ("", String::new()) };
        (unit.map_or("", code), text.to_string())
    }

    fn counters(&self, name: &str) -> Family {
        let (unit, text) = self.description(name);
        let family = Family::default();
        let read = family.clone();
        // The instrument lives in the meter.
        let _instrument = self
            .meter
            .u64_observable_counter(name.to_owned())
            .with_unit(unit)
            .with_description(text)
            .with_callback(move |observer| {
                for (attributes, value) in lock(&read).iter() {
                    observer.observe(value.load(Ordering::Acquire), attributes);
                }
            })
            .build();
        family
    }

    fn gauges(&self, name: &str) -> Family {
        let (unit, text) = self.description(name);
        let family = Family::default();
        let read = family.clone();
        // The instrument lives in the meter.
        let _instrument = self
            .meter
            .f64_observable_gauge(name.to_owned())
            .with_unit(unit)
            .with_description(text)
            .with_callback(move |observer| {
                for (attributes, value) in lock(&read).iter() {
                    observer.observe(f64::from_bits(value.load(Ordering::Acquire)), attributes);
                }
            })
            .build();
        family
    }

    fn histograms(&self, name: &str) -> OtelHistogram<f64> {
        let (unit, text) = self.description(name);
        let builder = self.meter.f64_histogram(name.to_owned()).with_unit(unit).with_description(text);
        match self.bounds.get(name) {
            Some(bounds) => builder.with_boundaries(bounds.to_vec()).build(),
            None => builder.build(),
        }
    }
}

impl Storage<Key> for Store {
    type Counter = Arc<AtomicU64>;
    type Gauge = Arc<AtomicU64>;
    type Histogram = Arc<Samples>;

    fn counter(&self, key: &Key) -> Self::Counter {
        let family = lock(&self.families)
            .counters
            .entry(key.name().to_owned())
            .or_insert_with_key(|name| self.counters(name))
            .clone();
        add(&family, key)
    }

    fn gauge(&self, key: &Key) -> Self::Gauge {
        let family = lock(&self.families)
            .gauges
            .entry(key.name().to_owned())
            .or_insert_with_key(|name| self.gauges(name))
            .clone();
        add(&family, key)
    }

    fn histogram(&self, key: &Key) -> Self::Histogram {
        let instrument = lock(&self.families)
            .histograms
            .entry(key.name().to_owned())
            .or_insert_with_key(|name| self.histograms(name))
            .clone();
        Arc::new(Samples { instrument, attributes: attributes(key) })
    }
}

/// A histogram with its attributes.
struct Samples {
    instrument: OtelHistogram<f64>,
    attributes: Vec<KeyValue>,
}

impl HistogramFn for Samples {
    fn record(&self, value: f64) {
        self.instrument.record(value, &self.attributes);
    }
}

/// Adds a series to its family.
fn add(family: &Family, key: &Key) -> Arc<AtomicU64> {
    let value = Arc::new(AtomicU64::new(0));
    lock(family).push((attributes(key), value.clone()));
    value
}

fn attributes(key: &Key) -> Vec<KeyValue> {
    key.labels().map(|label| KeyValue::new(label.key().to_owned(), label.value().to_owned())).collect()
}

/// The code of a unit. Source: The Unified Code for Units of Measure, which OpenTelemetry prescribes.
fn code(unit: Unit) -> &'static str {
    match unit {
        Unit::Seconds => "s",
        Unit::Milliseconds => "ms",
        Unit::Bytes => "By",
        Unit::Percent => "%",
        _ => "",
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic leaves complete entries.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
