//! Measures the requests of one logical call: what they streamed and reported, and the charge of each. If the provider
//! has not reported usage, the charge is the whole estimated input and the streamed output, reasoning and tool calls
//! included.

use belay_protocol::Usage;

/// Measures the requests of one logical call.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    /// Requests that failed after their answer had begun; at most as many as a call may send.
    broken: Vec<Request>,
    current: Request,
    /// Number of requests sent.
    sent: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Request {
    /// The request was sent and has neither failed nor ended.
    in_flight: bool,
    begun: bool,
    /// Bytes of text, reasoning and tool calls.
    bytes: u64,
    reported: Option<Usage>,
}

/// Estimated usage of requests without figures of the provider.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Estimate {
    /// Sum of their tokens.
    pub usage: Usage,
    /// Number of these requests.
    pub requests: u32,
}

impl Meter {
    /// Records that a request was sent.
    pub(crate) fn sent(&mut self) {
        self.fail(); // a previous request whose failure was not reported
        self.current.in_flight = true;
        self.sent = self.sent.saturating_add(1);
    }

    /// Number of requests sent.
    pub(crate) fn requests(&self) -> u32 {
        self.sent
    }

    /// Records a fragment of the answer: text, reasoning, or a part of a tool call.
    pub(crate) fn piece(&mut self, bytes: usize) {
        self.current.begun = true;
        self.current.bytes = self.current.bytes.saturating_add(bytes as u64);
    }

    /// Records the usage that the provider has reported for the request so far.
    pub(crate) fn reported(&mut self, usage: &Usage) {
        self.current.begun = true;
        self.current.reported = Some(*usage);
    }

    /// Records that the request failed. If its answer had not begun, it is not charged.
    pub(crate) fn fail(&mut self) {
        let request = std::mem::take(&mut self.current);
        if request.begun {
            self.broken.push(request);
        }
    }

    /// Records that the call was dropped. A request in flight is charged with its input even if its answer had not
    /// begun, because it was sent. During a pause between requests, nothing is in flight.
    pub(crate) fn stop(&mut self) {
        let request = std::mem::take(&mut self.current);
        if request.in_flight || request.begun {
            self.broken.push(request);
        }
    }

    /// The charge of the failed requests. `begun`: their number as the provider layer counts it, which may include
    /// requests unknown here. `most`: the maximum usage of one request, with its estimated input.
    pub(crate) fn broken(&self, begun: u32, most: &Usage) -> Estimate {
        let heard = u32::try_from(self.broken.len()).unwrap_or(u32::MAX);
        let unheard = begun.saturating_sub(heard);
        let input_of_unheard = most.input.saturating_mul(u64::from(unheard));
        let start = Usage { input: input_of_unheard, ..Usage::default() };
        let usage = self.broken.iter().fold(start, |sum, request| sum.plus(&request.estimate(0, most)));
        Estimate { usage, requests: heard.saturating_add(unheard) }
    }

    /// The charge of a whole answer of this many bytes, if the provider reports no usage with it.
    pub(crate) fn answered(&self, bytes: usize, most: &Usage) -> Usage {
        self.current.estimate(bytes as u64, most)
    }
}

impl Request {
    /// The usage reported before the failure counts; the output is at least what was streamed.
    fn estimate(&self, bytes: u64, most: &Usage) -> Usage {
        let reported = self.reported.unwrap_or_default();
        // Four bytes are one token, as for the input.
        let streamed = self.bytes.max(bytes).div_ceil(4).min(most.output);
        Usage {
            input: if reported.input > 0 { reported.input } else { most.input },
            cached_input: reported.cached_input,
            output: reported.output.max(streamed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Usage = Usage { input: 100, cached_input: 0, output: 1000 };

    fn estimate(input: u64, output: u64, requests: u32) -> Estimate {
        Estimate { usage: Usage { input, cached_input: 0, output }, requests }
    }

    #[test]
    fn broken_requests_are_charged_for_their_input_and_for_what_was_streamed() {
        type Course = fn(&mut Meter);
        let rows: &[(&str, Course, u32, Estimate)] = &[
            ("failed before an answer", Meter::fail, 0, estimate(0, 0, 0)),
            (
                "stopped before an answer",
                |meter| {
                    meter.sent();
                    meter.stop();
                },
                0,
                estimate(100, 0, 1),
            ),
            ("stopped before a request was sent", Meter::stop, 0, estimate(0, 0, 0)),
            (
                "stopped in the pause behind a failure",
                |meter| {
                    meter.sent();
                    meter.fail();
                    meter.stop();
                },
                0,
                estimate(0, 0, 0),
            ),
            (
                "sent again, and stopped",
                |meter| {
                    meter.sent();
                    meter.piece(40);
                    meter.sent();
                    meter.stop();
                },
                1,
                estimate(200, 10, 2),
            ),
            (
                "streamed, then failed",
                |meter| {
                    meter.piece(10);
                    meter.fail();
                },
                1,
                estimate(100, 3, 1),
            ),
            (
                "streamed, then stopped",
                |meter| {
                    meter.piece(40);
                    meter.stop();
                },
                0,
                estimate(100, 10, 1),
            ),
            (
                "more than it may",
                |meter| {
                    meter.piece(9000);
                    meter.stop();
                },
                0,
                estimate(100, 1000, 1),
            ),
            (
                "reported the input and streamed",
                |meter| {
                    meter.reported(&Usage { input: 7, cached_input: 0, output: 1 });
                    meter.piece(40);
                    meter.stop();
                },
                0,
                estimate(7, 10, 1),
            ),
            (
                "reported more than was streamed",
                |meter| {
                    meter.piece(4);
                    meter.reported(&Usage { input: 7, cached_input: 0, output: 50 });
                    meter.fail();
                },
                1,
                estimate(7, 50, 1),
            ),
            (
                "one broke off, one was stopped",
                |meter| {
                    meter.piece(4);
                    meter.fail();
                    meter.piece(8);
                    meter.stop();
                },
                1,
                estimate(200, 3, 2),
            ),
            (
                "begun unseen",
                |meter| {
                    meter.piece(4);
                    meter.fail();
                },
                3,
                estimate(300, 1, 3),
            ),
        ];
        for (name, course, begun, expected) in rows {
            let mut meter = Meter::default();
            course(&mut meter);
            assert_eq!(meter.broken(*begun, &MOST), *expected, "{name}");
        }
    }

    #[test]
    fn an_answer_without_figures_is_estimated_by_its_bytes() {
        let mut meter = Meter::default();
        meter.piece(100);
        assert_eq!(meter.answered(60, &MOST), estimate(100, 25, 0).usage, "reasoning was streamed as well");
        assert_eq!(Meter::default().answered(60, &MOST), estimate(100, 15, 0).usage, "nothing was streamed");
    }
}
