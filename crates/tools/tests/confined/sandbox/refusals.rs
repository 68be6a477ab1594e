//! Where a piece is missing, nothing runs.

use belay_tools::sandbox::{Landlock, Offers, Policy, Sandbox, SandboxConfig};

use super::support::{Ground, NOTHING, WRITE, Who, script};

/// The sandbox that is refused, and why.
fn refused(ground: &Ground, config: &SandboxConfig) -> String {
    Sandbox::probe(config, &ground.workspace, ground.launcher()).expect_err("it works").0
}

#[test]
fn a_bubblewrap_that_is_missing_old_or_powerless_is_the_reason_given() {
    let ground = Ground::of(Who::Me);
    let at = |name: &str| ground.outside.join(name);
    script(&at("old"), "#!/bin/sh\necho bubblewrap 0.6.2\n");
    script(&at("mute"), "#!/bin/sh\nexit 0\n");
    let powerless = "#!/bin/sh\n[ \"$1\" = --version ] && { echo bubblewrap 0.8.0; exit 0; }\n\
                     echo 'bwrap: No permissions to create new namespace' >&2\nexit 1\n";
    script(&at("powerless"), powerless);
    for (name, reason) in [
        ("nowhere", "there is no program"),
        ("old", "0.7 or later is needed"),
        ("mute", "does not say which bubblewrap it is"),
        ("powerless", "kernel.unprivileged_userns_clone"),
    ] {
        for policy in [Policy::Readonly, Policy::WorkspaceWrite, Policy::Full] {
            let config = SandboxConfig { policy, bwrap: Some(at(name)), ..ground.config() };
            let missing = refused(&ground, &config);
            assert!(missing.contains(reason), "{name}: {missing}");
        }
        // Without walls, on the operator's word, none of it is needed.
        let config = SandboxConfig { policy: Policy::Off, bwrap: Some(at(name)), ..ground.config() };
        assert!(Sandbox::probe(&config, &ground.workspace, ground.launcher()).is_ok());
    }
}

#[test]
fn a_workspace_or_a_program_that_is_not_there_is_named() {
    let ground = Ground::of(Who::Me);
    let nowhere = ground.outside.join("nowhere");
    for (workspace, launcher) in [(&*nowhere, ground.launcher()), (&ground.workspace, &nowhere)] {
        let missing = Sandbox::probe(&ground.config(), workspace, launcher).unwrap_err();
        assert!(missing.0.contains(nowhere.to_str().unwrap()), "{missing}");
    }
}

#[test]
fn a_last_stage_that_does_not_understand_is_found_out_at_the_start() {
    let ground = Ground::of(Who::Me);
    let other = ground.outside.join("other");
    script(&other, "#!/bin/sh\necho 'error: unrecognised subcommand launch' >&2\nexit 2\n");
    let missing = Sandbox::probe(&ground.config(), &ground.workspace, &other).unwrap_err();
    assert!(missing.0.contains("unrecognised subcommand"), "{missing}");
}

#[test]
fn a_kernel_without_a_piece_runs_nothing() {
    for who in Who::all() {
        let ground = Ground::of(*who);
        for (piece, landlock, code, words) in [
            ("without-landlock", Landlock::Required, Some(126), "belay launch: the kernel does not offer Landlock"),
            ("without-landlock", Landlock::Optional, Some(0), ""),
            ("without-seccomp", Landlock::Required, Some(126), "belay launch: the kernel does not take a filter"),
            ("without-namespaces", Landlock::Required, Some(1), "bwrap: "),
        ] {
            let config = SandboxConfig { landlock, ..ground.config() };
            let launch = ground.launch(&config, WRITE, &["touch", "ran"]);
            let args = launch.args.iter().map(|arg| arg.to_str().unwrap());
            let argv: Vec<_> = [ground.attack.to_str().unwrap(), piece, launch.program.to_str().unwrap()]
                .into_iter()
                .chain(args)
                .collect();
            let ran = ground.outside(&argv);
            assert_eq!(ran.code, code, "{who:?} {piece} {landlock:?}: {ran:?}");
            assert!(ran.err.starts_with(words), "{who:?} {piece} {landlock:?}: {ran:?}");
            let made = std::fs::remove_file(ground.workspace.join("ran")).is_ok();
            assert_eq!(made, code == Some(0), "{who:?} {piece} {landlock:?}");
        }
    }
}

#[test]
fn programs_that_cannot_be_started_are_told_apart_as_shells_do() {
    let ground = Ground::of(Who::Me);
    std::fs::write(ground.workspace.join("text"), "no program").unwrap();
    for (program, code) in [("no-such-program", 127), ("/workspace/text", 126)] {
        let ran = ground.inside(&ground.config(), NOTHING, &[program]);
        assert_eq!(ran.code, Some(code), "{ran:?}");
        assert!(ran.err.starts_with(&format!("belay launch: {program} cannot be started: ")), "{ran:?}");
    }
}

#[test]
fn the_stage_refuses_what_it_does_not_understand() {
    let ground = Ground::of(Who::Me);
    for args in
        [&["launch"][..], &["launch", "--bare", "--parent", "1", "--", "true"], &["launch", "--", "touch", "ran"]]
    {
        let launcher = ground.launcher().to_str().unwrap();
        let ran = ground.outside(&[&[launcher], args].concat());
        assert_eq!(ran.code, Some(126), "{args:?}: {ran:?}");
        assert!(ran.err.starts_with("belay launch: "), "{args:?}: {ran:?}");
    }
}

#[test]
fn what_this_machine_offers_is_enough_for_these_tests() {
    let offers = Offers::look(&SandboxConfig::default());
    let missing: Vec<_> = offers.lines().into_iter().filter(|(there, _)| !there).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
