//! Skills: found in their directories, read when they have changed, and checked against their requirements.
//!
//! Reading order: `find` → `head` → `gate` → here → `read_skill`.

mod find;
mod gate;
mod head;
mod read_skill;

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use belay_protocol::{Secret, Skill, SkillLocation, Skills, Skipped, Unusable, UnusableKind};
use serde_json::Value;

use self::find::{Found, Walk, folder_of};
use self::gate::{Available, admit};
use self::head::Head;
pub(super) use self::read_skill::ReadSkill;
use super::config::SkillsConfig;
use super::read::text;
use crate::config::CommandsConfig;
use crate::workspace::{Stamp, Workspace};

/// Directories of skills in the workspace, in order of precedence.
const IN_WORKSPACE: [&str; 2] = ["skills", ".agents/skills"];
/// Largest `SKILL.md` in bytes.
const MAX_FILE_BYTES: u64 = 256 * 1024;
/// Most skills.
const MAX_SKILLS: usize = 150;

/// Data of the daemon that the requirements of skills are checked against.
#[derive(Debug, Default)]
pub struct SkillNeeds {
    /// API keys, by the name of the skill.
    pub keys: BTreeMap<String, Secret>,
    /// All settings. They contain no secrets.
    pub settings: Value,
}

/// Finds skills and remembers the result.
#[derive(Debug)]
pub(super) struct Library {
    config: SkillsConfig,
    available: Available,
    /// The parsed heads by root and path, so that a file is parsed again only if it has changed. Locked only for a
    /// look-up.
    read: Mutex<Heads>,
    known: Mutex<Known>,
}

type Heads = HashMap<(usize, String), (Stamp, Result<Head, Unusable>)>;

/// The result of the last scan.
#[derive(Debug, Default)]
struct Known {
    skills: Arc<Skills>,
    /// The folders of skills outside of the workspace, by skill name.
    elsewhere: Arc<HashMap<String, Folder>>,
}

/// The folder of a skill in a directory of `skills.dirs`.
#[derive(Debug)]
struct Folder {
    root: Arc<Workspace>,
    /// Path of the folder relative to the root.
    path: String,
}

/// A directory that may contain skills.
struct Root {
    files: Arc<Workspace>,
    skill_dirs: &'static [&'static str],
    /// Whether this is the workspace.
    workspace: bool,
    /// Prefix for the paths of skipped skills.
    name: String,
}

impl Library {
    pub(super) fn new(config: &SkillsConfig, commands: &CommandsConfig, needs: SkillNeeds) -> Self {
        let available = Available {
            path: commands.path.clone(),
            variables: commands.environment.keys().cloned().collect(),
            keys: needs.keys,
            settings: needs.settings,
        };
        let known = Known {
            skills: Arc::new(Skills { max_prompt_chars: config.max_prompt_chars, ..Skills::default() }),
            ..Known::default()
        };
        Self { config: config.clone(), available, read: Mutex::default(), known: Mutex::new(known) }
    }

    /// The skills of the last scan.
    pub(super) fn known(&self) -> Arc<Skills> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).skills.clone()
    }

    /// Whether there may be skills that `read_file` cannot reach.
    pub(super) fn reaches_out(&self) -> bool {
        self.config.enabled() && !self.config.dirs.is_empty()
    }

    /// Scans for skills. Returns the same `Arc` as before if nothing has changed. Blocks.
    pub(super) fn scan(&self, workspace: &Arc<Workspace>) -> Arc<Skills> {
        if !self.config.enabled() {
            return self.known();
        }
        let mut scan =
            Scan { library: self, skills: Skills::default(), elsewhere: HashMap::new(), heads: HashMap::new() };
        scan.skills.max_prompt_chars = self.config.max_prompt_chars;
        let roots = scan.roots(workspace);
        for (at, root) in roots.iter().enumerate() {
            for skill_dir in root.skill_dirs {
                scan.scan_dir(at, root, skill_dir);
            }
        }
        let Scan { skills, elsewhere, heads, .. } = scan;
        *self.read.lock().unwrap_or_else(PoisonError::into_inner) = heads;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.elsewhere = Arc::new(elsewhere);
        if *known.skills != skills {
            for Skipped { what, why, .. } in skills.skipped.iter().filter(|one| !known.skills.skipped.contains(one)) {
                tracing::warn!(skill = what, why, "a skill is not used");
            }
            known.skills = Arc::new(skills);
        }
        known.skills.clone()
    }

    fn folder(&self, name: &str) -> Option<(Arc<Workspace>, String)> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.elsewhere.get(name).map(|folder| (folder.root.clone(), folder.path.clone()))
    }
}

/// A scan in progress.
struct Scan<'a> {
    library: &'a Library,
    skills: Skills,
    elsewhere: HashMap<String, Folder>,
    heads: Heads,
}

impl Scan<'_> {
    /// The workspace, and those directories of `skills.dirs` that can be opened.
    fn roots(&mut self, workspace: &Arc<Workspace>) -> Vec<Root> {
        let inside = Root { files: workspace.clone(), skill_dirs: &IN_WORKSPACE, workspace: true, name: String::new() };
        let mut roots = vec![inside];
        for dir in &self.library.config.dirs {
            match Workspace::open_existing(dir) {
                Ok(files) => roots.push(Root {
                    files: Arc::new(files),
                    skill_dirs: &["."],
                    workspace: false,
                    name: format!("{}/", dir.display()),
                }),
                Err(unusable) => {
                    let why = format!("this directory of skills.dirs: {unusable}");
                    self.skip(dir.display().to_string(), Unusable { why, ..unusable });
                }
            }
        }
        roots
    }

    fn scan_dir(&mut self, at: usize, root: &Root, skill_dir: &str) {
        let Walk { found, skipped, .. } = Walk::through(&root.files, skill_dir);
        for (what, why) in skipped {
            self.skip(format!("{}{what}", root.name), why);
        }
        for Found { path, stamp } in found {
            let shown_path = format!("{}{path}", root.name);
            if let Err(why) = self.skill(at, root, path, stamp) {
                self.skip(shown_path, why);
            }
        }
    }

    /// Adds a skill if it can be used.
    fn skill(&mut self, at: usize, root: &Root, path: String, stamp: Result<Stamp, Unusable>) -> Result<(), Unusable> {
        let head = self.head(at, root, &path, stamp?)?;
        if let Some(first) = self.skills.list.iter().find(|first| first.name == head.name) {
            return Err(format!("a skill that comes before it is called {} too", first.name).into());
        }
        let variables = admit(&head, &self.library.config, &self.library.available)?;
        if self.skills.list.len() == MAX_SKILLS {
            return Err(format!("there are {MAX_SKILLS} skills before it, which is the most there can be").into());
        }
        let place = if root.workspace {
            SkillLocation::Workspace(path)
        } else {
            let folder = Folder { root: root.files.clone(), path: folder_of(&path).to_owned() };
            self.elsewhere.insert(head.name.clone(), folder);
            SkillLocation::Elsewhere
        };
        self.skills.list.push(Skill {
            name: head.name,
            description: head.description,
            place,
            user_invocable: head.user_invocable,
            listed: !head.disable_model_invocation,
            variables,
        });
        Ok(())
    }

    /// The head of a file; parsed again only if the file has changed.
    fn head(&mut self, at: usize, root: &Root, path: &str, stamp: Stamp) -> Result<Head, Unusable> {
        let key = (at, path.to_owned());
        let before = self.library.read.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        let (stamp, head) = before.filter(|(read, _)| *read == stamp).unwrap_or_else(|| read_head(root, path, stamp));
        if !head.as_ref().is_err_and(Unusable::is_unread) {
            self.heads.insert(key, (stamp, head.clone()));
        }
        head
    }

    /// A skill that may not be read is left out: a command of the workspace could otherwise end all work by making one.
    fn skip(&mut self, what: String, unusable: Unusable) {
        let unread = unusable.kind == UnusableKind::NotNow;
        self.skills.skipped.push(Skipped { what, why: unusable.why, unread });
    }
}

/// Parses the head of a file; returns it with the stamp of the content that was read.
fn read_head(root: &Root, path: &str, looked: Stamp) -> (Stamp, Result<Head, Unusable>) {
    match root.files.stamped(path) {
        Ok(Some((file, stamp))) => (stamp, text(file, &stamp, MAX_FILE_BYTES).and_then(|text| Ok(head::read(&text)?))),
        Ok(None) => (looked, Err("it has gone".to_owned().into())),
        Err(unusable) => (looked, Err(unusable)),
    }
}

/// Replaces the directories of the settings by those that the daemon has resolved.
impl SkillsConfig {
    /// These settings with other directories.
    #[must_use]
    pub fn with_dirs(&self, dirs: Vec<PathBuf>) -> Self {
        Self { dirs, ..self.clone() }
    }
}

#[cfg(test)]
mod tests;
