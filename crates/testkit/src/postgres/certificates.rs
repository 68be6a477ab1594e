//! Certificates for a server that speaks TLS, made by `openssl`.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Result;

use super::{
    account::{Account, run},
    programs::Programs,
};

/// Makes a root, and a key and a certificate of that root for 127.0.0.1 and localhost in the data directory. Returns the root.
pub(super) fn make(programs: &Programs, account: Account, folder: &Path) -> Result<PathBuf> {
    let openssl = || account.command(&programs.openssl, folder);
    self_signed(&mut openssl(), "the root of this test", "root")?;
    // A certificate authority may not be the server itself: rustls refuses that.
    let (request, extensions) = ("subjectAltName=DNS:localhost,IP:127.0.0.1", "basicConstraints=critical,CA:FALSE");
    run(openssl().args(NEW_KEY).args(["-subj", "/CN=127.0.0.1", "-addext", request, "-addext", extensions]).args([
        "-keyout",
        "data/server.key",
        "-out",
        "request.pem",
    ]))?;
    run(openssl().args(["x509", "-req", "-days", "30", "-copy_extensions", "copy", "-in", "request.pem"]).args([
        "-CA",
        "root.pem",
        "-CAkey",
        "root.key",
        "-CAcreateserial",
        "-out",
        "data/server.crt",
    ]))?;
    Ok(folder.join("root.pem"))
}

/// Makes a root that has signed nothing.
pub(super) fn stranger(programs: &Programs, account: Account, folder: &Path) -> Result<PathBuf> {
    self_signed(&mut account.command(&programs.openssl, folder), "the root of somebody else", "stranger")?;
    Ok(folder.join("stranger.pem"))
}

const NEW_KEY: [&str; 6] = ["req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];

fn self_signed(openssl: &mut Command, name: &str, file: &str) -> Result<()> {
    openssl.args(NEW_KEY).args(["-x509", "-days", "30", "-subj", &format!("/CN={name}")]);
    run(openssl.args(["-keyout", &format!("{file}.key"), "-out", &format!("{file}.pem")])).map(drop)
}
