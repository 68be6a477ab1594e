//! Files of the workspace that a run sends: the port [`OutgoingFiles`].

use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use aws_lc_rs::digest::{Context, SHA256};
use belay_protocol::{BlobDigest, BlobStore, OutboundFile, OutgoingFiles, StoreError, ToolFailure};
use futures_util::StreamExt;
use tokio::fs::File;
use tokio_util::io::ReaderStream;

use crate::attachments::{cleaned, media_type};
use crate::error::ToolsError;
use crate::files::blocking;
use crate::workspace::{Workspace, shown};

/// Length of a piece that is read at once, in bytes.
const PIECE_BYTES: usize = 64 * 1024;
/// Number of bytes at the beginning of a file that its type is found by: one piece.
const HEAD_BYTES: usize = PIECE_BYTES;

/// Reads and stores files of the workspace that are sent.
pub struct WorkspaceFiles {
    workspace: Arc<Workspace>,
    blobs: Arc<dyn BlobStore>,
    /// Maximum size of a file, in bytes.
    max_bytes: u64,
}

impl WorkspaceFiles {
    /// Opens the workspace at this path. `max_bytes`: the maximum size of a file.
    ///
    /// # Errors
    /// [`ToolsError::Workspace`] when it cannot be created or opened.
    pub fn open(path: &Path, blobs: Arc<dyn BlobStore>, max_bytes: u64) -> Result<Self, ToolsError> {
        Ok(Self { workspace: Arc::new(Workspace::open(path)?), blobs, max_bytes })
    }

    /// Opens a file within the limits; also returns the limit for its size.
    async fn opened(&self, path: &str, max_bytes: u64) -> Result<(std::fs::File, u64), ToolFailure> {
        let (workspace, limit) = (self.workspace.clone(), self.max_bytes.min(max_bytes));
        let path = path.to_owned();
        blocking(move || {
            let (file, size) = workspace.file(&path)?;
            match size {
                0 => Err(ToolFailure::failed(format!("{path:?} is empty (0 bytes), so there is nothing to send."))),
                size if size > limit => Err(too_large(&path, limit)),
                _ => Ok((file, limit)),
            }
        })
        .await
    }

    /// The description of a file with this beginning.
    fn described(&self, path: &str, head: &[u8], bytes: u64, digest: BlobDigest) -> OutboundFile {
        let name = cleaned(path);
        let media_type = media_type(head, &name).to_owned();
        let absolute = self.workspace.path().join(path);
        OutboundFile { name, media_type, bytes, digest, path: shown(absolute.as_os_str().as_encoded_bytes()) }
    }
}

#[async_trait]
impl OutgoingFiles for WorkspaceFiles {
    async fn describe(&self, path: &str, max_bytes: u64) -> Result<OutboundFile, ToolFailure> {
        let (mut file, limit) = self.opened(path, max_bytes).await?;
        let named = path.to_owned();
        let (head, bytes, digest) = blocking(move || {
            let (mut hasher, mut head, mut bytes) = (Context::new(&SHA256), Vec::new(), 0u64);
            let mut piece = vec![0; PIECE_BYTES];
            loop {
                let read = file.read(&mut piece).map_err(|error| unreadable(&named, &error))?;
                if read == 0 {
                    break;
                }
                bytes = grown(&named, bytes, read, limit)?;
                hasher.update(&piece[..read]);
                let missing = HEAD_BYTES.saturating_sub(head.len()).min(read);
                head.extend_from_slice(&piece[..missing]);
            }
            let hex: String = hasher.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
            let digest = hex.parse().map_err(|error: &str| ToolFailure::failed(error))?;
            Ok((head, bytes, digest))
        })
        .await?;
        Ok(self.described(path, &head, bytes, digest))
    }

    async fn store(&self, path: &str, max_bytes: u64) -> Result<OutboundFile, ToolFailure> {
        let (file, limit) = self.opened(path, max_bytes).await?;
        let mut pieces = ReaderStream::with_capacity(File::from_std(file), PIECE_BYTES);
        let mut writer = self.blobs.begin().await.map_err(|error| unstored(&error))?;
        let (mut head, mut bytes) = (Vec::new(), 0u64);
        while let Some(piece) = pieces.next().await {
            let piece = piece.map_err(|error| unreadable(path, &error))?;
            bytes = grown(path, bytes, piece.len(), limit)?;
            let missing = HEAD_BYTES.saturating_sub(head.len()).min(piece.len());
            head.extend_from_slice(&piece[..missing]);
            writer.write(&piece).await.map_err(|error| unstored(&error))?;
        }
        let digest = writer.finish().await.map_err(|error| unstored(&error))?;
        Ok(self.described(path, &head, bytes, digest))
    }
}

/// The number of bytes after another piece, within the limit: a file may grow while it is read.
fn grown(path: &str, bytes: u64, piece: usize, limit: u64) -> Result<u64, ToolFailure> {
    let bytes = bytes.saturating_add(piece as u64);
    if bytes > limit { Err(too_large(path, limit)) } else { Ok(bytes) }
}

fn too_large(path: &str, limit: u64) -> ToolFailure {
    ToolFailure::failed(format!("{path:?} is larger than {limit} bytes, the most that can be sent there."))
}

fn unreadable(path: &str, error: &std::io::Error) -> ToolFailure {
    ToolFailure::failed(format!("{path:?} could not be read: {error}."))
}

fn unstored(error: &StoreError) -> ToolFailure {
    tracing::error!(%error, "a file that is sent could not be stored");
    ToolFailure::failed("The file cannot be stored at the moment, so it was not sent. Try again later.")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::unix::fs::symlink;

    use crate::testing::MemoryBlobs;

    use super::*;

    fn fixture() -> (tempfile::TempDir, WorkspaceFiles, Arc<MemoryBlobs>) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("workspace");
        let blobs = Arc::new(MemoryBlobs::default());
        let files = WorkspaceFiles::open(&root, blobs.clone(), 100_000).unwrap();
        std::fs::write(dir.path().join("secret"), "outside").unwrap();
        std::fs::write(root.join("a.txt"), "hello").unwrap();
        (dir, files, blobs)
    }

    #[tokio::test]
    async fn a_file_is_described_and_stored_with_the_same_facts() {
        let (dir, files, blobs) = fixture();
        let root = dir.path().join("workspace");
        std::fs::create_dir(root.join("out")).unwrap();
        std::fs::write(root.join("out/page.png"), b"<!doctype html><p>x").unwrap();
        // A character of three bytes lies over the end of the beginning.
        std::fs::write(root.join("long.md"), "€".repeat(30_000)).unwrap();
        for (path, name, media_type) in [
            ("a.txt", "a.txt", "text/plain"),
            ("out/page.png", "page.png", "text/html"),
            ("long.md", "long.md", "text/markdown"),
        ] {
            let described = files.describe(path, u64::MAX).await.unwrap();
            assert_eq!((described.name.as_str(), described.media_type.as_str()), (name, media_type));
            assert_eq!(described.path, root.join(path).to_str().unwrap());
            assert!(blobs.read(&described.digest).await.unwrap().is_none(), "nothing is stored");
            assert_eq!(files.store(path, u64::MAX).await.unwrap(), described);
            let stored = blobs.read(&described.digest).await.unwrap().unwrap();
            assert_eq!(stored, std::fs::read(root.join(path)).unwrap());
            assert_eq!(stored.len() as u64, described.bytes);
        }
    }

    #[tokio::test]
    async fn a_file_outside_or_of_a_wrong_size_is_not_sent() {
        let (dir, files, blobs) = fixture();
        let root = dir.path().join("workspace");
        symlink(dir.path().join("secret"), root.join("link")).unwrap();
        symlink("..", root.join("up")).unwrap();
        std::fs::write(root.join("empty"), "").unwrap();
        std::fs::File::create(root.join("huge")).unwrap().set_len(100_001).unwrap();
        for (path, why) in [
            ("../secret", "leads out of the workspace"),
            ("link", "leads out of the workspace"),
            ("up/secret", "leads out of the workspace"),
            ("/etc/passwd", "is absolute"),
            ("empty", "0 bytes"),
            ("huge", "larger than 100000 bytes"),
            (".", "is a directory"),
            ("nothing", "There is no"),
        ] {
            for failed in [files.describe(path, u64::MAX).await, files.store(path, u64::MAX).await] {
                let Err(ToolFailure::Failed(text)) = failed else { panic!("{path}: {failed:?}") };
                assert!(text.contains(why), "{path}: {text}");
            }
        }
        let Err(ToolFailure::Failed(text)) = files.describe("a.txt", 4).await else { panic!("it is larger") };
        assert!(text.contains("larger than 4 bytes"), "{text}");
        assert!(blobs.is_empty());
    }
}
