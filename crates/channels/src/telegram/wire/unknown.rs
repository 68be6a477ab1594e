//! The field of a message that this version does not know. A message that says nothing else is named by it to its person.

use serde_json::Value;

use super::read::Read;

/// The fields of a message, up to Bot API 10.3.
const KNOWN: &str = "\
    animation audio author_signature boost_added business_connection_id caption caption_entities \
    channel_chat_created chat chat_background_set chat_owner_changed chat_owner_left chat_shared checklist \
    checklist_tasks_added checklist_tasks_done community_chat_added community_chat_joined community_chat_removed \
    connected_website contact date delete_chat_photo dice direct_message_price_changed direct_messages_topic \
    document edit_date effect_id entities ephemeral_message_id external_reply forum_topic_closed \
    forum_topic_created forum_topic_edited forum_topic_reopened forward_origin from game general_forum_topic_hidden \
    general_forum_topic_unhidden gift gift_upgrade_sent giveaway giveaway_completed giveaway_created \
    giveaway_winners group_chat_created guest_bot_caller_chat guest_bot_caller_user guest_query_id \
    has_media_spoiler has_protected_content invoice is_automatic_forward is_from_offline is_paid_post \
    is_topic_message left_chat_member link_preview_options live_photo location managed_bot_created media_group_id \
    message_auto_delete_timer_changed message_id message_thread_id migrate_from_chat_id migrate_to_chat_id \
    new_chat_members new_chat_photo new_chat_title paid_media paid_message_price_changed paid_star_count \
    passport_data photo pinned_message poll poll_option_added poll_option_deleted proximity_alert_triggered quote \
    receiver_user refunded_payment reply_markup reply_to_checklist_task_id reply_to_message reply_to_poll_option_id \
    reply_to_story rich_message sender_boost_count sender_business_bot sender_chat sender_tag \
    show_caption_above_media sticker story successful_payment suggested_post_approval_failed \
    suggested_post_approved suggested_post_declined suggested_post_info suggested_post_paid suggested_post_refunded \
    supergroup_chat_created text unique_gift users_shared venue via_bot video video_chat_ended \
    video_chat_participants_invited video_chat_scheduled video_chat_started video_note voice web_app_data \
    write_access_allowed";

/// The name of an unknown field with content: the kind of the message.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::telegram) struct UnknownKind(pub(in crate::telegram) Option<String>);

impl Read for UnknownKind {
    /// Reads the first such field of a message. A flag or a number is no content.
    fn read(message: &Value) -> Option<Self> {
        let fields = message.as_object()?;
        let is_content = |value: &Value| value.is_object() || value.is_array();
        let mut unknown = fields
            .iter()
            .filter(|(name, value)| is_content(value) && !KNOWN.split_whitespace().any(|known| known == name.as_str()));
        Some(Self(unknown.next().map(|(name, _)| name.replace('_', " "))))
    }
}
