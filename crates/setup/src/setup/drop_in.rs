//! The drop-in of a systemd unit that gives the daemon its credentials.

use std::path::{Path, PathBuf};

use belay_program::drop_ins;

/// A credential: its name, and the file that holds it.
pub(super) type Credential<'a> = (&'static str, &'a Path);

const NAME: &str = "belay-setup.conf";

/// The path of the drop-in that is written.
pub(super) fn path(unit: &Path) -> PathBuf {
    drop_ins::of_operator(unit).join(NAME)
}

/// The path of the drop-in that systemd reads now, if there is one. Earlier versions wrote it beside the unit, and the
/// new file hides that one.
pub(super) fn current(unit: &Path) -> Option<PathBuf> {
    drop_ins::files(unit).into_iter().find(|path| path.file_name().is_some_and(|name| name == NAME))
}

/// The text of the drop-in with these credentials. Other lines of an existing text are kept.
///
/// Source: systemd.exec(5), `LoadCredential=ID:PATH`.
pub(super) fn text(before: Option<&str>, credentials: &[Credential<'_>]) -> String {
    let before = before.unwrap_or("# `belay setup` wrote this: the secrets of Belay.\n[Service]\n");
    let replaced = |line: &&str| {
        let name = line.trim().strip_prefix("LoadCredential=").and_then(|value| value.split_once(':'));
        !name.is_some_and(|(name, _)| credentials.iter().any(|(new, _)| *new == name))
    };
    let mut lines: Vec<String> = before.lines().filter(replaced).map(str::to_owned).collect();
    lines.extend(credentials.iter().map(|(name, file)| format!("LoadCredential={name}:{}", file.display())));
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credential_is_replaced_and_other_lines_are_kept() {
        let first = text(None, &[("llm_api_key", Path::new("/s/a"))]);
        assert!(first.ends_with("\n[Service]\nLoadCredential=llm_api_key:/s/a\n"), "{first}");
        let second = text(
            Some("[Service]\nNice=5\nLoadCredential=llm_api_key:/s/a\nLoadCredential=x:/s/x\n"),
            &[("llm_api_key", Path::new("/s/b")), ("telegram_bot_token", Path::new("/s/t"))],
        );
        assert_eq!(
            second,
            "[Service]\nNice=5\nLoadCredential=x:/s/x\nLoadCredential=llm_api_key:/s/b\nLoadCredential=telegram_bot_token:/s/t\n"
        );
        assert_eq!(path(Path::new("/u/belay.service")), Path::new("/u/belay.service.d/belay-setup.conf"));
        let packaged = Path::new("/usr/lib/systemd/system/belay.service");
        assert_eq!(path(packaged), Path::new("/etc/systemd/system/belay.service.d/belay-setup.conf"));
    }
}
