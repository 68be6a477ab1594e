//! Skills: looked for in their places, read when they have changed, judged by what there is here.
//!
//! Reading order: `find` → `head` → `gate` → here → `read_skill`.

mod find;
mod gate;
mod head;
mod read_skill;

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use belay_protocol::{Secret, Skill, SkillPlace, Skills, Skipped};
use serde_json::Value;

use self::find::{Found, Walk, folder_of};
use self::gate::{Here, admit};
use self::head::Head;
pub(super) use self::read_skill::ReadSkill;
use super::config::SkillsConfig;
use super::read::{text, why};
use crate::config::CommandsConfig;
use crate::workspace::{Stamp, Workspace};

/// Where skills are in the workspace, in the order in which they count.
const IN_WORKSPACE: [&str; 2] = ["skills", ".agents/skills"];
/// Largest `SKILL.md` in bytes.
const MAX_FILE_BYTES: u64 = 256 * 1024;
/// Most skills.
const MAX_SKILLS: usize = 150;

/// What skills are judged by, from the rest of the daemon.
#[derive(Debug, Default)]
pub struct SkillNeeds {
    /// Their keys, by the names of the skills.
    pub keys: BTreeMap<String, Secret>,
    /// All settings, none of which is a secret.
    pub settings: Value,
}

/// Looks for skills.
#[derive(Debug)]
pub(super) struct Library {
    config: SkillsConfig,
    here: Here,
    /// What was read, by place and path, so that it is read again only when it has changed. Held for a look-up.
    read: Mutex<Heads>,
    known: Mutex<Known>,
}

type Heads = HashMap<(usize, String), (Stamp, Result<Head, String>)>;

/// What the last scan has found.
#[derive(Debug, Default)]
struct Known {
    skills: Arc<Skills>,
    /// Where the skills are that are not in the workspace, by their names.
    elsewhere: Arc<HashMap<String, Folder>>,
}

/// The folder of a skill in a directory of the operator's.
#[derive(Debug)]
struct Folder {
    root: Arc<Workspace>,
    /// Its path from there.
    path: String,
}

/// A directory in which skills may be.
struct Root {
    files: Arc<Workspace>,
    places: &'static [&'static str],
    /// Whether it is the workspace.
    workspace: bool,
    /// For what is told of skipped ones.
    name: String,
}

impl Library {
    pub(super) fn new(config: &SkillsConfig, commands: &CommandsConfig, needs: SkillNeeds) -> Self {
        let here = Here {
            path: commands.path.clone(),
            variables: commands.environment.keys().cloned().collect(),
            keys: needs.keys,
            settings: needs.settings,
        };
        let known = Known {
            skills: Arc::new(Skills { max_prompt_chars: config.max_prompt_chars, ..Skills::default() }),
            ..Known::default()
        };
        Self { config: config.clone(), here, read: Mutex::default(), known: Mutex::new(known) }
    }

    /// The skills of the last scan.
    pub(super) fn known(&self) -> Arc<Skills> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).skills.clone()
    }

    /// Whether skills can be where `read_file` does not reach.
    pub(super) fn reaches_out(&self) -> bool {
        self.config.enabled && !self.config.dirs.is_empty()
    }

    /// The skills as they are now: the same `Arc` as before when they are the same. Blocks.
    pub(super) fn scan(&self, workspace: &Arc<Workspace>) -> Arc<Skills> {
        if !self.config.enabled {
            return self.known();
        }
        let mut scan =
            Scan { library: self, skills: Skills::default(), elsewhere: HashMap::new(), heads: HashMap::new() };
        scan.skills.max_prompt_chars = self.config.max_prompt_chars;
        let roots = scan.roots(workspace);
        for (at, root) in roots.iter().enumerate() {
            for place in root.places {
                scan.place(at, root, place);
            }
        }
        let Scan { skills, elsewhere, heads, .. } = scan;
        *self.read.lock().unwrap_or_else(PoisonError::into_inner) = heads;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.elsewhere = Arc::new(elsewhere);
        if *known.skills != skills {
            for Skipped { what, why } in skills.skipped.iter().filter(|one| !known.skills.skipped.contains(one)) {
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

/// A scan under way.
struct Scan<'a> {
    library: &'a Library,
    skills: Skills,
    elsewhere: HashMap<String, Folder>,
    heads: Heads,
}

impl Scan<'_> {
    /// The workspace, and those directories of the operator's that are there.
    fn roots(&mut self, workspace: &Arc<Workspace>) -> Vec<Root> {
        let inside = Root { files: workspace.clone(), places: &IN_WORKSPACE, workspace: true, name: String::new() };
        let mut roots = vec![inside];
        for dir in &self.library.config.dirs {
            match Workspace::open_existing(dir) {
                Ok(files) => roots.push(Root {
                    files: Arc::new(files),
                    places: &["."],
                    workspace: false,
                    name: format!("{}/", dir.display()),
                }),
                Err(why) => self.skip(dir.display().to_string(), format!("this directory of skills.dirs: {why}")),
            }
        }
        roots
    }

    fn place(&mut self, at: usize, root: &Root, place: &str) {
        let Walk { found, skipped, .. } = Walk::through(&root.files, place);
        for Skipped { what, why } in skipped {
            self.skip(format!("{}{what}", root.name), why);
        }
        for Found { path, stamp } in found {
            let told = format!("{}{path}", root.name);
            if let Err(why) = self.skill(at, root, path, stamp) {
                self.skip(told, why);
            }
        }
    }

    /// Takes a skill in, if it can be used.
    fn skill(&mut self, at: usize, root: &Root, path: String, stamp: Result<Stamp, String>) -> Result<(), String> {
        let head = self.head(at, root, &path, stamp?)?;
        if let Some(first) = self.skills.list.iter().find(|first| first.name == head.name) {
            return Err(format!("a skill that comes before it is called {} too", first.name));
        }
        let variables = admit(&head, &self.library.config, &self.library.here)?;
        if self.skills.list.len() == MAX_SKILLS {
            return Err(format!("there are {MAX_SKILLS} skills before it, which is the most there can be"));
        }
        let place = if root.workspace {
            SkillPlace::Workspace(path)
        } else {
            let folder = Folder { root: root.files.clone(), path: folder_of(&path).to_owned() };
            self.elsewhere.insert(head.name.clone(), folder);
            SkillPlace::Elsewhere
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

    /// The head of a file: as it was read before, if the file has not changed.
    fn head(&mut self, at: usize, root: &Root, path: &str, stamp: Stamp) -> Result<Head, String> {
        let key = (at, path.to_owned());
        let before = self.library.read.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        let (stamp, head) = before.filter(|(read, _)| *read == stamp).unwrap_or_else(|| read_head(root, path, stamp));
        self.heads.insert(key, (stamp, head.clone()));
        head
    }

    fn skip(&mut self, what: String, why: String) {
        self.skills.skipped.push(Skipped { what, why });
    }
}

/// Reads the head of a file, with the stamp of what was read.
fn read_head(root: &Root, path: &str, looked: Stamp) -> (Stamp, Result<Head, String>) {
    match root.files.stamped(path) {
        Ok(Some((file, stamp))) => (stamp, text(file, &stamp, MAX_FILE_BYTES).and_then(|text| head::read(&text))),
        Ok(None) => (looked, Err("it has gone".to_owned())),
        Err(failure) => (looked, Err(why(failure))),
    }
}

/// The directories of the settings, as the daemon has found them.
impl SkillsConfig {
    /// These settings with other directories.
    #[must_use]
    pub fn with_dirs(&self, dirs: Vec<PathBuf>) -> Self {
        Self { dirs, ..self.clone() }
    }
}

#[cfg(test)]
mod tests;
