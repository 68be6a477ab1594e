//! `belay setup`: asks for what a first start needs, checks each answer, and writes a settings file that `belay check`
//! accepts.
//!
//! Every answer has a flag. A later call changes only what it is asked to change. Nothing is written before everything
//! is checked, and no file is half-written.
//!
//! Reading order: [`target`] (the file) → [`person`] (who is asked) → [`model`], [`telegram`] (the questions) →
//! [`document`], [`drop_in`] (the new texts) → [`files`] (the writing).

mod document;
mod drop_in;
mod files;
mod model;
mod person;
mod target;
#[cfg_attr(not(feature = "telegram"), path = "setup/no_telegram.rs")]
mod telegram;

use std::path::{Path, PathBuf};

use belay_program::environment::Environment;
use belay_program::exit::{Exit, Failure};
use belay_program::output::Output;
use belay_program::signals::{OnHangup, SignalWatch};
use belay_settings::secrets;
use belay_settings::{expand, workspace_of};
use clap::Args;
use secrecy::SecretString;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use self::document::{Change, Setting, changed};
use self::files::{Content, NewFile};
use self::model::{Asked, Key};
use self::person::Person;
use self::target::Target;

/// The systemd credential of the model's key, and the variable that stands for it in the settings.
const KEY_CREDENTIAL: (&str, &str) = ("llm_api_key", "LLM_API_KEY");

/// The systemd credential of the bot's token, and the name of its file.
const TOKEN: &str = "telegram_bot_token";

/// `belay setup`
#[derive(Debug, Default, Args)]
pub struct SetupArgs {
    /// Write this settings file [default: this user's belay.toml; with --unit /etc/belay/belay.toml]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The provider of the model, such as openai, anthropic or ollama
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,
    /// The address of a server that speaks the provider's protocol; without --provider: OpenAI's chat completions
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
    /// Read the provider's key from this file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["key_stdin", "no_key"])]
    key_file: Option<PathBuf>,
    /// Read the provider's key from standard input
    #[arg(long, conflicts_with = "no_key")]
    key_stdin: bool,
    /// Send no key
    #[arg(long)]
    no_key: bool,
    /// The model; it must be one that the provider lists
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// The directory in which tools read and write
    #[arg(long, value_name = "DIR")]
    workspace: Option<PathBuf>,
    /// Serve the Telegram bot whose token is in this file
    #[arg(long, value_name = "FILE", conflicts_with = "no_telegram")]
    telegram_token_file: Option<PathBuf>,
    /// Numeric id of a person who operates the bot; may be given several times
    #[arg(long = "telegram-user", value_name = "ID", conflicts_with = "no_telegram")]
    telegram_users: Vec<u64>,
    /// The address of the Bot API server, if it is not Telegram's own
    #[arg(long, value_name = "URL", conflicts_with = "no_telegram")]
    telegram_api: Option<String>,
    /// Serve no Telegram bot
    #[arg(long)]
    no_telegram: bool,
    /// Give secrets to this systemd unit as credentials, by a drop-in in /etc, or beside a unit that is not a package's
    #[arg(long, value_name = "FILE")]
    unit: Option<PathBuf>,
    /// Ask nothing: what no flag answers keeps its value or gets its default
    #[arg(long)]
    yes: bool,
    /// Print a summary as JSON
    #[arg(long)]
    json: bool,
}

impl SetupArgs {
    fn concerns_model(&self) -> bool {
        let key = self.key_file.is_some() || self.key_stdin || self.no_key;
        key || self.provider.is_some() || self.base_url.is_some() || self.model.is_some()
    }

    fn concerns_telegram(&self) -> bool {
        self.no_telegram
            || self.telegram_token_file.is_some()
            || !self.telegram_users.is_empty()
            || self.telegram_api.is_some()
    }

    /// The key that a flag names.
    fn key(&self) -> Result<Option<Key>, Failure> {
        match (&self.key_file, self.key_stdin, self.no_key) {
            (Some(file), ..) => secret_in(file, "--key-file").map(|key| Some(Key::New(key))),
            (None, true, _) => {
                let key = secrets::of_reader(std::io::stdin().lock(), "standard input").map_err(unusable)?;
                key.map(|key| Some(Key::New(key)))
                    .ok_or_else(|| unusable("standard input is empty: it must hold the key".to_owned()))
            }
            (None, false, true) => Ok(Some(Key::Without)),
            (None, false, false) => Ok(None),
        }
    }
}

fn secret_in(file: &Path, flag: &str) -> Result<SecretString, Failure> {
    let secret = secrets::of_file(file).map_err(|what| unusable(format!("{flag}: {what}")))?;
    secret.ok_or_else(|| unusable(format!("{flag}: {} is empty", file.display())))
}

fn unusable(what: String) -> Failure {
    Failure::new(Exit::UnusableInput, what).next("nothing was changed")
}

/// Asks, checks, and writes. Ctrl-C before the writing changes nothing.
pub async fn setup(args: &SetupArgs, env: &Environment, out: Output<'_>) -> Result<Exit, Failure> {
    let signals = SignalWatch::install(OnHangup::End).map_err(|error| Failure::new(Exit::Internal, error))?;
    let stop = CancellationToken::new();
    tokio::select! {
        biased; // what is done is done
        done = ask_and_write(args, env, out) => done,
        () = signals.watch(stop.clone()) => Err(interrupted()),
        () = stop.cancelled() => Err(interrupted()),
    }
}

fn interrupted() -> Failure {
    Failure::new(Exit::Interrupted, "interrupted; nothing was changed")
}

/// The plan of a change: what is written, and what the person should know.
#[derive(Default)]
struct Plan {
    changes: Vec<Change>,
    secrets: Vec<(&'static str, NewFile)>,
    notes: Vec<String>,
    bot: Option<String>,
}

async fn ask_and_write(args: &SetupArgs, env: &Environment, out: Output<'_>) -> Result<Exit, Failure> {
    let target = Target::find(args, env)?;
    let mut person = Person::find(!args.yes && !args.key_stdin);
    let plan = questions(args, &target, &mut person).await?;
    let changes = target.needed(plan.changes);
    if changes.is_empty() && plan.secrets.is_empty() {
        summary(args, &target, &[], &Plan { changes, ..plan }, out);
        return Ok(Exit::Fine);
    }
    let text = changed(target.text.as_deref(), &changes)
        .map_err(|what| Failure::new(Exit::Refused, format!("{} {what}", target.path.display())))?;
    target.check(&text, &changes)?;
    let files = all_files(args, &target, &changes, text, plan.secrets)?;
    if let Person::Present(terminal) = &mut person {
        terminal.say("This will be written:");
        for file in &files {
            terminal.say(&format!("  {}", file.path.display()));
        }
        for change in &changes {
            terminal.say(&format!("    {}", change.line()));
        }
        if !terminal.yes("Write it?", true).await? {
            return Err(Failure::new(Exit::Interrupted, "nothing was changed"));
        }
    }
    files::write(&files)?;
    let plan = Plan { changes, secrets: Vec::new(), ..plan };
    summary(args, &target, &files, &plan, out);
    Ok(Exit::Fine)
}

/// Asks all questions that this call is about.
async fn questions(args: &SetupArgs, target: &Target, person: &mut Person) -> Result<Plan, Failure> {
    let settings = target.settings();
    let is_configured = target.loaded.is_set("llm.provider") && settings.llm.provider != "auto";
    let by_flags = args.concerns_model() || args.concerns_telegram() || args.workspace.is_some();
    let all = matches!(person, Person::Present(_)) && (!is_configured || !by_flags);
    let key = args.key()?;
    let given = model::Given {
        provider: args.provider.clone(),
        base_url: args.base_url.clone(),
        key,
        model: args.model.clone(),
    };
    let asks_model = all || !is_configured || args.concerns_model();
    let asked = Asked { now: &settings.llm, is_configured, all: all && !args.concerns_model(), env: &target.env };
    if let Person::Absent = person {
        let mut flags = if asks_model { asked.missing_flags(&given) } else { Vec::new() };
        flags.extend((!args.yes).then_some("--yes"));
        if is_configured && !by_flags {
            flags.insert(0, "what to change, such as --model NAME");
        }
        if !flags.is_empty() {
            return Err(model::missing(&flags.join(", ")));
        }
    }
    let mut plan = Plan::default();
    if asks_model {
        let answer = asked.model(given, person).await?;
        plan.changes.extend(answer.changes());
        keep_key(&answer, args, target, &mut plan);
        plan.notes.extend(answer.notes);
    }
    workspace(args, target, all, person, &mut plan).await?;
    if args.no_telegram {
        plan.changes.push(Change { key: "channels.telegram.enabled", value: Some(Setting::Flag(false)) });
    } else if all || args.concerns_telegram() {
        let token =
            args.telegram_token_file.as_deref().map(|file| secret_in(file, "--telegram-token-file")).transpose()?;
        let given = telegram::Given { token, users: args.telegram_users.clone(), api: args.telegram_api.clone() };
        let is_mode_set = target.loaded.is_set("channels.telegram.mode");
        let asked = all && !args.concerns_telegram();
        let answer = telegram::telegram(&settings.channels.telegram, is_mode_set, given, asked, person).await?;
        if let Some(answer) = answer {
            plan.changes.extend(answer.changes());
            plan.bot = answer.bot;
            if let Some(token) = answer.token {
                let change = secret(TOKEN, token, TOKEN, args, target, &mut plan);
                plan.changes.push(change.map_or(Change::without("channels.telegram.token_file"), |file| {
                    Change::text("channels.telegram.token_file", &file)
                }));
            }
        }
    }
    Ok(plan)
}

/// Plans where the key of the model is kept.
fn keep_key(answer: &model::Answer, args: &SetupArgs, target: &Target, plan: &mut Plan) {
    let (file, variable) = match &answer.key {
        Key::New(key) => {
            let name = format!("{}_api_key", answer.provider);
            match secret(&name, key.clone(), KEY_CREDENTIAL.0, args, target, plan) {
                Some(file) => (Change::text("llm.api_key_file", &file), Change::without("llm.api_key_env")),
                None => (Change::without("llm.api_key_file"), Change::text("llm.api_key_env", KEY_CREDENTIAL.1)),
            }
        }
        Key::Kept if !answer.moved => return,
        // No key of another provider goes to this server.
        Key::Without if answer.base_url.is_some() => {
            (Change::without("llm.api_key_file"), Change::text("llm.api_key_env", ""))
        }
        Key::Kept | Key::Without => (Change::without("llm.api_key_file"), Change::without("llm.api_key_env")),
    };
    plan.changes.extend([file, variable]);
}

/// Plans the file of a secret. Returns its path, or `None` if the secret is a credential of the unit.
fn secret(
    name: &str,
    content: SecretString,
    credential: &'static str,
    args: &SetupArgs,
    target: &Target,
    plan: &mut Plan,
) -> Option<String> {
    let path = target.secret(name);
    let shown = path.display().to_string();
    plan.secrets.push((credential, NewFile { path, content: Content::Secret(content) }));
    args.unit.is_none().then_some(shown)
}

/// Asks for the workspace.
async fn workspace(
    args: &SetupArgs,
    target: &Target,
    all: bool,
    person: &mut Person,
    plan: &mut Plan,
) -> Result<(), Failure> {
    let now = workspace_of(target.settings(), &target.env, &target.paths);
    let mut typed = args.workspace.clone();
    loop {
        let chosen = match (typed.take(), &mut *person) {
            (Some(path), _) => path,
            (None, Person::Present(terminal)) if all && args.unit.is_none() => {
                let answer = terminal
                    .text("Workspace, the directory in which tools read and write", Some(&now.display().to_string()))
                    .await?;
                PathBuf::from(answer)
            }
            _ => return Ok(()),
        };
        let path = expand(&chosen, &target.env);
        let path = std::path::absolute(&path).unwrap_or(path);
        if path == now {
            return Ok(());
        }
        let what = match path.to_str() {
            None => format!("the workspace {} is not UTF-8, as paths in settings are", path.display()),
            Some(_) if path.exists() && !path.is_dir() => {
                format!("the workspace {} is not a directory", path.display())
            }
            Some(text) => {
                plan.changes.push(Change::text("tools.workspace", text));
                return Ok(());
            }
        };
        let failure =
            Failure::new(Exit::Refused, what).next("name a directory, which may be missing; nothing was changed");
        match person {
            Person::Present(terminal) if all => terminal.say(&failure.to_string()),
            _ => return Err(failure),
        }
    }
}

/// All files that are written: the settings, the secrets, the drop-in of the unit.
fn all_files(
    args: &SetupArgs,
    target: &Target,
    changes: &[Change],
    text: String,
    secrets: Vec<(&'static str, NewFile)>,
) -> Result<Vec<NewFile>, Failure> {
    let mut files = Vec::new();
    if !changes.is_empty() {
        files.push(NewFile { path: target.path.clone(), content: Content::Text(text) });
    }
    if let (Some(unit), false) = (&args.unit, secrets.is_empty()) {
        let path = drop_in::path(unit);
        let current = drop_in::current(unit);
        let before = current.as_deref().map(std::fs::read_to_string).transpose().map_err(|error| {
            let shown = current.as_deref().unwrap_or(&path).display();
            Failure::new(Exit::Refused, format!("{shown} cannot be read: {error}")).next("nothing was changed")
        })?;
        let credentials: Vec<_> = secrets.iter().map(|(name, file)| (*name, file.path.as_path())).collect();
        let text = drop_in::text(before.as_deref(), &credentials);
        files.push(NewFile { path, content: Content::Text(text) });
    }
    files.extend(secrets.into_iter().map(|(_, file)| file));
    Ok(files)
}

/// Tells what was written, and what comes next.
fn summary(args: &SetupArgs, target: &Target, files: &[NewFile], plan: &Plan, out: Output<'_>) {
    let path = target.path.display().to_string();
    let config = if target.is_usual { String::new() } else { format!(" --config {path}") };
    let next = match &args.unit {
        Some(unit) => vec![
            "systemctl daemon-reload".to_owned(),
            format!("belay check --unit {}{config}", unit.display()),
            "systemctl restart belay".to_owned(),
        ],
        None => vec![format!("belay check{config}"), format!("belay run{config}")],
    };
    if args.json {
        let written: Vec<_> = files.iter().map(|file| file.path.display().to_string()).collect();
        let changed: Vec<_> = plan.changes.iter().map(|change| change.key).collect();
        out.json(&json!({
            "settings": path, "written": written, "changed": changed, "bot": plan.bot, "notes": plan.notes, "next": next,
        }));
        return;
    }
    match files {
        [] => out.line(&format!("{path} is as it should be; nothing was changed")),
        files => out.lines(files.iter().map(|file| match file.content {
            Content::Text(_) => format!("wrote {}", file.path.display()),
            Content::Secret(_) => format!("wrote {} (only its owner may read it)", file.path.display()),
        })),
    }
    out.lines(plan.bot.iter().map(|bot| format!("Telegram: @{bot}")));
    out.lines(plan.notes.iter().map(|note| format!("note: {note}")));
    out.line(&format!(
        "Next: {}. A running daemon uses the new settings after a restart.",
        next.iter().map(|command| format!("`{command}`")).collect::<Vec<_>>().join(", ")
    ));
}
