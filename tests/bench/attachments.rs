//! The measurements of attachments: the time until a picture is ready for the model, and the delay of another
//! conversation while a large PDF is read.

use std::fmt::Write as _;
use std::io::Cursor;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use belay_tests::measure::http::Answer;
use image::codecs::jpeg::JpegEncoder;
use image::{Rgb, RgbImage};
use tokio::time::sleep;

use crate::Options;
use crate::daemon::Daemon;
use crate::figures::{Mark, Report, milliseconds, quantile_ms};
use crate::http::Connection;
use crate::model::Model;

/// Edges of the picture: 4.0 megapixels.
const EDGES: (u32, u32) = (2464, 1632);
/// Pages of the PDF, and bytes of each: 10 MB.
const PAGES: usize = 100;
const PAGE_BYTES: usize = 100_000;
/// Messages of the other conversation before the PDF comes.
const ALONE: usize = 100;
/// Messages of a session before a new one begins.
const SESSION_MESSAGES: usize = 10;

/// Measures everything, in the order of the table.
pub(crate) async fn all(options: &Options, report: &mut Report) -> Result<()> {
    let (repetitions, pictures) = if options.quick { (1, 5) } else { (3, 20) };
    let model = Model::start()?;
    let (picture, document) = (jpeg()?, pdf());
    let (mut ready, mut read, mut alone, mut beside) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..repetitions {
        let roomy = options.with(&["attachments.max_bytes_per_day=1000000000"]);
        let daemon = Daemon::start(&roomy, model.address)?;
        ready.push(quantile_ms(&mut uploads(&daemon, &picture, pictures).await?, 0.5));
        let Delay { read: took, alone: before, beside: during } = delay(daemon.address, &document).await?;
        read.push(milliseconds(took));
        alone.push(before);
        beside.push(during);
    }
    report.add("a JPEG of 4 megapixels, ready for the model, p50", "ms", &ready).mark(Mark::AtMost(150.0));
    report.add("a PDF of 10 MB, read", "ms", &read);
    report.add("a message of another conversation, p50, alone", "ms", &alone);
    report.add("a message of another conversation, the slowest while the PDF is read", "ms", &beside);
    let delays: Vec<f64> = beside.iter().zip(&alone).map(|(beside, alone)| beside - alone).collect();
    report.add("delay by the PDF: the slowest less the p50 alone", "ms", &delays).mark(Mark::AtMost(50.0));
    Ok(())
}

/// The times of uploads of one picture. Each has another end, so that none is known already.
async fn uploads(daemon: &Daemon, picture: &[u8], number: usize) -> Result<Vec<Duration>> {
    let mut connection = Connection::open(daemon.address).await?;
    let mut times = Vec::new();
    for number in 0..=number {
        let mut bytes = picture.to_vec();
        bytes.extend_from_slice(&number.to_be_bytes());
        let begin = Instant::now();
        let answer = connection.upload("/api/v1/files?name=photo.jpg", &bytes).await?;
        taken(&answer, "JPG picture, 2464 x 1632 pixels, shown at")?;
        // The first one starts threads.
        if number > 0 {
            times.push(begin.elapsed());
        }
    }
    Ok(times)
}

/// Fails unless the file was taken and read.
fn taken(answer: &Answer, content: &str) -> Result<()> {
    let text = String::from_utf8_lossy(&answer.body);
    ensure!(answer.status == 201 && text.contains(content), "HTTP {}: {text}", answer.status);
    Ok(())
}

/// The times of messages with and without a PDF.
struct Delay {
    read: Duration,
    /// Median milliseconds of a message alone.
    alone: f64,
    /// Milliseconds of the slowest message beside the PDF.
    beside: f64,
}

/// Sends messages, uploads the PDF meanwhile, and sends messages until it is read.
async fn delay(address: SocketAddr, document: &[u8]) -> Result<Delay> {
    let mut connection = Connection::open(address).await?;
    let mut number = 0;
    let mut alone = Vec::new();
    for _ in 0..ALONE {
        alone.push(message(&mut connection, &mut number).await?);
    }
    let is_read = Arc::new(AtomicBool::new(false));
    let (done, document) = (is_read.clone(), document.to_vec());
    let reading = tokio::spawn(async move {
        let mut connection = Connection::open(address).await?;
        let begin = Instant::now();
        let answer = connection.upload("/api/v1/files?name=long.pdf", &document).await;
        done.store(true, Ordering::Release);
        taken(&answer?, "text of a PDF")?;
        anyhow::Ok(begin.elapsed())
    });
    let mut beside = Vec::new();
    while !is_read.load(Ordering::Acquire) {
        beside.push(message(&mut connection, &mut number).await?);
        sleep(Duration::from_millis(2)).await;
    }
    Ok(Delay { read: reading.await??, alone: quantile_ms(&mut alone, 0.5), beside: quantile_ms(&mut beside, 1.0) })
}

/// The time of a message and its answer.
async fn message(connection: &mut Connection, number: &mut usize) -> Result<Duration> {
    let body = format!(r#"{{"session":"other-{}","text":"tool:0","wait_ms":30000}}"#, *number / SESSION_MESSAGES);
    *number += 1;
    let begin = Instant::now();
    let answer = connection.post("/api/v1/messages", body.as_bytes()).await?;
    ensure!(answer.status == 200, "HTTP {}: {}", answer.status, String::from_utf8_lossy(&answer.body));
    Ok(begin.elapsed())
}

/// A picture with areas and noise, as cameras make them.
fn jpeg() -> Result<Vec<u8>> {
    let mut state = 1u32;
    let picture = RgbImage::from_fn(EDGES.0, EDGES.1, |x, y| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let noise = state.to_be_bytes()[0] / 16;
        let [_, _, _, column] = (x / 10).to_be_bytes();
        let [_, _, _, row] = (y / 7).to_be_bytes();
        Rgb([column.saturating_add(noise), row.saturating_add(noise), (column ^ row).saturating_add(noise)])
    });
    let mut bytes = Cursor::new(Vec::new());
    picture.write_with_encoder(JpegEncoder::new_with_quality(&mut bytes, 90))?;
    Ok(bytes.into_inner())
}

/// A PDF of text. Source: ISO 32000-1, 7.5: objects, the table of their offsets, the trailer.
fn pdf() -> Vec<u8> {
    let mut line = String::from("BT /F1 10 Tf 40 800 Td ");
    while line.len() < PAGE_BYTES {
        line.push_str("(The harbour was quiet that day, and the boats lay still.) Tj 0 -12 Td ");
    }
    line.push_str("ET");
    let kids: String = (0..PAGES).map(|page| format!("{} 0 R ", 4 + 2 * page)).collect();
    let mut objects = vec![
        "<< /Type /Catalog /Pages 2 0 R >>".to_owned(),
        format!("<< /Type /Pages /Count {PAGES} /Kids [ {kids}] >>"),
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>".to_owned(),
    ];
    for page in 0..PAGES {
        let content = 5 + 2 * page;
        objects.push(format!(
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Resources << /Font << /F1 3 0 R >> >> /Contents {content} 0 R >>"
        ));
        objects.push(format!("<< /Length {} >>\nstream\n{line}\nendstream", line.len()));
    }
    let mut file = String::from("%PDF-1.4\n");
    let mut offsets = Vec::new();
    for (number, object) in objects.iter().enumerate() {
        offsets.push(file.len());
        let _ = write!(file, "{} 0 obj\n{object}\nendobj\n", number + 1); // writing to a string cannot fail
    }
    let (table, entries) = (file.len(), objects.len() + 1);
    let _ = write!(file, "xref\n0 {entries}\n0000000000 65535 f \n");
    for offset in offsets {
        let _ = writeln!(file, "{offset:010} 00000 n ");
    }
    let _ = write!(file, "trailer\n<< /Size {entries} /Root 1 0 R >>\nstartxref\n{table}\n%%EOF\n");
    file.into_bytes()
}
