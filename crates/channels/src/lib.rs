//! Message platforms: stdin and Telegram.
