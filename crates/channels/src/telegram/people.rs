//! Who may talk to the bot, and from which conversations. Messages, taps and autonomous work are all checked here.
//!
//! The settings name people and groups. Pairing admits further people, each to the private chat alone.

use std::collections::HashSet;
use std::sync::Arc;

use arc_swap::ArcSwap;
use belay_protocol::principal::Role;
use belay_protocol::{
    AccessDecision, ChannelAccess, ChannelId, ChannelPeople, ConversationSettings, MoveStore, PairedPerson, SessionKey,
    StoreError,
};

use super::NAME;
use super::conversation::{self, Conversation};
use super::groups::{Addressed, Groups, Relevance};
use super::moves::MovedGroups;
use crate::config::TelegramConfig;

/// Allowed people by their numeric ids, and the groups that the bot serves: as the settings have them.
pub(super) struct People {
    pub(super) allow: HashSet<u64>,
    pub(super) operators: HashSet<u64>,
    pub(super) groups: Groups,
    /// Whether strangers get a code.
    pairing: bool,
    greeting: String,
}

impl People {
    pub(super) fn of(config: &TelegramConfig) -> Self {
        Self {
            allow: config.allow.iter().copied().collect(),
            operators: config.operators.iter().copied().collect(),
            groups: Groups::new(&config.groups),
            pairing: config.pairing,
            greeting: config.greeting.trim().to_owned(),
        }
    }

    /// The role of a person on the lists; `None` if the person is on no list.
    fn role(&self, id: u64) -> Option<Role> {
        match id {
            id if self.operators.contains(&id) => Some(Role::Operator),
            id if self.allow.contains(&id) => Some(Role::User),
            _ => None,
        }
    }
}

/// The people of the settings and of pairing, each as a snapshot that is swapped as a whole. Clones share them. Each
/// message, tap and access check uses the people of its moment.
#[derive(Clone)]
pub struct AllowLists {
    /// A reload of the settings swaps it.
    settings: Arc<ArcSwap<People>>,
    /// An operator who admits or removes a person swaps it.
    paired: Arc<ArcSwap<HashSet<u64>>>,
    /// The groups of the settings that have another id now. Telegram says so; see `moves`.
    moved: Arc<ArcSwap<MovedGroups>>,
}

impl AllowLists {
    /// The lists of these settings, without people of pairing.
    pub fn of(config: &TelegramConfig) -> Self {
        Self {
            settings: Arc::new(ArcSwap::from_pointee(People::of(config))),
            paired: Arc::default(),
            moved: Arc::default(),
        }
    }

    /// Reads which groups have another id now.
    ///
    /// # Errors
    /// The store fails; nothing has changed.
    pub async fn load_moves(&self, store: &dyn MoveStore) -> Result<(), StoreError> {
        self.replace_moved(MovedGroups::of(store.moves(ChannelId::new(NAME)).await?));
        Ok(())
    }

    pub(super) fn replace_moved(&self, moved: MovedGroups) {
        self.moved.store(Arc::new(moved));
    }

    /// The groups that have another id now.
    pub(super) fn moved(&self) -> Arc<MovedGroups> {
        self.moved.load_full()
    }

    /// The conversation under the id that its sessions have.
    pub(super) fn with_first_id(&self, conversation: Conversation) -> Conversation {
        Conversation { chat: self.moved.load().first(conversation.chat), ..conversation }
    }

    /// The conversation under the id that the settings have: the newest one that is listed.
    fn as_listed(&self, conversation: Conversation) -> Conversation {
        let (settings, moved) = (self.settings.load(), self.moved.load());
        let listed = moved.ids(conversation.chat).rev().find(|id| settings.groups.lists(*id));
        Conversation { chat: listed.unwrap_or(conversation.chat), ..conversation }
    }

    /// Whether the settings list this id itself.
    pub(super) fn lists_group(&self, chat: i64) -> bool {
        self.settings.load().groups.lists(chat)
    }

    /// The line for the settings file after a move. `None`: the file needs none.
    pub(super) fn line_for_settings(&self, from: i64, to: i64) -> Option<String> {
        self.settings.load().groups.line_after_move(from, to)
    }

    /// Replaces everything that comes from the settings: people, groups, pairing and the greeting. Ignores all other
    /// settings, and keeps the people of pairing.
    pub fn replace(&self, config: &TelegramConfig) {
        self.settings.store(Arc::new(People::of(config)));
    }

    /// The role of a person in a private chat or in a group; `None` if the person may not talk to the bot there.
    pub(super) fn role(&self, id: u64, is_private: bool) -> Option<Role> {
        let listed = self.settings.load().role(id);
        listed.or_else(|| (is_private && self.paired.load().contains(&id)).then_some(Role::User))
    }

    /// The operators, by their ids.
    pub(super) fn operators(&self) -> Vec<u64> {
        let mut ids: Vec<u64> = self.settings.load().operators.iter().copied().collect();
        ids.sort_unstable();
        ids
    }

    /// Whether strangers get a code.
    pub(super) fn has_pairing(&self) -> bool {
        self.settings.load().pairing
    }

    /// Whether anybody may talk to the bot, or could be admitted.
    pub(super) fn has_anybody(&self) -> bool {
        let settings = self.settings.load();
        let listed = !settings.allow.is_empty() || !settings.operators.is_empty();
        listed || settings.pairing || !self.paired.load().is_empty()
    }

    /// Whether the bot serves this group.
    pub(super) fn serves_group(&self, chat: i64) -> bool {
        let settings = self.settings.load();
        self.moved.load().ids(chat).any(|id| settings.groups.lists(id))
    }

    /// Decides whether a message of a group is for the bot.
    pub(super) fn relevance(&self, conversation: Conversation, addressed: Addressed) -> Relevance {
        self.settings.load().groups.relevance(self.as_listed(conversation), addressed)
    }

    /// The number of messages that are not for the bot and that the model reads with the next one that is.
    pub(super) fn context_messages(&self, conversation: Conversation) -> usize {
        self.settings.load().groups.context_messages(self.as_listed(conversation))
    }
}

impl ChannelAccess for AllowLists {
    fn may_exist(&self, principal: &str) -> bool {
        principal.parse::<u64>().is_ok_and(|id| id > 0 && id.to_string() == principal)
    }

    fn tells_persons_apart(&self) -> bool {
        true
    }

    fn standing_of(&self, principal: &str, conversation: Option<&str>) -> AccessDecision {
        let group = conversation.and_then(group_of);
        let id = principal.parse::<u64>().ok();
        let Some(role) = id.and_then(|id| self.role(id, group.is_none())) else {
            let is_paired = id.is_some_and(|id| self.paired.load().contains(&id));
            let why = match is_paired {
                true => format!("pairing has admitted {principal} to the private chat alone"),
                false => format!(
                    "{principal} is neither on the list channels.telegram.allow nor on that of the operators, and \
                     pairing has not admitted the person"
                ),
            };
            return AccessDecision::NotAllowed(why);
        };
        match group.filter(|group| !self.serves_group(*group)) {
            Some(group) => {
                AccessDecision::NotAllowed(format!("{group} is not on the list channels.telegram.groups.allow"))
            }
            None => AccessDecision::May(role.into()),
        }
    }

    fn serves(&self, conversation: &str) -> bool {
        let Ok(Conversation { chat, .. }) = conversation.parse() else { return false };
        // A private chat has the id of its person (Bot API, Chat, `id`).
        match u64::try_from(chat) {
            Ok(person) => self.role(person, true).is_some(),
            Err(_) => self.serves_group(chat),
        }
    }

    fn session_of(&self, conversation: &str) -> Option<SessionKey> {
        conversation.parse().ok().map(|it| conversation::session(self.with_first_id(it)))
    }

    fn is_group(&self, session: &SessionKey) -> bool {
        conversation::is_group(session)
    }

    fn settings_of(&self, session: &SessionKey) -> Option<Arc<ConversationSettings>> {
        let settings = self.settings.load();
        if !settings.groups.has_own() {
            return None;
        }
        settings.groups.settings(self.as_listed(conversation::of_session(session)?))
    }
}

impl ChannelPeople for AllowLists {
    fn replace_paired(&self, paired: &[PairedPerson]) {
        let ids = paired.iter().filter_map(|paired| paired.person.id.parse().ok());
        self.paired.store(Arc::new(ids.collect()));
    }

    fn listed(&self) -> Vec<(String, Role)> {
        let settings = self.settings.load();
        let mut ids: Vec<u64> = settings.operators.union(&settings.allow).copied().collect();
        ids.sort_unstable();
        ids.into_iter().filter_map(|id| Some((id.to_string(), settings.role(id)?))).collect()
    }

    fn greeting(&self) -> Option<String> {
        Some(self.settings.load().greeting.clone()).filter(|text| !text.is_empty())
    }
}

/// The id of a conversation's group; `None` if the conversation is private.
fn group_of(conversation: &str) -> Option<i64> {
    conversation.parse::<Conversation>().ok().map(|it| it.chat).filter(|chat| *chat < 0)
}

#[cfg(test)]
mod tests {
    use belay_protocol::{Authority, MovedConversation, Stranger, UnixMillis};

    use super::*;
    use crate::config::GroupsConfig;

    #[test]
    fn the_lists_decide_access_and_possible_deliveries() {
        let groups = GroupsConfig { allow: vec![-100], ..GroupsConfig::default() };
        let config = TelegramConfig { allow: vec![42, 7], operators: vec![7], groups, ..TelegramConfig::default() };
        let people = AllowLists::of(&config);
        let (user, operator) = (Some(Authority::Conversation), Some(Authority::Operator));
        for (principal, conversation, may, served) in [
            ("42", Some("42"), user, true),
            ("42", None, user, true),
            ("42", Some("-100"), user, true),
            ("42", Some("-100:9"), user, true),
            ("42", Some("-200"), None, false),
            ("42", Some("-200:9"), None, false),
            ("7", Some("7"), operator, true),
            ("7", Some("-200"), None, false),
            ("43", Some("43"), None, false),
            ("43", Some("-100"), None, true),
            ("", None, None, true),
            ("stdin", None, None, true),
            ("-42", None, None, true),
        ] {
            let standing = people.standing_of(principal, conversation);
            let is = match &standing {
                AccessDecision::May(place) => Some(*place),
                AccessDecision::NotAllowed(_) => None,
            };
            assert_eq!(is, may, "{principal} in {conversation:?}: {standing:?}");
            if let Some(conversation) = conversation {
                assert_eq!(people.serves(conversation), served, "{conversation}");
            }
        }
        assert!(!people.serves("telegram:42") && !people.serves(""), "no conversation of Telegram's");
    }

    #[test]
    fn replaced_lists_apply_to_all_clones() {
        let config = |allow: &[u64], groups: &[i64]| TelegramConfig {
            allow: allow.to_vec(),
            groups: GroupsConfig { allow: groups.to_vec(), ..GroupsConfig::default() },
            ..TelegramConfig::default()
        };
        let lists = AllowLists::of(&config(&[42], &[-1]));
        let shared = lists.clone();
        assert!(shared.role(42, true).is_some() && shared.serves_group(-1) && shared.role(7, true).is_none());
        lists.replace(&config(&[7], &[-2]));
        assert!(shared.role(42, true).is_none() && !shared.serves_group(-1) && shared.serves_group(-2));
        assert_eq!(shared.standing_of("7", None), AccessDecision::May(Authority::Conversation));
        assert!(matches!(shared.standing_of("42", None), AccessDecision::NotAllowed(_)));
        assert!(shared.serves("7") && !shared.serves("42"));
    }

    fn paired(id: &str) -> PairedPerson {
        let (id, name, conversation) = (id.to_owned(), "Ann".to_owned(), id.to_owned());
        PairedPerson {
            person: Stranger { channel: "telegram".into(), id, name, conversation },
            admitted_by: "7".to_owned(),
            admitted_through: "telegram".into(),
            admitted_at: UnixMillis(1),
        }
    }

    #[test]
    fn pairing_admits_to_the_private_chat_alone_and_a_reload_keeps_it() {
        let groups = GroupsConfig { allow: vec![-100], ..GroupsConfig::default() };
        let config = TelegramConfig { operators: vec![7], groups, ..TelegramConfig::default() };
        let lists = AllowLists::of(&config);
        lists.replace_paired(&[paired("42"), paired("not a number")]);
        lists.replace(&config);
        let user = AccessDecision::May(Authority::Conversation);
        for conversation in [Some("42"), None] {
            assert_eq!(lists.standing_of("42", conversation), user, "{conversation:?}");
        }
        let AccessDecision::NotAllowed(why) = lists.standing_of("42", Some("-100")) else { panic!("not in groups") };
        assert!(why.contains("private chat alone"), "{why}");
        assert!(lists.serves("42") && lists.role(42, false).is_none());
        assert_eq!(lists.listed(), [("7".to_owned(), Role::Operator)]);
        lists.replace_paired(&[]);
        assert!(!lists.serves("42") && matches!(lists.standing_of("42", Some("42")), AccessDecision::NotAllowed(_)));
    }

    #[test]
    fn a_group_that_has_moved_has_its_access_its_session_and_its_settings_under_all_of_its_ids() {
        let moved = |from: &str, to: &str| MovedConversation {
            channel: "telegram".into(),
            from: from.into(),
            to: to.into(),
            keeps_session: true,
        };
        for listed in ["-100", "-1009"] {
            let text = format!("[groups]\nallow = [{listed}]\noverrides.\"{listed}\".persona = \"a librarian\"");
            let config = TelegramConfig { allow: vec![42], ..toml::from_str(&text).expect("settings") };
            let lists = AllowLists::of(&config);
            lists.replace_moved(MovedGroups::of(vec![moved("-100", "-1009")]));
            for id in ["-100", "-1009", "-1009:7"] {
                assert!(lists.serves(id), "{id}");
                assert_eq!(lists.standing_of("42", Some(id)), AccessDecision::May(Authority::Conversation), "{id}");
                let session = lists.session_of(id).expect("a session");
                assert!(session.as_str().starts_with("telegram:-100"), "{session}");
                let settings = lists.settings_of(&session).expect("settings of its own");
                assert_eq!(settings.persona.as_deref(), Some("a librarian"), "{id}");
            }
            assert!(!lists.serves("-1008"));
        }
    }
}
