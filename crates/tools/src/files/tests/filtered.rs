//! The file tools in a process where a system call filter refuses `openat2`, as under some service managers and
//! containers.

use std::collections::BTreeMap;

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};

use super::*;

/// Makes `openat2` fail with this error number, in this thread and the threads that it starts.
fn refuse_openat2(errno: i32) {
    let rules = BTreeMap::from([(libc::SYS_openat2, Vec::new())]);
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let filter =
        SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(errno.cast_unsigned()), arch).unwrap();
    apply_filter(&BpfProgram::try_from(filter).unwrap()).unwrap();
}

/// Not `#[tokio::test]`: the runtime must start after the filter is set, so that the filter applies to its threads.
#[test]
fn where_a_filter_refuses_openat2_every_file_tool_works_and_stays_inside() {
    for errno in [libc::ENOSYS, libc::EPERM, libc::EACCES, libc::EINVAL, libc::EOPNOTSUPP, libc::EKEYREJECTED] {
        let behind_the_filter = move || {
            refuse_openat2(errno);
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(use_everything());
        };
        std::thread::spawn(behind_the_filter).join().unwrap();
    }
}

async fn use_everything() {
    let fixture = fixture();
    symlink("note.txt", fixture.inside("link")).unwrap();
    symlink("../outside", fixture.inside("out")).unwrap();
    assert!(fixture.read("link").await.unwrap().contains("three"));
    assert!(fixture.list("sub").await.unwrap().contains("inner.txt"));
    assert!(call(&fixture.search, json!({"pattern": "inner"})).await.unwrap().contains("sub/inner.txt"));
    let written = json!({"path": "new/deep/file.txt", "content": "old", "create_dirs": true});
    call(&fixture.write, written).await.unwrap();
    call(&fixture.edit, json!({"path": "new/deep/file.txt", "old": "old", "new": "fresh"})).await.unwrap();
    assert!(fixture.read("new/deep/file.txt").await.unwrap().contains("fresh"));
    for path in ["out/secret.txt", "../outside/secret.txt", "sub/../../outside/secret.txt"] {
        let refused = failure(fixture.read(path).await);
        assert!(refused.contains("leads out of the workspace"), "{path}: {refused}");
    }
    failure(call(&fixture.write, json!({"path": "out/new", "content": "x"})).await);
    assert!(!fixture.dir.path().join("outside/new").exists());
}
