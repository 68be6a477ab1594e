//! The stored form of the skills that a conversation began with. It has the names of variables' skills and never a value:
//! values come from the present settings.

use std::sync::Arc;

use belay_protocol::{Skill, SkillLocation, SkillSnapshot, Skills};
use serde::{Deserialize, Serialize};

/// What the prompt and the commands of a conversation need of its skills.
#[derive(Serialize, Deserialize)]
struct StoredSkills {
    max_prompt_chars: usize,
    list: Vec<StoredSkill>,
}

#[derive(Serialize, Deserialize)]
struct StoredSkill {
    name: String,
    description: String,
    /// Its path in the workspace; `None`: it is in a directory of the operator.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    user_invocable: bool,
    listed: bool,
}

/// The form in which skills are stored.
pub(super) fn snapshot(skills: &Skills) -> SkillSnapshot {
    let stored = |skill: &Skill| StoredSkill {
        name: skill.name.clone(),
        description: skill.description.clone(),
        path: match &skill.place {
            SkillLocation::Workspace(path) => Some(path.clone()),
            SkillLocation::Elsewhere => None,
        },
        user_invocable: skill.user_invocable,
        listed: skill.listed,
    };
    let list = skills.list.iter().map(stored).collect();
    let stored = StoredSkills { max_prompt_chars: skills.max_prompt_chars, list };
    // Texts, numbers and flags: serialising them cannot fail.
    let text = serde_json::to_string(&stored).unwrap_or_default();
    SkillSnapshot { digest: blake3::hash(text.as_bytes()).to_hex().to_string(), text }
}

/// The skills of a stored text, with the variables that the present skills of the same names have. `None`: the text
/// cannot be read.
pub(super) fn restored(text: &str, present: &Skills) -> Option<Arc<Skills>> {
    let stored: StoredSkills = serde_json::from_str(text).ok()?;
    let variables = |name: &str| {
        let same = present.list.iter().find(|skill| skill.name == name);
        same.map(|skill| skill.variables.clone()).unwrap_or_default()
    };
    let skill = |stored: StoredSkill| Skill {
        variables: variables(&stored.name),
        name: stored.name,
        description: stored.description,
        place: stored.path.map_or(SkillLocation::Elsewhere, SkillLocation::Workspace),
        user_invocable: stored.user_invocable,
        listed: stored.listed,
    };
    Some(Arc::new(Skills {
        list: stored.list.into_iter().map(skill).collect(),
        skipped: present.skipped.clone(),
        max_prompt_chars: stored.max_prompt_chars,
    }))
}

#[cfg(test)]
mod tests {
    use belay_protocol::{Secret, Variable};

    use super::*;

    fn skills(description: &str, value: &str) -> Skills {
        let variable = Variable { name: "KEY".into(), value: Secret::new(value.to_owned()) };
        let skill = |name: &str, place, variables| Skill {
            name: name.into(),
            description: description.into(),
            place,
            user_invocable: true,
            listed: true,
            variables,
        };
        let list = vec![
            skill("a", SkillLocation::Workspace("skills/a/SKILL.md".into()), vec![variable]),
            skill("b", SkillLocation::Elsewhere, Vec::new()),
        ];
        Skills { list, skipped: Vec::new(), max_prompt_chars: 100 }
    }

    #[test]
    fn skills_come_back_as_they_were_with_the_present_values_of_their_variables() {
        let (then, now) = (skills("then", "old"), skills("now", "new"));
        let kept = snapshot(&then);
        assert!(!kept.text.contains("old") && !kept.text.contains("KEY"), "{}", kept.text);
        let back = restored(&kept.text, &now).expect("readable");
        assert_eq!(*back, skills("then", "new"));
        let gone = restored(&kept.text, &Skills::default()).expect("readable");
        assert!(gone.list.iter().all(|skill| skill.variables.is_empty() && skill.description == "then"));
        assert_eq!(restored("{", &now), None);
        assert_eq!(snapshot(&then).digest, snapshot(&skills("then", "new")).digest, "values are no part of it");
        assert_ne!(snapshot(&then).digest, snapshot(&now).digest);
    }
}
