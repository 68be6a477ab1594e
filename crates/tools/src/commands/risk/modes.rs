//! Modes of files in the arguments of a program. A file with the set-user-ID or the set-group-ID bit lends the rights of
//! its owner, so "always" never covers such a mode.
//!
//! A mode counts as harmless only if its form shows it. So an unusual spelling is asked for, and none is missed.

/// Options of chmod that set no mode and take no value.
const HARMLESS_OPTIONS: [&str; 9] = [
    "--changes",
    "--silent",
    "--quiet",
    "--verbose",
    "--preserve-root",
    "--dereference",
    "--no-dereference",
    "--help",
    "--version",
];

/// Whether the arguments of chmod may set another bit than those of reading, writing, executing and the sticky bit.
///
/// Source: the manual of GNU coreutils, "chmod invocation" and "File permissions": a mode may also be an argument that
/// begins with a dash, at any position before `--`.
pub(super) fn chmod_lends(arguments: &[String]) -> bool {
    let (mut operands, mut dashed, mut options_end) = (Vec::new(), false, false);
    for argument in arguments.iter().map(String::as_str) {
        if options_end || !argument.starts_with('-') {
            operands.push(argument);
        } else if argument == "--" {
            options_end = true;
        } else if !is_harmless_option(argument) {
            if !is_harmless(argument) {
                return true;
            }
            dashed = true;
        }
    }
    match operands.first() {
        // The first operand is a file. Some programs read it as a mode all the same.
        Some(first) if dashed => looks_like_mode(first) && !is_harmless(first),
        Some(first) => !is_harmless(first),
        None => false,
    }
}

/// Whether an option `-m` or `--mode` of install, mkdir and the like may set such a bit.
pub(super) fn mode_option_lends(arguments: &[String]) -> bool {
    arguments.iter().enumerate().any(|(index, argument)| {
        let next = || arguments.get(index + 1).map_or("", String::as_str);
        let value = match argument.strip_prefix("--") {
            Some(long) => {
                let (name, value) = long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
                let is_mode = !name.is_empty() && "mode".starts_with(name);
                is_mode.then(|| value.unwrap_or_else(next))
            }
            None => {
                let letters = argument.strip_prefix('-').unwrap_or_default();
                letters.split_once('m').map(|(_, value)| if value.is_empty() { next() } else { value })
            }
        };
        value.is_some_and(|mode| !is_harmless(mode))
    })
}

fn is_harmless_option(argument: &str) -> bool {
    match argument.strip_prefix("--") {
        Some(_) => HARMLESS_OPTIONS.contains(&argument),
        None => argument.len() > 1 && argument.chars().skip(1).all(|letter| "vcf".contains(letter)),
    }
}

/// Whether a mode certainly sets only bits of reading, writing and executing, and the sticky bit.
fn is_harmless(mode: &str) -> bool {
    if !mode.is_empty() && mode.chars().all(|digit| ('0'..='7').contains(&digit)) {
        return u32::from_str_radix(mode, 8).is_ok_and(|bits| bits & 0o6000 == 0);
    }
    mode.split(',').all(is_harmless_clause)
}

/// `[ugoa]*([-+=][rwxXt]*|[-+=][ugo])+`
fn is_harmless_clause(clause: &str) -> bool {
    let actions = clause.trim_start_matches(['u', 'g', 'o', 'a']);
    actions.starts_with(['-', '+', '='])
        && actions.split(['-', '+', '=']).all(|permissions| {
            matches!(permissions, "u" | "g" | "o") || permissions.chars().all(|letter| "rwxXt".contains(letter))
        })
}

fn looks_like_mode(word: &str) -> bool {
    !word.is_empty() && word.chars().all(|letter| "ugoarwxXst01234567-+=,".contains(letter))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn chmod_lends_rights_in_every_spelling() {
        for line in [
            "4755 f",
            "2755 f",
            "6755 f",
            "7777 f",
            "04755 f",
            "002755 f",
            "+4000 f",
            "=4755 f",
            "u+4000 f",
            "-4755 f",
            "u+s f",
            "g+s f",
            "+s f",
            "=s f",
            "a+s f",
            "ug+s f",
            "u=rwxs f",
            "u+xs f",
            "u+x,g+s f",
            "g-x+s f",
            "o=r,u+s f",
            "u-s+s f",
            "-u+s f",
            "-w,u+s f",
            "-v u+s f",
            "-- u+s f",
            "f -u+s",
            "-x 4755 f",
            "4755 -x",
            "u+s -w",
            "--reference=g f",
            "--reference g f",
            "--ref=g f",
            "--r g f",
            "-vf 4755 f",
            "-c -- 2755 f",
            "u+z f",
            "99 f",
            "4755",
            "--mode=4755 f",
            "-R 755 f",
            "é f",
        ] {
            assert!(chmod_lends(&words(line)), "{line}");
        }
        for line in [
            "644 f",
            "0755 f",
            "00755 f",
            "1777 f",
            "7 f",
            "+x f",
            "u+x f",
            "a=r f",
            "u=rwx,g=rx,o= f",
            "go-w f",
            "g=u f",
            "o+t f",
            "+X f",
            "-x f",
            "-w,o-r f",
            "f -x",
            "-v 755 f",
            "-vcf +x f",
            "--verbose 644 f",
            "-- 644 -s",
            "644 u+s",
            "755 4755",
            "--help",
            "",
            "-x list.txt",
            "u+x-w f",
        ] {
            assert!(!chmod_lends(&words(line)), "{line}");
        }
    }

    #[test]
    fn the_mode_of_a_new_file_is_an_option() {
        for line in [
            "-m 4755 a b",
            "-m4755 a b",
            "-m u+s a b",
            "-mg+s a",
            "--mode=2755 a",
            "--mode 2755 a",
            "--mo=+s a",
            "-pm 2775 d",
            "-Dm4755 a b",
            "-bvm 6755 a b",
            "-m",
            "-m 755 -m 4755 a",
        ] {
            assert!(mode_option_lends(&words(line)), "{line}");
        }
        for line in
            ["-m 755 a b", "-m755 a", "--mode=u=rwx,go=rx a", "-p a/b", "--parents a", "a b", "-D 4755 b", "-dm 700 a"]
        {
            assert!(!mode_option_lends(&words(line)), "{line}");
        }
    }
}
