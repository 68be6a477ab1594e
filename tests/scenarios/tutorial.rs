//! The tutorial: its shell blocks are run in order, and the outputs that it shows are compared.
//!
//! | block | what is done with it |
//! |---|---|
//! | `sh` | run in one shell, which keeps its variables; each command must succeed. After `belay shutdown` the test waits for the end of the daemon, as the page asks the reader to do |
//! | `sh daemon` | run as the second terminal, with the variables of the first; waits until the daemon is ready |
//! | `text` | the output of the block before it |
//! | `text telegram` | the answer of the bot to the message that the text before the block says to write |
//!
//! In an output `…` stands for any text in a line, and for any number of lines where it is a line of its own.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, bail, ensure};
use belay_tests::bot_api::{BotApi, TOKEN, private_message};
use belay_tests::daemon::{PATIENCE, binary};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

const PAGE: &str = include_str!("../../docs/guide/tutorial.md");
/// Examples of the page, which the test replaces by what it has.
const ADDRESS: &str = "127.0.0.1:8787";
const BOT_TOKEN: &str = "123456:YOUR-TOKEN";
const CODE: &str = "ABCD2345";
/// The line that a block's output ends with.
const END: &str = "--- end of the block ---";
/// The Telegram id of the reader.
const READER: i64 = 4242;

/// A block of the page.
#[derive(Debug)]
struct Block<'a> {
    /// The words behind the fence.
    kind: &'a str,
    text: &'a str,
    /// The text between the block before and this one.
    before: &'a str,
}

fn blocks(page: &str) -> Vec<Block<'_>> {
    let parts: Vec<&str> = page.split("\n```").collect();
    let fences = parts.iter().skip(1).step_by(2).zip(parts.iter().step_by(2));
    fences
        .map(|(fenced, before)| {
            let (kind, text) = fenced.split_once('\n').unwrap_or((fenced, ""));
            Block { kind, text, before }
        })
        .collect()
}

/// Whether a line is as the page shows it. Runs of spaces are one space: the widths of columns vary.
fn line_fits(shown: &str, line: &str) -> bool {
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (shown, line) = (words(shown), words(line));
    let pieces: Vec<&str> = shown.split('…').map(str::trim).collect();
    let [first, middle @ .., last] = pieces.as_slice() else { return shown == line };
    let Some(mut rest) = line.strip_prefix(first) else { return false };
    for piece in middle {
        let Some(at) = rest.find(piece) else { return false };
        rest = &rest[at + piece.len()..];
    }
    rest.ends_with(last)
}

/// Whether an output is as the page shows it.
fn fits(shown: &[&str], output: &[&str]) -> bool {
    match shown {
        [] => output.is_empty(),
        ["…", rest @ ..] => (0..=output.len()).any(|skipped| fits(rest, &output[skipped..])),
        [first, rest @ ..] => {
            output.split_first().is_some_and(|(line, more)| line_fits(first, line) && fits(rest, more))
        }
    }
}

/// The two terminals of the reader.
struct Reader {
    home: TempDir,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    _shell: Child,
    /// The second terminal; its input stays open.
    daemon: Option<(Child, Lines<BufReader<ChildStderr>>)>,
    api: BotApi,
    address: String,
    code: String,
    /// Messages of the bot that were looked at.
    seen: usize,
    updates: u32,
}

impl Reader {
    async fn new() -> Result<Self> {
        let home = tempfile::Builder::new().prefix("belay-").tempdir()?;
        let api = BotApi::start().await;
        // An address of loopback that no other test of this machine has, with the port of the page.
        let [_, _, high, low] = std::process::id().to_be_bytes();
        let address = format!("127.77.{high}.{low}:8787");
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the clone")?;
        let mut shell = Command::new("sh");
        shell.arg("-e").current_dir(root).env_clear().env("PATH", std::env::var("PATH").unwrap_or_default());
        shell.env("HOME", home.path()).env("XDG_RUNTIME_DIR", home.path());
        // The test has compiled already: `make release` compiles nothing, and `make install` takes this binary.
        shell.env("CARGO", "true").env("BINARY", binary());
        shell.env("BELAY__GATEWAY__LISTEN", &address).env("BELAY__CHANNELS__TELEGRAM__API_BASE", &api.url);
        // Whole messages can be counted, however slow the machine is.
        shell.env("BELAY__CHANNELS__TELEGRAM__STREAM", "off");
        let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
        let mut input = shell.stdin.take().context("stdin")?;
        input.write_all(b"exec 2>&1\n").await?;
        let output = BufReader::new(shell.stdout.take().context("stdout")?).lines();
        let code = CODE.to_owned();
        Ok(Self { home, input, output, _shell: shell, daemon: None, api, address, code, seen: 0, updates: 0 })
    }

    /// Runs commands in the first terminal and returns their output, with the examples of the page in it.
    async fn run(&mut self, commands: &str) -> Result<String> {
        let commands = commands.replace(ADDRESS, &self.address).replace(BOT_TOKEN, TOKEN).replace(CODE, &self.code);
        let file = self.home.path().join("block.sh");
        std::fs::write(&file, format!("{commands}\n"))?;
        // The commands read nothing of what follows.
        let line = format!(". {} </dev/null\nprintf '\\n{END}\\n'\n", file.display());
        self.input.write_all(line.as_bytes()).await?;
        let mut lines = Vec::new();
        loop {
            let line = timeout(PATIENCE * 3, self.output.next_line()).await;
            let line = line.with_context(|| format!("{commands}\n: no end after {lines:#?}"))??;
            let Some(line) = line else { bail!("{commands}\n: a command failed: {lines:#?}") };
            if line == END {
                // An output ends with a line feed, or the one of the mark is its end.
                lines.pop_if(|last: &mut String| last.is_empty());
                return Ok(lines.join("\n").replace(&self.address, ADDRESS));
            }
            lines.push(line);
        }
    }

    /// Runs a daemon in the second terminal, with the variables of the first.
    async fn start(&mut self, command: &str) -> Result<()> {
        ensure!(self.daemon.is_none(), "the page starts a second daemon");
        let file = self.home.path().join("environment");
        self.run(&format!("env -0 > {}", file.display())).await?;
        let variables = std::fs::read_to_string(&file)?;
        let mut daemon = Command::new("sh");
        daemon.arg("-c").arg(format!("exec {command}")).env_clear();
        daemon.envs(variables.split('\0').filter_map(|variable| variable.split_once('=')));
        daemon.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut daemon = daemon.spawn()?;
        let mut log = BufReader::new(daemon.stderr.take().context("stderr")?).lines();
        loop {
            let line = timeout(PATIENCE, log.next_line()).await.context("the daemon is not ready")??;
            let line = line.context("the daemon ended before it was ready")?;
            if line.contains(&format!("ready on http://{}", self.address)) {
                break;
            }
        }
        self.daemon = Some((daemon, log));
        Ok(())
    }

    /// Waits for the end of the daemon.
    async fn ended(&mut self) -> Result<()> {
        let (mut daemon, mut log) = self.daemon.take().context("a daemon that the page has started")?;
        let end = async {
            while log.next_line().await?.is_some() {}
            daemon.wait().await
        };
        let status = timeout(PATIENCE, end).await.context("nothing has ended the daemon")??;
        ensure!(status.success(), "the daemon ended with {status}");
        Ok(())
    }

    /// Writes to the bot what the page says, and waits for the answer that it shows.
    async fn telegram(&mut self, block: &Block<'_>) -> Result<()> {
        let said =
            block.before.rsplit("Write `").next().and_then(|rest| rest.split_once("` to")).context("a message")?.0;
        self.updates += 1;
        self.api.update(private_message(self.updates, READER, said));
        loop {
            let count = u32::try_from(self.seen + 1)?;
            let sent = self.api.messages(count).await;
            let text = sent[self.seen]["text"].as_str().unwrap_or_default().to_owned();
            self.seen += 1;
            let is_code = |word: &&str| {
                word.len() == CODE.len() && word.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit())
            };
            if let Some(code) = text.split(|c: char| !c.is_ascii_alphanumeric()).find(is_code) {
                code.clone_into(&mut self.code);
            }
            let text = text.replace(&self.code, CODE);
            if fits(&block.text.lines().collect::<Vec<_>>(), &text.lines().collect::<Vec<_>>()) {
                return Ok(());
            }
        }
    }
}

#[tokio::test]
async fn the_commands_of_the_tutorial_print_what_it_shows() -> Result<()> {
    let mut reader = Reader::new().await?;
    let (mut commands, mut compared, mut output) = (0, 0, None);
    for block in blocks(PAGE) {
        match block.kind {
            "sh" => {
                output = Some(reader.run(block.text).await?);
                if block.text.lines().any(|line| line == "belay shutdown") {
                    reader.ended().await?;
                }
                commands += 1;
            }
            "sh daemon" => reader.start(block.text).await?,
            "text" => {
                let output = output.take().context("a block of commands before the output")?;
                let (shown, lines): (Vec<_>, Vec<_>) = (block.text.lines().collect(), output.lines().collect());
                ensure!(fits(&shown, &lines), "the page shows\n{}\nand the commands print\n{output}", block.text);
                compared += 1;
            }
            "text telegram" => {
                reader.telegram(&block).await?;
                compared += 1;
            }
            other => bail!("nobody checks a block of the kind {other:?}"),
        }
    }
    ensure!(reader.daemon.is_none(), "the page does not end its last daemon");
    ensure!(
        commands >= 15 && compared >= 12,
        "{commands} blocks with {compared} outputs: the page is not read as it is written"
    );
    Ok(())
}

#[test]
fn an_output_fits_what_is_shown() {
    for (shown, output, expected) in [
        ("a", "a", true),
        ("a", "b", false),
        ("a", "a\nb", false),
        ("a\n…", "a\nb\nc", true),
        ("…\nc", "a\nb\nc", true),
        ("…\nd", "a\nb\nc", false),
        ("id … ok", "id 17  ok", true),
        ("id … ok", "id 17 failed", false),
        ("…  stopped  x …", "01a  stopped   x   cli", true),
    ] {
        let lines = |text: &'static str| text.lines().collect::<Vec<_>>();
        assert_eq!(fits(&lines(shown), &lines(output)), expected, "{shown:?} for {output:?}");
    }
}
