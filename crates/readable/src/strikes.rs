//! The open elements that strike their text. A forgotten end tag does not strike the rest of the page: a cell ends them all,
//! and another block ends each `del` that was opened in it, as in browsers.

/// Most open elements that are tracked. More of them strike nothing else.
const OPEN_MAX: usize = 32;

#[derive(Default)]
pub(super) struct Strikes {
    open: Vec<Strike>,
    /// Number of open blocks.
    blocks: usize,
}

struct Strike {
    /// Number of open blocks around it.
    depth: usize,
    /// Whether it is `s` or `strike`, which go on behind the end of a block.
    goes_on: bool,
}

impl Strikes {
    pub(super) fn is_struck(&self) -> bool {
        !self.open.is_empty()
    }

    pub(super) fn start(&mut self, name: &str) {
        match name {
            "del" | "s" | "strike" if self.open.len() < OPEN_MAX => {
                self.open.push(Strike { depth: self.blocks, goes_on: name != "del" });
            }
            "td" | "th" | "caption" => self.end_cell(),
            _ if is_block(name) => self.blocks += 1,
            _ => {}
        }
    }

    pub(super) fn end(&mut self, name: &str) {
        match name {
            "del" | "s" | "strike" => drop(self.open.pop()),
            "td" | "th" | "caption" => self.end_cell(),
            _ if is_block(name) => {
                self.blocks = self.blocks.saturating_sub(1);
                let blocks = self.blocks;
                self.open.retain(|strike| strike.depth <= blocks || (strike.goes_on && name != "table"));
            }
            _ => {}
        }
    }

    /// Ends what was opened within the table.
    fn end_cell(&mut self) {
        let blocks = self.blocks;
        self.open.retain(|strike| strike.depth < blocks);
    }
}

/// Whether the element is a block that pages close.
fn is_block(name: &str) -> bool {
    matches!(
        name,
        "div"
            | "section"
            | "article"
            | "aside"
            | "main"
            | "header"
            | "footer"
            | "nav"
            | "blockquote"
            | "figure"
            | "table"
    )
}
