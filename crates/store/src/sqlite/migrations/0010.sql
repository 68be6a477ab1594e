-- Money by what it goes for. What was spent before went for chats: there was nothing else.

CREATE TABLE spend (
    utc_day   INTEGER NOT NULL,
    purpose   TEXT NOT NULL, -- the word of a purpose
    micro_usd INTEGER NOT NULL,
    PRIMARY KEY (utc_day, purpose)
) STRICT, WITHOUT ROWID;
INSERT INTO spend (utc_day, purpose, micro_usd) SELECT utc_day, 'chat', micro_usd FROM spend_days;
DROP TABLE spend_days;

ALTER TABLE reservations ADD COLUMN purpose TEXT NOT NULL DEFAULT 'chat';
