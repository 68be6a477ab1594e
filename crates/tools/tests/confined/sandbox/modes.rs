//! Set-user-ID and set-group-ID bits: no command sets them, and programs that do not need them work.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::support::{ATTACK, Ground, WRITE, Who};

/// The calls that give a file a mode, with that of a file without a name.
const CALLS: &[&str] = &[
    #[cfg(target_arch = "x86_64")]
    "open",
    #[cfg(target_arch = "x86_64")]
    "open-nofile",
    #[cfg(target_arch = "x86_64")]
    "creat",
    #[cfg(target_arch = "x86_64")]
    "mkdir",
    #[cfg(target_arch = "x86_64")]
    "mknod",
    #[cfg(target_arch = "x86_64")]
    "chmod",
    "openat",
    "openat-nofile",
    "mkdirat",
    "mknodat",
    "fchmod",
    "fchmodat",
    "fchmodat-long",
    "fchmodat2",
];

/// The bits beyond reading, writing and executing.
fn special_bits(path: &Path) -> u32 {
    std::fs::metadata(path).map_or(0, |found| found.permissions().mode() & 0o7000)
}

#[test]
fn no_call_sets_the_user_or_the_group_id_bit() {
    for who in Who::all() {
        let ground = Ground::of(*who);
        let made = ground.workspace.join("made");
        let remove = || drop(std::fs::remove_file(&made).or_else(|_| std::fs::remove_dir(&made)));
        let attack = ground.attack.to_str().unwrap();
        let mut wrong = Vec::new();
        for call in CALLS {
            // A file without a name is made in a directory.
            let path = if call.ends_with("nofile") { "." } else { "made" };
            for (mode, good) in [("4755", false), ("2755", false), ("6711", false), ("755", true), ("1700", true)] {
                let control = ground.outside(&[attack, "make", call, mode, path]);
                let unknown = *call == "fchmodat2" && control.out == "ENOSYS"; // before Linux 6.6
                remove();
                let ran = ground.inside(&ground.config(), WRITE, &[ATTACK, "make", call, mode, path]);
                // For a directory the kernel ignores the group bit, which `cp -r` passes on.
                let ignored = call.starts_with("mkdir") && mode == "2755";
                let expected = if good || ignored { (Some(0), "") } else { (Some(1), "EPERM") };
                let bits = special_bits(&made);
                if !unknown && (!control.good() || (ran.code, ran.out.as_str()) != expected || bits & 0o6000 != 0) {
                    wrong.push(format!("{who:?} {call} {mode}: outside {control:?}, inside {ran:?}, bits {bits:o}"));
                }
                remove();
            }
        }
        for mode in ["4755", "755"] {
            assert!(ground.outside(&[attack, "make", "openat2", mode, "made"]).good(), "the control");
            remove();
            let ran = ground.inside(&ground.config(), WRITE, &[ATTACK, "make", "openat2", mode, "made"]);
            assert_eq!((ran.code, ran.out.as_str(), made.exists()), (Some(1), "ENOSYS", false), "{who:?}: {ran:?}");
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}

/// In a directory with the set-group-ID bit, the kernel gives new directories this bit. No call asks for it.
#[test]
fn ordinary_programs_work_also_in_a_directory_with_the_group_bit() {
    for who in Who::all() {
        let ground = Ground::of(*who);
        for (parent, mode) in [("plain", 0o755), ("group", 0o2775)] {
            assert!(ground.outside(&["mkdir", parent]).good());
            std::fs::set_permissions(ground.workspace.join(parent), PermissionsExt::from_mode(mode)).unwrap();
            let git = "git -c user.name=a -c user.email=a@b.test -c init.defaultBranch=main";
            for script in [
                "mkdir -p a/b && mkdir -m 750 c && install -d -m 755 d && touch a/b/file && chmod 600 a/b/file",
                "mkdir /tmp/x && echo text > /tmp/x/file && chmod 755 /tmp/x/file && tar -C /tmp -cf x.tar x && tar -xf x.tar && test -x x/file",
                "cp -r x copy && cp /bin/sh program && mv program moved && ./moved -c 'exit 0' && install -m 755 moved installed",
                &format!(
                    "{git} init -q r && cd r && echo 1 > f && {git} add f && {git} commit -qm 1 && {git} checkout -qb b"
                ),
                &format!("{git} clone -q r s && cd s && {git} checkout -q main && test -f f"),
                "echo 'int main(void) { return 0; }' > m.c && echo 'm: m.c ; cc -o m m.c' > Makefile && make -s && ./m",
                "python3 -c 'import os; os.makedirs(\"p/q\"); os.chmod(\"p/q\", 0o700); open(\"p/q/f\", \"w\").close()'",
            ] {
                let ran = ground.shell(WRITE, &format!("set -e; cd {parent}; {script}"));
                assert!(ran.good() && ran.err.is_empty(), "{who:?} {parent}: {script}: {ran:?}");
            }
            let inherited = special_bits(&ground.workspace.join(parent).join("a/b"));
            assert_eq!(inherited, mode & 0o7000, "{who:?} {parent}: the bit that the kernel passes on");
        }
    }
}
