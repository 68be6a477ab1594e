//! The links of a page.

use url::Url;

/// Most links in the list. A page with more is a list of links, and its text names them.
const MAX_LINKS: usize = 500;

/// Longest link in the list, in bytes. Longer ones contain data.
const MAX_LINK_BYTES: usize = 1000;

/// The distinct targets, and the open link.
#[derive(Default)]
pub(super) struct Links {
    open: Option<usize>,
    targets: Vec<String>,
}

impl Links {
    /// Opens a link to `href`. Links within the page, and of other schemes, are not listed.
    pub(super) fn open(&mut self, href: Option<&str>, base: &Url) {
        let url = href.and_then(|href| base.join(href.trim()).ok());
        let Some(url) = url.filter(|url| matches!(url.scheme(), "http" | "https" | "mailto")) else { return };
        let url = url.as_str();
        if url.len() > MAX_LINK_BYTES || url.split('#').next() == base.as_str().split('#').next() {
            return;
        }
        // Searches only the last few links: menus repeat a link at once or not at all, and searching all links would
        // take quadratic time.
        let last = self.targets.len().saturating_sub(16);
        let at = self.targets[last..].iter().position(|known| known == url).map(|at| last + at);
        self.open = at.or_else(|| {
            (self.targets.len() < MAX_LINKS).then(|| {
                self.targets.push(url.to_owned());
                self.targets.len() - 1
            })
        });
    }

    /// Closes the open link. Returns its reference, such as `[1]`.
    pub(super) fn close(&mut self) -> Option<String> {
        self.open.take().map(|at| format!("[{}]", at + 1))
    }

    pub(super) fn into_targets(self) -> Vec<String> {
        self.targets
    }
}
