//! A recorder that passes each value to two others.

use std::sync::Arc;

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};

/// Passes each description and each value to both recorders.
struct Fanout<A, B>(A, B);

/// A recorder that passes each description and each value to both.
pub fn both<A: Recorder, B: Recorder>(first: A, second: B) -> impl Recorder {
    Fanout(first, second)
}

/// Two handles of one series.
struct Both<T>(T, T);

impl CounterFn for Both<Counter> {
    fn increment(&self, value: u64) {
        self.0.increment(value);
        self.1.increment(value);
    }

    fn absolute(&self, value: u64) {
        self.0.absolute(value);
        self.1.absolute(value);
    }
}

impl GaugeFn for Both<Gauge> {
    fn increment(&self, value: f64) {
        self.0.increment(value);
        self.1.increment(value);
    }

    fn decrement(&self, value: f64) {
        self.0.decrement(value);
        self.1.decrement(value);
    }

    fn set(&self, value: f64) {
        self.0.set(value);
        self.1.set(value);
    }
}

impl HistogramFn for Both<Histogram> {
    fn record(&self, value: f64) {
        self.0.record(value);
        self.1.record(value);
    }
}

impl<A: Recorder, B: Recorder> Recorder for Fanout<A, B> {
    fn describe_counter(&self, name: KeyName, unit: Option<Unit>, text: SharedString) {
        self.0.describe_counter(name.clone(), unit, text.clone());
        self.1.describe_counter(name, unit, text);
    }

    fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, text: SharedString) {
        self.0.describe_gauge(name.clone(), unit, text.clone());
        self.1.describe_gauge(name, unit, text);
    }

    fn describe_histogram(&self, name: KeyName, unit: Option<Unit>, text: SharedString) {
        self.0.describe_histogram(name.clone(), unit, text.clone());
        self.1.describe_histogram(name, unit, text);
    }

    fn register_counter(&self, key: &Key, metadata: &Metadata<'_>) -> Counter {
        let both = Both(self.0.register_counter(key, metadata), self.1.register_counter(key, metadata));
        Counter::from_arc(Arc::new(both))
    }

    fn register_gauge(&self, key: &Key, metadata: &Metadata<'_>) -> Gauge {
        let both = Both(self.0.register_gauge(key, metadata), self.1.register_gauge(key, metadata));
        Gauge::from_arc(Arc::new(both))
    }

    fn register_histogram(&self, key: &Key, metadata: &Metadata<'_>) -> Histogram {
        let both = Both(self.0.register_histogram(key, metadata), self.1.register_histogram(key, metadata));
        Histogram::from_arc(Arc::new(both))
    }
}
