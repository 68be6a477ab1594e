//! The prompt in tmux: pastes, keys and questions as a real terminal sends and shows them.

use anyhow::Result;
use belay_tests::daemon::Home;
use belay_tests::model_server::{Answer, ModelServer};
use belay_tests::tmux::Tmux;
use serde_json::{Value, json};

/// Starts `belay run` and waits for its prompt; `None`: there is no tmux.
async fn prompt(home: &Home, columns: u16, rows: u16) -> Result<Option<Tmux>> {
    let args = home.run_args();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let Some(tmux) = Tmux::start(home, &args, columns, rows)? else { return Ok(None) };
    tmux.prompt().await?;
    Ok(Some(tmux))
}

/// The text of the last message of a request.
fn said(request: &Value) -> String {
    let messages = request["messages"].as_array().cloned().unwrap_or_default();
    let content = messages.last().map(|message| message["content"].clone()).unwrap_or_default();
    content.as_str().map_or_else(|| content.to_string(), str::to_owned)
}

fn lines(count: usize) -> String {
    (1..=count).map(|n| format!("line {n}\n")).collect()
}

#[tokio::test]
async fn a_paste_of_3_30_and_2000_lines_is_one_message_that_enter_sends() -> Result<()> {
    let model = ModelServer::start(vec![], Answer::text("done")).await;
    let home = Home::new().openai(&model.base_url);
    let Some(tmux) = prompt(&home, 80, 24).await? else { return Ok(()) };
    for (sent, count) in (0_u32..).zip([3, 30, 2000]) {
        tmux.paste(&lines(count))?;
        let last = format!("line {count}");
        tmux.until(&last, |screen| screen.last().is_some_and(|line| line.trim_start_matches("  ... ") == last)).await?;
        assert_eq!(model.requests().len(), sent as usize, "a paste sends nothing");
        tmux.key("Enter")?;
        model.seen(sent + 1).await;
        tmux.prompt().await?;
        let message = said(&model.requests()[sent as usize]);
        assert!(message.contains(lines(count).trim_end()), "{count}: {message}");
    }
    Ok(())
}

#[tokio::test]
async fn control_characters_of_a_paste_do_not_reach_the_terminal_or_the_message() -> Result<()> {
    let model = ModelServer::start(vec![], Answer::text("done")).await;
    let home = Home::new().openai(&model.base_url);
    let Some(tmux) = prompt(&home, 80, 24).await? else { return Ok(()) };
    let title = tmux.title()?;
    tmux.paste("a\x1b[31mred\x1b]2;stolen\x07 b\x01c\ttab\n")?;
    tmux.until("the text", |screen| screen.last().is_some_and(|line| line.starts_with("belay> ared]2;stolen bc")))
        .await?;
    assert_eq!(tmux.title()?, title);
    tmux.key("Enter")?;
    model.seen(1).await;
    assert!(said(&model.requests()[0]).contains("ared]2;stolen bc\ttab"), "{}", said(&model.requests()[0]));
    Ok(())
}

#[tokio::test]
async fn a_paste_answers_no_question_and_waits_while_a_run_works() -> Result<()> {
    let call = Answer::call("write_file", json!({"path": "a.txt", "content": "one\n"}));
    let model = ModelServer::start(vec![call, Answer::text("written"), Answer::Stall], Answer::text("done")).await;
    let home = Home::new().openai(&model.base_url);
    let Some(tmux) = prompt(&home, 80, 40).await? else { return Ok(()) };
    tmux.types("write it")?;
    tmux.key("Enter")?;
    tmux.line("│   1  one").await?;
    tmux.prompt().await?;
    tmux.paste("yes\nand more\n")?;
    tmux.line("  ... and more").await?;
    assert!(!home.workspace().join("a.txt").exists());
    tmux.key("C-u")?;
    tmux.key("C-c")?;
    tmux.prompt().await?;
    assert_eq!(model.requests().len(), 1, "the question waits");
    tmux.types("yes")?;
    tmux.key("Enter")?;
    tmux.line("written").await?;
    tmux.prompt().await?;
    tmux.types("work")?;
    tmux.key("Enter")?;
    model.seen(3).await;
    tmux.paste(&lines(30))?;
    tmux.line("  ... line 30").await?;
    assert_eq!(model.requests().len(), 3, "nothing is sent");
    Ok(())
}

#[tokio::test]
async fn lines_are_made_by_alt_enter_a_backslash_and_an_editor() -> Result<()> {
    let model = ModelServer::start(vec![], Answer::text("done")).await;
    let home = Home::new().openai(&model.base_url).env("VISUAL", "sed -i s/two/2/");
    let Some(tmux) = prompt(&home, 80, 24).await? else { return Ok(()) };
    tmux.types("one")?;
    tmux.key("M-Enter")?;
    tmux.types("two\\")?;
    tmux.key("Enter")?;
    tmux.types("three")?;
    tmux.line("  ... three").await?;
    tmux.key("C-o")?;
    tmux.line("  ... 2\\").await?;
    tmux.key("Enter")?;
    model.seen(1).await;
    assert!(said(&model.requests()[0]).contains("one\n2\nthree"), "{}", said(&model.requests()[0]));
    Ok(())
}

#[tokio::test]
async fn a_question_is_read_at_80_and_120_columns_and_answered_by_the_end_of_its_id() -> Result<()> {
    for columns in [80, 120] {
        let content: String = (1..=60).map(|n| format!("words of line {n}\n")).collect();
        let call = Answer::call("write_file", json!({"path": "notes.md", "content": content}));
        let model = ModelServer::start(vec![call, Answer::text("written")], Answer::text("done")).await;
        let home = Home::new().openai(&model.base_url);
        let Some(tmux) = prompt(&home, columns, 80).await? else { return Ok(()) };
        tmux.types("write it")?;
        tmux.key("Enter")?;
        tmux.until("the question", |screen| screen.iter().any(|line| line.contains("(/approve"))).await?;
        let asked = tmux.prompt().await?;
        for line in
            ["│ May I do this? write_file", "│ path     notes.md", "│ content  60 lines", "│   40  words of line 40"]
        {
            assert!(asked.iter().any(|shown| shown == line), "{line}: {asked:#?}");
        }
        assert!(asked.contains(&"│   … 20 more lines: /more shows all".to_owned()), "{asked:#?}");
        let question: Vec<_> = asked.iter().filter(|line| line.starts_with('│')).collect();
        assert!(question.iter().all(|line| !line.contains("**") && !line.contains("```")), "{question:#?}");
        let end =
            asked.concat().split("(/approve ").nth(1).and_then(|rest| rest.get(..4)).unwrap_or_default().to_owned();
        tmux.types("/more")?;
        tmux.key("Enter")?;
        tmux.line("│   60  words of line 60").await?;
        tmux.types(&format!("/approve {end}"))?;
        tmux.key("Enter")?;
        tmux.line("written").await?;
        let screen = tmux.prompt().await?;
        assert!(screen.iter().any(|line| line.starts_with("✓ write_file ")), "{screen:#?}");
        assert_eq!(std::fs::read_to_string(home.workspace().join("notes.md"))?, content);
    }
    Ok(())
}
