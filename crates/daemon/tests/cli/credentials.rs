//! Sources of secrets that were configured and are empty, as the real binary meets them.

use crate::{Home, stderr};

const HERE: [&str; 4] = ["--set", "llm.provider=rehearsal", "--set", "gateway.listen=127.0.0.1:0"];

#[test]
fn an_empty_credential_is_refused_and_never_starts_without_authentication() {
    let home = Home::new();
    let file = home.0.path().join("token");
    std::fs::write(&file, " \n").unwrap();
    let credentials = home.0.path().join("credentials");
    std::fs::create_dir(&credentials).unwrap();
    std::fs::write(credentials.join("belay_token"), "").unwrap();
    let token_file = format!("gateway.token_file={}", file.display());
    let (file, credentials) = (file.to_str().unwrap(), credentials.to_str().unwrap());
    for (set, env, named) in [
        (Some(&*token_file), None, file),
        (None, Some(("BELAY_TOKEN", "")), "BELAY_TOKEN"),
        (None, Some(("BELAY_OPERATOR_TOKEN", "  ")), "BELAY_OPERATOR_TOKEN"),
        (Some("gateway.token_env=MY_TOKEN"), None, "MY_TOKEN"),
        (None, Some(("CREDENTIALS_DIRECTORY", credentials)), "belay_token"),
    ] {
        for command in ["run", "check"] {
            let sets = set.map(|set| ["--set", set]);
            let args = [&[command][..], &HERE, sets.as_ref().map_or(&[], |sets| &sets[..])].concat();
            let output = home.command(&args).envs(env).output().unwrap();
            let said = stderr(&output);
            assert_eq!(output.status.code(), Some(78), "{command} {set:?} {env:?}: {said}");
            assert!(said.contains(named) && said.contains("; "), "{command}: {said}");
        }
    }
}
