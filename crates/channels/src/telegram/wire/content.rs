//! What a message brings besides its text. Bot API: Message, ExternalReplyInfo and the types of their fields.

use serde_json::Value;

use super::message::User;
use super::read::{Read, objects};

objects! {
    /// The content of a message, or of one of another chat.
    Content {
        animation: Option<File>,
        audio: Option<File>,
        document: Option<File>,
        live_photo: Option<File>,
        photo: Option<Vec<File>>,
        sticker: Option<File>,
        video: Option<File>,
        video_note: Option<File>,
        voice: Option<File>,
        paid_media: Option<Present>,
        story: Option<Present>,
        game: Option<Present>,
        invoice: Option<Present>,
        checklist: Option<Checklist>,
        contact: Option<Contact>,
        dice: Option<Dice>,
        location: Option<Location>,
        poll: Option<Poll>,
        venue: Option<Venue>,
    }

    /// A file, or one size of a photo.
    File {
        /// Empty: it cannot be read.
        file_id: String,
        file_name: Option<String>,
        file_size: Option<u64>,
        width: u64,
        height: u64,
        is_animated: bool,
        is_video: bool,
    }

    /// A list of tasks.
    Checklist {
        title: String,
        tasks: Vec<Task>,
    }

    /// A task of a checklist.
    Task {
        id: Option<i64>,
        text: String,
        completed_by_user: Option<User>,
        /// Above 0: it is done.
        completion_date: Option<u64>,
    }

    /// The contact of a person.
    Contact {
        phone_number: String,
        first_name: String,
        last_name: Option<String>,
        user_id: Option<u64>,
    }

    /// A die, or another thing with a random value.
    Dice {
        emoji: String,
        value: Option<u64>,
    }

    /// A place on the earth.
    Location {
        latitude: Option<f64>,
        longitude: Option<f64>,
        /// In metres.
        horizontal_accuracy: Option<f64>,
        live_period: Option<u64>,
    }

    /// A poll.
    Poll {
        kind = "type": Option<String>,
        question: String,
        options: Vec<PollOption>,
        is_closed: bool,
    }

    /// An answer of a poll.
    PollOption {
        persistent_id: Option<String>,
        text: String,
        voter_count: Option<u64>,
    }

    /// A place with a name.
    Venue {
        location: Location,
        title: String,
        address: String,
    }
}

/// Something of which only the presence is read.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(in crate::telegram) struct Present;

impl Read for Present {
    fn read(_: &Value) -> Option<Self> {
        Some(Self)
    }
}
