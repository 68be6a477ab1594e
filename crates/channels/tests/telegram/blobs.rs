//! A blob store that has the same bytes under every name.

use async_trait::async_trait;
use axum::body::Bytes;
use belay_protocol::{BlobDigest, BlobStore, BlobWriter, StoreError, UnixMillis};

pub(crate) struct OneBlob(pub(crate) &'static [u8]);

#[async_trait]
impl BlobStore for OneBlob {
    fn digest(&self, _bytes: &[u8]) -> Result<BlobDigest, StoreError> {
        Ok("0".repeat(64).parse().unwrap())
    }

    async fn begin(&self) -> Result<Box<dyn BlobWriter>, StoreError> {
        Err(StoreError::Unavailable("read only".into()))
    }

    async fn read(&self, _digest: &BlobDigest) -> Result<Option<Bytes>, StoreError> {
        Ok(Some(Bytes::from_static(self.0)))
    }

    async fn older_than(&self, _before: UnixMillis) -> Result<Vec<BlobDigest>, StoreError> {
        Ok(Vec::new())
    }

    async fn remove(&self, _digests: &[BlobDigest], _before: UnixMillis) -> Result<u64, StoreError> {
        Ok(0)
    }
}
