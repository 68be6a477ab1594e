//! Chanting: what it says of whole texts, by the words of its rule, however they are cut into pieces.

mod asked;
mod corpus;
mod oracle;
mod table;
mod target;
