//! Receives the tokens of a page.

use std::cell::RefCell;

use html5ever::tokenizer::states::RawKind;
use html5ever::tokenizer::{TagKind, Token, TokenSink, TokenSinkResult};
use url::Url;

use super::Readable;
use super::page::Page;

/// Consumes tokens and writes text.
pub(super) struct Sink {
    base: Url,
    page: RefCell<Page>,
}

impl Sink {
    pub(super) fn new(base: Url) -> Self {
        Self { base, page: RefCell::default() }
    }

    pub(super) fn finish(&self, cut: bool) -> Readable {
        self.page.take().finish(cut)
    }
}

impl TokenSink for Sink {
    type Handle = ();

    fn process_token(&self, token: Token, _line: u64) -> TokenSinkResult<()> {
        let mut page = self.page.borrow_mut();
        match token {
            Token::CharacterTokens(text) => page.characters(&text),
            Token::TagToken(tag) => {
                let name = &*tag.name;
                match tag.kind {
                    TagKind::StartTag => page.start(name, &tag, &self.base),
                    TagKind::EndTag => page.end(name),
                }
                // As in the tree builder of a browser. Otherwise `<` within a script would begin a tag.
                if tag.kind == TagKind::StartTag {
                    match name {
                        "script" => return TokenSinkResult::RawData(RawKind::ScriptData),
                        "style" | "xmp" | "iframe" | "noembed" | "noframes" => {
                            return TokenSinkResult::RawData(RawKind::Rawtext);
                        }
                        "title" | "textarea" => return TokenSinkResult::RawData(RawKind::Rcdata),
                        "plaintext" => return TokenSinkResult::Plaintext,
                        _ => {}
                    }
                }
            }
            Token::CommentToken(_)
            | Token::DoctypeToken(_)
            | Token::NullCharacterToken
            | Token::EOFToken
            | Token::ParseError(_) => {}
        }
        TokenSinkResult::Continue
    }
}
