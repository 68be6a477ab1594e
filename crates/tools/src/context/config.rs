//! Settings of the context of runs: the sections `[context]` and `[skills]`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::config::commands::problem_of;

/// The section `[context]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ContextConfig {
    /// The files of the workspace that are part of every prompt, in this order.
    pub files: Vec<String>,
    /// Most characters of one file; [`MIN_CHARS`] to [`MAX_CHARS`].
    pub file_max_chars: usize,
    /// Time zone of the date in the prompt, as an IANA name. Absent: the time zone of the machine. The settings have it
    /// as `agent.timezone`.
    #[serde(skip)]
    pub timezone: Option<String>,
}

/// Upper end of the characters of files in a prompt. A million characters fill the context of the largest models.
pub const MAX_CHARS: usize = 1_000_000;

/// Lower end of these limits. Below it, the cut text would say less than the line that reports the cut.
pub const MIN_CHARS: usize = 500;

/// Most characters of all files together, in multiples of those of one. Three: a prompt has the most important files in
/// full, and the rest of the model's context stays free.
const FULL_FILES: usize = 3;

/// Most files. Each one is checked before each run.
const MAX_FILES: usize = 32;

impl Default for ContextConfig {
    fn default() -> Self {
        let files = ["AGENTS.md", "SOUL.md", "IDENTITY.md", "USER.md", "TOOLS.md", "MEMORY.md"];
        Self { files: files.map(str::to_owned).to_vec(), file_max_chars: 20_000, timezone: None }
    }
}

impl ContextConfig {
    /// Most characters of all files together.
    pub fn total_max_chars(&self) -> usize {
        self.file_max_chars.saturating_mul(FULL_FILES).min(MAX_CHARS)
    }

    /// Returns all problems, each beginning with its key. Empty if the settings are valid.
    pub fn validate(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.files.len() > MAX_FILES {
            problems.push(format!("context.files: at most {MAX_FILES}"));
        }
        for (at, file) in self.files.iter().enumerate() {
            let plain = !file.is_empty() && file.len() <= 200 && !file.chars().any(char::is_control);
            if !plain || file.starts_with('/') || file.split('/').any(|part| part == "..") {
                problems.push(format!("context.files: {file:?} is not a path within the workspace"));
            } else if self.files[..at].contains(file) {
                problems.push(format!("context.files: {file} is there twice"));
            }
        }
        if !(MIN_CHARS..=MAX_CHARS).contains(&self.file_max_chars) {
            let is = self.file_max_chars;
            problems.push(format!("context.file_max_chars: must be from {MIN_CHARS} to {MAX_CHARS}, is {is}"));
        }
        problems
    }
}

/// The section `[skills]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SkillsConfig {
    /// Additional directories of skills. Those of the workspace come first.
    pub dirs: Vec<PathBuf>,
    /// Names of the allowed skills. Absent: all skills are allowed. Empty: Belay does not search for skills.
    pub allow: Option<Vec<String>>,
    /// Most characters of the list of skills in a prompt; [`MIN_CHARS`] to [`MAX_CHARS`].
    #[serde(skip)]
    pub max_prompt_chars: usize,
    /// Settings of single skills, by name.
    pub entries: BTreeMap<String, SkillEntry>,
}

/// The section `[skills.entries.NAME]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SkillEntry {
    /// Whether the skill is used.
    pub enabled: bool,
    /// Environment variables for the commands of runs that use the skill. Not for secrets, because settings are shown.
    pub env: BTreeMap<String, String>,
    /// Name of the daemon's environment variable that contains the skill's API key. Commands get the key under the name
    /// that the skill defines (`primaryEnv`).
    pub api_key_env: String,
}

impl Default for SkillEntry {
    fn default() -> Self {
        Self { enabled: true, env: BTreeMap::new(), api_key_env: String::new() }
    }
}

impl Default for SkillsConfig {
    fn default() -> Self {
        Self { dirs: Vec::new(), allow: None, max_prompt_chars: 18_000, entries: BTreeMap::new() }
    }
}

/// Most additional directories of skills.
const MAX_DIRS: usize = 16;

impl SkillsConfig {
    /// Whether Belay searches for skills.
    pub fn enabled(&self) -> bool {
        self.allow.as_ref().is_none_or(|names| !names.is_empty())
    }

    /// Returns all problems, each beginning with its key. Empty if the settings are valid.
    pub fn validate(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.dirs.len() > MAX_DIRS {
            problems.push(format!("skills.dirs: at most {MAX_DIRS}"));
        }
        if self.dirs.iter().any(|dir| dir.as_os_str().is_empty()) {
            problems.push("skills.dirs: a directory has no name".to_owned());
        }
        for (name, entry) in &self.entries {
            for (variable, value) in &entry.env {
                if let Some(problem) = problem_of_variable(variable, value) {
                    problems.push(format!("skills.entries.{name}.env: {variable:?} {problem}"));
                }
            }
        }
        problems
    }
}

/// Variables that change which code or certificates programs load, or how they connect.
const DANGEROUS: [&str; 18] = [
    "CURL_CA_BUNDLE",
    "JAVA_TOOL_OPTIONS",
    "NODE_EXTRA_CA_CERTS",
    "NODE_OPTIONS",
    "NODE_PATH",
    "PERL5LIB",
    "PERL5OPT",
    "PROMPT_COMMAND",
    "PS4",
    "PYTHONHOME",
    "PYTHONPATH",
    "PYTHONSTARTUP",
    "REQUESTS_CA_BUNDLE",
    "RUBYLIB",
    "RUBYOPT",
    "SHELL",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
];

/// Why a skill may not set this variable; `None`: it may.
pub(crate) fn problem_of_variable(name: &str, value: &str) -> Option<&'static str> {
    let upper = name.to_ascii_uppercase();
    if DANGEROUS.contains(&&*upper) || upper.ends_with("_PROXY") {
        return Some("steers how programs start or where they connect; a skill cannot set it");
    }
    // Some programs also read these variables in lower case, so both spellings are checked.
    problem_of(name, value).or_else(|| problem_of(&upper, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(env: &[(&str, &str)]) -> SkillEntry {
        let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        SkillEntry { env, ..SkillEntry::default() }
    }

    #[test]
    fn the_defaults_are_valid() {
        assert_eq!(ContextConfig::default().validate(), Vec::<String>::new());
        assert_eq!(SkillsConfig::default().validate(), Vec::<String>::new());
    }

    #[test]
    fn all_problems_are_reported_with_their_keys() {
        let files = ["AGENTS.md", "../x", "/etc/passwd", "", "a\nb", "AGENTS.md"];
        let context =
            ContextConfig { files: files.map(str::to_owned).to_vec(), file_max_chars: 0, ..ContextConfig::default() };
        let problems = context.validate();
        let keys: Vec<_> = problems.iter().map(|problem| problem.split(": ").next().unwrap_or_default()).collect();
        let file = "context.files";
        assert_eq!(keys, [file, file, file, file, file, "context.file_max_chars"]);
        let dangerous = [
            ("PATH", "x"),
            ("LD_PRELOAD", "x"),
            ("DYLD_INSERT_LIBRARIES", "x"),
            ("NODE_OPTIONS", "x"),
            ("https_proxy", "x"),
            ("ALL_PROXY", "x"),
            ("ld_preload", "x"),
            ("BAD NAME", "x"),
            ("FINE", "a\0b"),
        ];
        let entries = BTreeMap::from([("w".to_owned(), entry(&dangerous)), ("ok".to_owned(), entry(&[("CITY", "x")]))]);
        let skills = SkillsConfig { dirs: vec![PathBuf::new()], entries, ..SkillsConfig::default() };
        let problems = skills.validate();
        assert_eq!(problems.len(), 1 + dangerous.len(), "{problems:#?}");
        assert!(problems[1..].iter().all(|problem| problem.starts_with("skills.entries.w.env: ")));
    }
}
