-- Commands and answers to questions that were acted on: a second delivery, also after a restart, does nothing.
CREATE TABLE acted_on (
    seq         INTEGER PRIMARY KEY,
    key_channel TEXT NOT NULL,
    key_account TEXT NOT NULL,
    key_message TEXT NOT NULL,
    at          INTEGER NOT NULL,
    UNIQUE (key_channel, key_account, key_message)
) STRICT;
