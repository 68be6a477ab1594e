//! The measurement of the terminal: the time from a piece of the model's answer to the screen of a pseudo-terminal.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use belay_tests::daemon::Home;
use belay_tests::terminal::Terminal;

use crate::Options;
use crate::figures::{Mark, Report, quantile_ms};
use crate::slow::{STAMP, SlowModel};

/// Pieces of an answer, and the pause between two in milliseconds.
const PIECES: usize = 5;
const EVERY_MS: u64 = 100;

/// Measures everything.
pub(crate) async fn all(options: &Options, report: &mut Report) -> Result<()> {
    let (repetitions, answers) = if options.quick { (1, 5) } else { (3, 20) };
    let (mut first, mut all) = (Vec::new(), Vec::new());
    for _ in 0..repetitions {
        let model = SlowModel::start()?;
        let home = Home::new().program(&options.belay.canonicalize()?).openai(&format!("http://{}/v1", model.address));
        let mut terminal = Terminal::run(&home, 100, 30).await?;
        let (mut firsts, mut later) = (Vec::new(), Vec::new());
        for _ in 0..answers {
            let before = terminal.output().len();
            terminal.press(&format!("drip:{PIECES}:{EVERY_MS}\r"))?;
            let stamps = stamps(&terminal, before).await?;
            let ages = stamps.iter().map(|stamp| {
                let shown = terminal.written_at(&format!("{STAMP}{stamp}")).context("it was written")?;
                Ok(shown.saturating_duration_since(model.sent_at(*stamp)))
            });
            let ages = ages.collect::<Result<Vec<Duration>>>()?;
            firsts.extend(ages.first().copied());
            later.extend(ages);
            terminal.prompt().await?;
        }
        first.push(quantile_ms(&mut firsts, 0.5));
        all.push(quantile_ms(&mut later, 0.99));
    }
    report.add("the first piece of an answer on the terminal, p50", "ms", &first).mark(Mark::AtMost(20.0));
    report.add("a piece of an answer on the terminal, p99", "ms", &all);
    Ok(())
}

/// The stamps of an answer that is written after the first `before` bytes, in their order.
async fn stamps(terminal: &Terminal, before: usize) -> Result<Vec<u64>> {
    let begin = Instant::now();
    loop {
        let output = terminal.output();
        let mut found: Vec<u64> = Vec::new();
        for part in output.get(before..).unwrap_or_default().split(STAMP).skip(1) {
            let digits: String = part.chars().take_while(char::is_ascii_digit).collect();
            // A stamp is longer than any other number that the terminal shows, and may be written again.
            if let Some(stamp) = digits.parse().ok().filter(|stamp| digits.len() > 7 && !found.contains(stamp)) {
                found.push(stamp);
            }
        }
        if found.len() == PIECES {
            return Ok(found);
        }
        ensure!(begin.elapsed() < belay_tests::daemon::PATIENCE, "{} of {PIECES} pieces: {output:?}", found.len());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
