//! Tests on a real disk: what is stored, which session may read it, and what the size limit removes. The suite of all
//! stores of outputs runs over the files too.
#![allow(clippy::unwrap_used)]

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::sync::Arc;

use belay_protocol::{OutputKeeper as _, RunId, Tool as _, ToolContext, ToolFailure, UnixMillis};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::directory::OutputDirectory;
use super::{KeptOutputs, ReadOutput};
use crate::config::OutputsConfig;
use crate::testing::{RunsOf, context, failure};

mod suite {
    use belay_testkit::output_suite::{self as suite, MAX_TOTAL_BYTES};

    use super::*;

    macro_rules! over_files {
        ($($test:ident)+) => {$(
            #[tokio::test]
            async fn $test() {
                let dir = tempfile::tempdir().unwrap();
                suite::$test(Arc::new(OutputDirectory::open(dir.path(), MAX_TOTAL_BYTES).unwrap())).await;
            }
        )+};
    }

    over_files! {
        an_output_of_any_length_is_read_in_parts
        each_output_has_a_name_of_its_own
        an_output_is_read_after_its_end_alone
        the_oldest_are_removed_beyond_the_limit
        old_outputs_are_removed_by_the_date_of_their_run
    }
}

struct Fixture {
    dir: TempDir,
    outputs: KeptOutputs,
}

fn fixture(max_bytes: u64, max_total_bytes: u64) -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let outputs =
        KeptOutputs::open(&dir.path().join("outputs"), &OutputsConfig { max_bytes, max_total_bytes }).unwrap();
    Fixture { dir, outputs }
}

impl Fixture {
    async fn keep(&self, run: RunId, call: &str, output: &str) -> String {
        self.outputs.keep(run, &call.into(), output).await.unwrap().name
    }

    async fn read(&self, context: &ToolContext, arguments: Value) -> Result<String, ToolFailure> {
        let runs = Arc::new(RunsOf("mine".into()));
        let tool = ReadOutput::new(self.outputs.clone(), runs);
        tool.call(arguments.as_object().unwrap(), context).await.map(|reply| reply.text)
    }

    fn files(&self) -> usize {
        let runs = std::fs::read_dir(self.dir.path().join("outputs")).unwrap();
        runs.map(|run| std::fs::read_dir(run.unwrap().path()).unwrap().count()).sum()
    }
}

#[tokio::test]
async fn an_output_is_read_back_in_parts_by_its_own_session() {
    let fixture = fixture(1000, 10_000);
    let mut mine = context("mine");
    let name = fixture.keep(mine.run_id, "../call", "zero\none\ntwo\n").await;
    for (arguments, expected) in [
        (json!({"name": name}), format!("[{name}: bytes 0 to 13 of 13]\nzero\none\ntwo\n")),
        (
            json!({"name": name, "limit": 4}),
            format!("[{name}: bytes 0 to 4 of 13]\nzero\n[9 more; continue with offset 4]"),
        ),
        (json!({"name": name, "offset": 9}), format!("[{name}: bytes 9 to 13 of 13]\ntwo\n")),
    ] {
        assert_eq!(fixture.read(&mine, arguments.clone()).await, Ok(expected), "{arguments}");
    }
    for (arguments, expected_text) in [
        (json!({"name": name, "offset": 13}), "has 13 bytes; there is none at 13"),
        (json!({"name": name, "offset": u64::MAX}), "has 13 bytes; there is none at 18446744073709551615"),
        (json!({"name": name, "limit": 0}), "counts from 1"),
        (json!({"name": "nonsense"}), "There is no output \"nonsense\""),
        (json!({"name": format!("{name}/../../../secret")}), "There is no output"),
        (json!({"name": format!("{}/1-0123456789ab", mine.run_id)}), "There is no output"),
    ] {
        let text = failure(fixture.read(&mine, arguments.clone()).await);
        assert!(text.contains(expected_text), "{arguments}: {text}");
    }

    mine.run_id = RunId::new();
    assert!(fixture.read(&mine, json!({"name": name})).await.is_ok(), "a later run of the same session");
    let other = failure(fixture.read(&context("other"), json!({"name": name})).await);
    assert!(other.contains("There is no output"), "{other}");
}

#[tokio::test]
async fn files_are_private_and_links_are_not_followed() {
    let fixture = fixture(1000, 10_000);
    let mine = context("mine");
    let name = fixture.keep(mine.run_id, "c", "text").await;
    let path = fixture.dir.path().join("outputs").join(format!("{name}.txt"));
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(std::fs::metadata(path.parent().unwrap()).unwrap().permissions().mode() & 0o777, 0o700);

    std::fs::write(fixture.dir.path().join("secret"), "secret").unwrap();
    std::fs::remove_file(&path).unwrap();
    symlink(fixture.dir.path().join("secret"), &path).unwrap();
    assert_eq!(failure(fixture.read(&mine, json!({"name": name})).await), "The output could not be read.");
}

#[tokio::test]
async fn a_long_output_is_cut_with_a_note() {
    let fixture = fixture(10, 10_000);
    let mine = context("mine");
    let kept = fixture.outputs.keep(mine.run_id, &"c".into(), &"x".repeat(25)).await.unwrap();
    let text = fixture.read(&mine, json!({"name": kept.name})).await.unwrap();
    assert!(text.ends_with("xxxxxxxxxx\n[cut here: 15 more bytes were not kept]\n"), "{text}");
    assert!(text.contains(&format!("of {}]", kept.bytes)));
}

#[tokio::test]
async fn the_oldest_go_first_also_those_of_an_earlier_start() {
    let fixture = fixture(100, 250);
    let mine = context("mine");
    let output = "x".repeat(100);
    let first = fixture.keep(mine.run_id, "a", &output).await;
    let second = fixture.keep(mine.run_id, "a", &output).await;
    assert_ne!(first, second);

    let config = OutputsConfig { max_bytes: 100, max_total_bytes: 250 };
    let outputs = KeptOutputs::open(&fixture.dir.path().join("outputs"), &config).unwrap();
    let fixture = Fixture { outputs, ..fixture };
    let third = fixture.keep(RunId::new(), "a", &output).await;
    assert_eq!(fixture.files(), 2);
    assert!(failure(fixture.read(&mine, json!({"name": first})).await).contains("old outputs are removed"));
    assert!(fixture.read(&mine, json!({"name": second})).await.is_ok());
    assert!(fixture.read(&mine, json!({"name": third})).await.is_ok());
}

#[tokio::test]
async fn an_interrupted_output_leaves_nothing() {
    let fixture = fixture(100, 250);
    let mut writing = fixture.outputs.begin(RunId::new(), &"c".into()).await.unwrap();
    writing.write(b"half").await.unwrap();
    assert_eq!(fixture.files(), 1);
    drop(writing);
    assert_eq!(std::fs::read_dir(fixture.dir.path().join("outputs")).unwrap().count(), 0);
}

#[tokio::test]
async fn outputs_go_with_their_runs_and_by_age() {
    let fixture = fixture(1000, 10_000);
    let [one, two] = [RunId::new(), RunId::new()];
    for (run, call) in [(one, "a"), (one, "b"), (two, "a")] {
        fixture.keep(run, call, "output").await;
    }
    fixture.outputs.forget(&[one, RunId::new()]).await;
    assert_eq!(fixture.files(), 1, "those of other runs stay");
    fixture.outputs.forget(&[one]).await; // the second call does nothing
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let now = i64::try_from(now.as_millis()).unwrap();
    assert_eq!(fixture.outputs.forget_before(UnixMillis(now - 3_600_000)).await.unwrap(), 0);
    assert_eq!(fixture.outputs.forget_before(UnixMillis(now + 3_600_000)).await.unwrap(), 1);
    assert_eq!(fixture.files(), 0);
    fixture.keep(two, "c", "x".repeat(1000).as_str()).await;
    assert_eq!(fixture.files(), 1, "there is room again");
}
