//! The sign-ins of browsers, in memory.

use std::sync::Mutex;

use async_trait::async_trait;
use belay_protocol::{SignIn, SignInStore, StoreError, UnixMillis};

/// Keeps sign-ins and links without a limit.
#[derive(Default)]
pub(crate) struct FakeSignIns(Mutex<Vec<SignIn>>, Mutex<Vec<(String, UnixMillis)>>);

#[async_trait]
impl SignInStore for FakeSignIns {
    async fn put_sign_in(&self, sign_in: SignIn) -> Result<(), StoreError> {
        self.0.lock().unwrap().push(sign_in);
        Ok(())
    }

    async fn sign_in(&self, digest: String) -> Result<Option<SignIn>, StoreError> {
        Ok(self.0.lock().unwrap().iter().find(|sign_in| sign_in.digest == digest).cloned())
    }

    async fn use_sign_in(&self, id: String, used_at: UnixMillis, expires_at: UnixMillis) -> Result<(), StoreError> {
        for sign_in in self.0.lock().unwrap().iter_mut().filter(|sign_in| sign_in.id == id) {
            (sign_in.used_at, sign_in.expires_at) = (used_at, expires_at);
        }
        Ok(())
    }

    async fn sign_ins(&self) -> Result<Vec<SignIn>, StoreError> {
        Ok(self.0.lock().unwrap().iter().rev().cloned().collect())
    }

    async fn end_sign_ins(&self, ids: Vec<String>) -> Result<usize, StoreError> {
        let mut all = self.0.lock().unwrap();
        let before = all.len();
        all.retain(|sign_in| !ids.contains(&sign_in.id));
        Ok(before - all.len())
    }

    async fn put_link(&self, digest: String, _now: UnixMillis, expires_at: UnixMillis) -> Result<(), StoreError> {
        self.1.lock().unwrap().push((digest, expires_at));
        Ok(())
    }

    async fn take_link(&self, digest: String, now: UnixMillis) -> Result<bool, StoreError> {
        let mut links = self.1.lock().unwrap();
        let Some(at) = links.iter().position(|(known, _)| *known == digest) else { return Ok(false) };
        Ok(links.remove(at).1 > now)
    }

    async fn drop_links(&self) -> Result<(), StoreError> {
        self.1.lock().unwrap().clear();
        Ok(())
    }
}
