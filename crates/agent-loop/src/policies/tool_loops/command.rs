//! Determines the kind of a shell command by its first words.

use super::words::Kind;

/// The kind of a command line: that of its part with the greatest weight. Programs that only wrap another command are
/// skipped.
pub(super) fn kind(command: &str) -> Kind {
    // An empty command that is sent to a terminal asks for new output.
    if command.trim().is_empty() {
        return Kind::Poll;
    }
    let mut found: Option<Kind> = None;
    let mut slept = false;
    for part in parts(command) {
        let Some(kind) = part_kind(part) else { continue };
        slept |= kind == Kind::Wait;
        // A part that changes something has the greatest weight, then one that runs something, then one that reads.
        if found.is_none_or(|known| weight(kind) > weight(known)) {
            found = Some(kind);
        }
    }
    match found {
        // Reading again after a while is polling.
        Some(Kind::Read | Kind::Run) if slept => Kind::Poll,
        Some(kind) => kind,
        None => Kind::Run,
    }
}

/// Whether a command lets time pass before or after another action.
pub(super) fn sleeps(command: &str) -> bool {
    command.contains("sleep") && parts(command).any(|part| part_kind(part) == Some(Kind::Wait))
}

/// Whether the output of a command consists only of process ids.
pub(super) fn prints_pids(command: &str) -> bool {
    ["pgrep", "pidof"].iter().any(|program| command.contains(program))
}

/// The simple commands of a line. A `|` or `;` in quotes does not separate commands.
fn parts(command: &str) -> impl Iterator<Item = &str> {
    let mut quote = None;
    command.split(move |letter| match (quote, letter) {
        (None, '"' | '\'') => {
            quote = Some(letter);
            false
        }
        (Some(open), letter) => {
            // The end of the line ends an unclosed quote: the quote was an apostrophe.
            if letter == open || letter == '\n' {
                quote = None;
            }
            letter == '\n'
        }
        (None, letter) => matches!(letter, '\n' | ';' | '|' | '&'),
    })
}

fn weight(kind: Kind) -> u8 {
    match kind {
        Kind::Harmless | Kind::Note => 0,
        Kind::Wait => 1,
        Kind::Read | Kind::Other => 2,
        Kind::Poll => 3,
        Kind::Run => 4,
        Kind::Write => 5,
    }
}

/// The kind of one simple command. `None`: the part contains no command.
fn part_kind(part: &str) -> Option<Kind> {
    let mut words = part.split_ascii_whitespace().peekable();
    let wraps = |word: &str| {
        matches!(
            word,
            "sudo" | "nice" | "time" | "env" | "timeout" | "nohup" | "command" | "exec" | "(" | "{" | "then" | "do"
        ) || (word.contains('=') && !word.starts_with('-'))
            || word.bytes().all(|byte| byte.is_ascii_digit() || byte == b's')
    };
    while words.peek().is_some_and(|word| wraps(word)) {
        words.next();
    }
    let program = words.next()?.trim_matches(['(', '{', '"', '\'']);
    let program = program.rsplit('/').next().unwrap_or(program);
    let second = words.clone().find(|word| !word.starts_with('-')).unwrap_or_default();
    let has = |flag: &str| words.clone().any(|word| word == flag);
    if writes_to_a_file(part) {
        return Some(Kind::Write);
    }
    Some(match program {
        "cd" | "set" | "export" | "source" | "fi" | "done" | "else" | "while" | "for" | "if" | "until" => return None,
        "echo" | "printf" | "date" | "true" | ":" | "pwd" | "whoami" | "uptime" | "hostname" | "clear" => {
            Kind::Harmless
        }
        "sleep" | "wait" => Kind::Wait,
        "ps" | "pgrep" | "top" | "htop" | "watch" | "netstat" | "ss" | "lsof" | "ping" | "squeue" | "qstat"
        | "journalctl" | "nvidia-smi" | "free" | "df" | "jobs" => Kind::Poll,
        // Only asks whether something listens.
        "nc" if has("-z") => Kind::Poll,
        // These programs query the network. Its answer may change over time.
        "dig" | "nslookup" | "host" | "whois" | "getent" => Kind::Other,
        "tail" => {
            if has("-f") || has("-F") {
                Kind::Poll
            } else {
                Kind::Read
            }
        }
        "cat" | "ls" | "grep" | "egrep" | "rg" | "ag" | "find" | "fd" | "head" | "awk" | "less" | "wc" | "diff"
        | "stat" | "file" | "which" | "tree" | "jq" | "printenv" | "type" | "od" | "xxd" | "sort" | "uniq" | "cut"
        | "tr" | "du" | "basename" | "dirname" | "realpath" | "column" | "test" | "[" => Kind::Read,
        "sed" => {
            if has("-i") {
                Kind::Write
            } else {
                Kind::Read
            }
        }
        "git" => match second {
            "log" | "show" | "diff" | "status" | "blame" | "grep" | "ls-files" | "branch" | "remote" | "rev-parse"
            | "describe" | "config" => Kind::Read,
            _ => Kind::Write,
        },
        "gh" | "kubectl" | "docker" | "systemctl" | "podman" | "helm" | "aws" | "gcloud" | "az" | "terraform"
        | "nomad" => cluster(words.clone()),
        "curl" | "wget" | "http" => {
            let sends = ["-X", "-d", "--data", "-F", "-T", "--request"].iter().any(|flag| has(flag));
            let asks = ["health", "status", "ready", "ping", "progress"].iter().any(|word| part.contains(word));
            if sends {
                Kind::Write
            } else if asks {
                Kind::Poll
            } else {
                Kind::Read
            }
        }
        "mv" | "cp" | "rm" | "mkdir" | "rmdir" | "touch" | "tee" | "chmod" | "chown" | "ln" | "pip" | "pip3"
        | "apt" | "apt-get" | "brew" | "patch" | "tar" | "unzip" | "kill" | "pkill" | "rsync" | "scp" => Kind::Write,
        _ => Kind::Run,
    })
}

/// Programs that talk to a service. Their verb is one of the first words behind the program's name.
fn cluster<'a>(words: impl Iterator<Item = &'a str>) -> Kind {
    for word in words.filter(|word| !word.starts_with('-')).take(3) {
        match word {
            "get" | "describe" | "status" | "view" | "list" | "ls" | "ps" | "logs" | "watch" | "wait" | "inspect"
            | "top" | "is-active" | "stats" | "checks" | "events" => return Kind::Poll,
            // Not "run", which is a noun if a verb follows: `gh run view`.
            "apply" | "delete" | "create" | "scale" | "rm" | "build" | "stop" | "start" | "restart" | "merge"
            | "close" | "comment" | "edit" | "push" | "pull" | "install" | "upgrade" | "patch" | "destroy" => {
                return Kind::Write;
            }
            _ => {}
        }
    }
    Kind::Write
}

/// Whether the command redirects its output to a file. `2>&1` and `>/dev/null` are not files.
fn writes_to_a_file(part: &str) -> bool {
    part.match_indices('>').any(|(at, _)| {
        let target = part[at + 1..].trim_start_matches('>').trim_start();
        let arrow = part[..at].ends_with(['-', '=']);
        !arrow && !target.is_empty() && !target.starts_with('&') && !target.starts_with("/dev/null")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_tell_what_they_do() {
        for (command, expected) in [
            ("cat a.txt", Kind::Read),
            ("cd /repo && grep -rn foo src | head -5", Kind::Read),
            ("ls -la 2>/dev/null", Kind::Read),
            ("git status", Kind::Read),
            ("git commit -m x", Kind::Write),
            ("git log > out.txt", Kind::Write),
            ("sed -n 1,5p a", Kind::Read),
            ("sed -i s/a/b/ a", Kind::Write),
            ("FOO=1 sudo timeout 300 rm -rf x", Kind::Write),
            ("pytest -q 2>&1 | tail -5", Kind::Run),
            ("cargo test", Kind::Run),
            ("echo hello", Kind::Harmless),
            ("echo hello > a", Kind::Write),
            ("date", Kind::Harmless),
            ("sleep 5", Kind::Wait),
            ("sleep 5 && cat a", Kind::Poll),
            ("sleep 2; ./check.sh", Kind::Poll),
            ("sleep 2 && git push", Kind::Write),
            ("gh run view 5", Kind::Poll),
            ("kubectl get pods -n x", Kind::Poll),
            ("kubectl -n x delete pod y", Kind::Write),
            ("docker ps", Kind::Poll),
            ("docker run x", Kind::Write),
            ("systemctl status x", Kind::Poll),
            ("curl -s localhost/health", Kind::Poll),
            ("curl -s example.org", Kind::Read),
            ("curl -X POST example.org", Kind::Write),
            ("tail -n 5 x", Kind::Read),
            ("tail -f x", Kind::Poll),
            ("", Kind::Poll),
            ("dig +short example.org", Kind::Other),
            ("gh run view 5 --jq '.jobs[]|[.name]'", Kind::Poll),
            ("grep 'a;b|c' x.txt", Kind::Read),
            ("echo don't\nrm x", Kind::Write),
        ] {
            assert_eq!(kind(command), expected, "{command}");
        }
    }
}
