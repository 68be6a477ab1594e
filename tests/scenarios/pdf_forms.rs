//! PDF forms: the values that a person has filled in reach the model, and hostile forms cost themselves alone.

use std::fmt::Write as _;

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use belay_tests::daemon::Home;
use belay_tests::model_server::{Answer, ModelServer};
use serde_json::json;

use crate::attachments::{ask_with, upload};

/// The first object of a form.
const FIRST: usize = 5;

/// A PDF of one page. `words`: its text, empty for a scanned page. `fields`: the list of the form's fields, which are
/// `objects`, numbered from [`FIRST`].
fn pdf(words: &str, fields: &str, objects: &[String]) -> Vec<u8> {
    let drawn = format!("BT /F1 18 Tf 20 100 Td ({words}) Tj ET");
    let font = "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>";
    let first = [
        format!("<< /Type /Catalog /Pages 2 0 R /AcroForm << /Fields [{fields}] >> >>"),
        "<< /Type /Pages /Kids [3 0 R] /Count 1 >>".to_owned(),
        format!(
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 300 200] /Contents 4 0 R /Resources << /Font << /F1 {font} >> >> >>"
        ),
        format!("<< /Length {} >>\nstream\n{drawn}\nendstream", drawn.len()),
    ];
    let (mut file, mut table) = ("%PDF-1.4\n".to_owned(), "0000000000 65535 f \n".to_owned());
    let size = 1 + first.len() + objects.len();
    for (number, object) in first.iter().chain(objects).enumerate() {
        let _ = writeln!(table, "{:010} 00000 n ", file.len());
        let _ = write!(file, "{} 0 obj\n{object}\nendobj\n", number + 1);
    }
    let start = file.len();
    let _ = write!(file, "xref\n0 {size}\n{table}trailer\n<< /Size {size} /Root 1 0 R >>\nstartxref\n{start}\n%%EOF\n");
    file.into_bytes()
}

fn field(name: &str, value: &str) -> String {
    format!("<< /FT /Tx /T ({name}) /V ({value}) >>")
}

#[tokio::test]
async fn the_values_of_a_filled_form_reach_the_model_as_untrusted_content() -> Result<()> {
    let model = ModelServer::start(vec![], Answer::text("ok")).await;
    let daemon = Home::new().openai(&model.base_url).start().await?;
    let objects = [field("guest", "Ann Miller"), field("room", "7")];
    for (session, words) in [("typed", "Guest form"), ("scanned", "")] {
        let file = pdf(words, "5 0 R 6 0 R", &objects);
        let (status, taken) = upload(&daemon, "form.pdf", file.clone()).await?;
        let content = "text of a PDF, 1 of 1 pages, 2 filled form fields";
        assert_eq!((status, &taken["content"]), (201, &json!(content)), "{session}: {taken}");
        let form = json!([{"name": "form.pdf", "data": STANDARD.encode(file)}]);
        let (status, run) = ask_with(&daemon, session, "who is it?", form).await?;
        assert_eq!(status, 200, "{run}");
        let request = model.requests().pop().context("a request")?["messages"].to_string();
        let begin = request.find("<untrusted source=\\\"file form.pdf\\\"").context("a mark")?;
        let shown = request[begin..].split("</untrusted").next().unwrap_or_default();
        assert!(shown.contains("Form fields:\\nguest: Ann Miller\\nroom: 7"), "{session}: {request}");
        assert!(shown.contains(words), "{session}: {request}");
    }
    Ok(())
}

#[tokio::test]
async fn a_hostile_form_costs_itself_and_not_the_text_of_the_pages() -> Result<()> {
    let model = ModelServer::start(vec![], Answer::text("ok")).await;
    let home = Home::new().openai(&model.base_url).settings("[attachments]\nmax_text_bytes = 4096\n");
    let daemon = home.start().await?;
    let link = |number: usize, key: &str, to: usize| {
        format!("<< /FT /Tx /T (f{number}) /V (x) /Parent {to} 0 R /{key} [{to} 0 R] >>")
    };
    let circle = [link(0, "Kids", FIRST + 1), link(1, "Kids", FIRST)];
    let deep: Vec<String> = (0..5_000).map(|number| link(number, "Kids", FIRST + number + 1)).collect();
    // As many as fill the text ten times. A development build takes 8 s for 100,000 objects, which a unit test has.
    let many: Vec<String> = (0..5_000).map(|number| field(&format!("f{number}"), "1")).collect();
    let all = (0..many.len()).fold(String::new(), |mut list, number| {
        let _ = write!(list, "{} 0 R ", FIRST + number);
        list
    });
    let large = [field("a", &"x".repeat(1_000_000))];
    for (name, fields, objects) in [
        ("circle", "5 0 R 6 0 R", circle.as_slice()),
        ("deep", "5 0 R", &deep),
        ("many", &all, &many),
        ("large", "5 0 R", &large),
    ] {
        let file = pdf("Guest form", fields, objects);
        let (status, taken) = upload(&daemon, name, file).await?;
        let content = taken["content"].as_str().unwrap_or_default();
        assert!(status == 201 && content.starts_with("text of a PDF, 1 of 1 pages"), "{name}: {taken}");
        let form = json!([{"file": taken["file"]}]);
        let (status, run) = ask_with(&daemon, name, "who is it?", form).await?;
        assert_eq!(status, 200, "{name}: {run}");
        let request = model.requests().pop().context("a request")?["messages"].to_string();
        assert!(request.contains("Guest form"), "{name}: the text of the page is there");
        assert!(request.contains("Form fields:") || name == "circle", "{name}: the form is there");
    }
    Ok(())
}
