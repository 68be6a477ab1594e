//! The open store of a daemon, or of a command that has one in memory.

mod node;
mod shared_workspace;
mod waiting;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use belay_agent::StorePorts;
use belay_gateway::{DatabaseLoss, LINK_KEY_BYTES, SignedLinks};
use belay_program::causes::words;
use belay_program::clock::SystemClock;
use belay_program::environment::Environment;
use belay_program::exit::{Exit, Failure};
use belay_program::paths::Paths;
use belay_protocol::{
    BootId, Clock, Cursors, EndReader, MoveStore, NoteVectors, OutputStore, PinStore, SecretVault, SignInStore,
    SpendReader, UploadStore,
};
use belay_settings::{Settings, store_place};
use belay_store::{
    Blobs, ClusterOptions, FileSizes, KeyError, OpenError, PostgresUrl, SealedVault, SqlOutputs, SqlStore,
    StoreOptions, StoreStats, StoreUrl, VaultKey,
};
use metrics::histogram;
use secrecy::{ExposeSecret, SecretBox};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use zeroize::Zeroizing;

pub use self::node::Node;
use self::waiting::{Attempt, attempted};
pub use self::waiting::{DatabaseWait, Lost, NotStarted, until_ended};
use crate::opening::{blocking, message_files, opened, postgres_limits, refuse_store};
use crate::process_needs::IsMember;

/// The name of the systemd credential with the key of the vault.
const KEY_CREDENTIAL: &str = "belay-secret-key";

/// Longest wait for the release of the node's work. What is not released is free when the lease ends.
const RELEASE_LIMIT: Duration = Duration::from_secs(5);

/// The same, and the longest wait for the close of the connections, where nothing waits to be written.
const CLOSE_LIMIT: Duration = Duration::from_secs(1);

/// Seconds that commits took until they were on the disk. A histogram.
pub const COMMIT_DURATION: &str = "belay_store_commit_duration_seconds";

/// Records a commit of the store.
fn committed(took: Duration) {
    histogram!(COMMIT_DURATION).record(took);
}

/// The stores that are tables in a cluster, and files of a daemon that is alone.
pub struct Shared {
    /// Long outputs of tools.
    pub outputs: Arc<dyn OutputStore>,
    /// The approved descriptions of MCP tools.
    pub pins: Arc<dyn PinStore>,
    /// Whether this node may act for its runs.
    pub membership: IsMember,
}

/// The open store.
pub struct Store {
    kept: SqlStore,
    vault: Arc<dyn SecretVault>,
    blobs: Blobs,
    link_key: SecretBox<[u8; LINK_KEY_BYTES]>,
    /// `None`: the daemon uses its database alone.
    node: Option<Node>,
}

impl Store {
    /// Opens the store. Waits for a PostgreSQL server that is away. After `stop` it ends within a second or two.
    ///
    /// # Errors
    /// Another daemon uses it (75), another version wrote it (78), the disk fails, or the server rejects the login (69);
    /// `stop` is cancelled. Nothing is open then, and no node is registered.
    pub async fn open(
        settings: &Settings,
        paths: &Paths,
        env: &Environment,
        wait: &DatabaseWait,
        stop: &CancellationToken,
    ) -> Result<Self, NotStarted> {
        match store_place(settings, paths, env)? {
            StoreUrl::Memory => Ok(Self::memory()?),
            StoreUrl::Sqlite(path) => {
                let files = message_files(&path);
                let options = Self::options();
                let kept = opened(move || SqlStore::open(&path, options)).await?;
                Ok(Self::with_key(kept, files, paths, env).await?)
            }
            StoreUrl::Postgres(url) if settings.cluster.enabled => {
                let attempt = || Self::open_shared(url.clone(), settings, paths, env, stop);
                wait.until_database(stop, attempt).await
            }
            StoreUrl::Postgres(url) => {
                let limits = postgres_limits(settings);
                let attempt = async || {
                    let (url, options) = (url.clone(), Self::options());
                    let kept = connected(move || SqlStore::connect(&url, limits, options), stop).await?;
                    Ok(Self::with_key(kept, message_files(&paths.data.join("belay.db")), paths, env).await?)
                };
                wait.until_database(stop, attempt).await
            }
        }
    }

    /// Opens a database that other nodes use too, and registers this node.
    async fn open_shared(
        url: PostgresUrl,
        settings: &Settings,
        paths: &Paths,
        env: &Environment,
        stop: &CancellationToken,
    ) -> Result<Self, Attempt> {
        // A registration whose outcome is unknown is one of another start: each attempt has an id of its own.
        let (limits, options, boot) = (postgres_limits(settings), Self::options(), BootId::new());
        let (address, cluster) = (url.clone(), ClusterOptions { boot });
        let kept = connected(move || SqlStore::connect_cluster(&address, limits, options, cluster), stop).await?;
        let registered = async {
            let key = vault_key(paths, env).await?;
            kept.check_key(&key).await.map_err(|error| refuse_key(&error))?;
            Ok((key, Node::register(url, kept.clone(), boot, settings, stop).await?))
        };
        match registered.await {
            Ok((key, node)) => {
                let blobs = Blobs::in_table(kept.clone(), node.clock());
                Ok(Self { node: Some(node), ..Self::of(kept, key, blobs) })
            }
            Err(ended) => {
                close_soon(&kept).await;
                Err(ended)
            }
        }
    }

    fn options() -> StoreOptions {
        StoreOptions { on_commit: Some(committed), ..StoreOptions::default() }
    }

    /// The opened store with the key of the vault. `files`: the directory of the files of messages.
    async fn with_key(kept: SqlStore, files: PathBuf, paths: &Paths, env: &Environment) -> Result<Self, Failure> {
        match vault_key(paths, env).await {
            Ok(key) => Ok(Self::of(kept, key, Blobs::in_directory(files))),
            Err(failure) => {
                kept.close().await;
                Err(failure)
            }
        }
    }

    /// Opens a store in memory.
    ///
    /// # Errors
    /// The system has no memory or no randomness.
    pub fn memory() -> Result<Self, Failure> {
        let store = SqlStore::in_memory().map_err(|error| refuse_store(&error))?;
        let key = VaultKey::generate().map_err(|error| refuse_key(&error))?;
        Ok(Self::of(store, key, Blobs::in_memory()))
    }

    fn of(kept: SqlStore, key: VaultKey, blobs: Blobs) -> Self {
        let link_key = SecretBox::new(Box::new(*key.for_links()));
        let vault = Arc::new(SealedVault::new(Arc::new(kept.clone()), key));
        Self { kept, vault, blobs, link_key, node: None }
    }

    /// Makes and checks links to sent files. The links stay valid over restarts.
    pub fn links(&self, hours: u32, clock: Arc<dyn Clock>) -> SignedLinks {
        SignedLinks::new(SecretBox::new(Box::new(*self.link_key.expose_secret())), hours, clock)
    }

    /// The rows of uploaded files.
    pub fn uploads(&self) -> Arc<dyn UploadStore> {
        Arc::new(self.kept.clone())
    }

    /// The conversations that have another address now.
    pub fn moves(&self) -> Arc<dyn MoveStore> {
        Arc::new(self.kept.clone())
    }

    /// How far channels have read their sources.
    pub fn cursors(&self) -> Arc<dyn Cursors> {
        Arc::new(self.kept.clone())
    }

    /// What model calls have cost.
    pub fn spending(&self) -> Arc<dyn SpendReader> {
        Arc::new(self.kept.clone())
    }

    /// The sign-ins of browsers.
    pub fn sign_ins(&self) -> Arc<dyn SignInStore> {
        Arc::new(self.kept.clone())
    }

    /// The counts of ended runs.
    pub fn ends(&self) -> Arc<dyn EndReader> {
        Arc::new(self.kept.clone())
    }

    /// The stores that the nodes of a cluster share; `None`: the daemon uses its database alone.
    pub fn shared(&self, settings: &Settings) -> Option<Shared> {
        let node = self.node.as_ref()?;
        let outputs = SqlOutputs::new(self.kept.clone(), node.clock(), settings.tools.outputs.max_total_bytes);
        Some(Shared { outputs: Arc::new(outputs), pins: Arc::new(self.kept.clone()), membership: node.membership() })
    }

    /// The vectors of notes.
    pub fn note_vectors(&self) -> Arc<dyn NoteVectors> {
        Arc::new(self.kept.clone())
    }

    /// The ports that the agent uses.
    pub fn ports(&self) -> StorePorts {
        StorePorts::of(Arc::new(self.kept.clone()), self.vault.clone(), Arc::new(self.blobs.clone()))
    }

    /// A function that reads the figures of the store and the sizes of its files, also after it is closed.
    pub fn stats(&self) -> impl Fn() -> (StoreStats, FileSizes) + Send + Sync + 'static {
        let kept = self.kept.clone();
        move || (kept.stats(), kept.file_sizes())
    }

    /// This daemon among the nodes of a cluster; `None`: it uses its database alone.
    pub fn node(&self) -> Option<&Node> {
        self.node.as_ref()
    }

    /// Waits until this daemon may not begin anything any more: the database has lost what the daemon has in memory, or this
    /// node of a cluster has lost its lease.
    pub fn lost(&self) -> impl Future<Output = Lost> + Send + use<> {
        let (node, history) = (self.node.as_ref().map(Node::lost), self.kept.history_lost());
        async move {
            let lease = async {
                match node {
                    Some(lost) => lost.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased; // a node with a lost history loses its lease too
                () = history => Lost::History,
                () = lease => Lost::Lease,
            }
        }
    }

    /// The losses of committed transactions that the database has had lately, in words.
    pub fn losses(&self) -> Vec<DatabaseLoss> {
        let words = |loss: &belay_store::DatabaseLoss| {
            let since = loss.kept_until.map_or_else(String::new, |date| format!(" after {}", date.to_rfc3339()));
            let detail = format!(
                "The database has lost transactions that were committed{since}, as a standby that was behind does. Messages \
                 that were acknowledged since are lost. Replies and stops since may come again, and so may effects of tools."
            );
            let belay_store::DatabaseLoss { noticed_at, kept_until, transactions } = *loss;
            DatabaseLoss { noticed_at, kept_until, transactions, detail }
        };
        self.kept.losses().iter().map(words).collect()
    }

    /// The id of this start.
    pub fn boot(&self) -> BootId {
        self.node.as_ref().map_or_else(BootId::new, Node::boot)
    }

    /// The clock for dates and times.
    pub fn clock(&self) -> Arc<dyn Clock> {
        self.node.as_ref().map_or_else(|| Arc::new(SystemClock) as Arc<dyn Clock>, Node::clock)
    }

    /// Writes pending data, releases the work of this node, and closes the store. No process of a run lives any more.
    pub async fn close(self) {
        if let Some(node) = self.node {
            node.release(RELEASE_LIMIT).await;
        }
        self.kept.close().await;
    }

    /// The same where nothing waits to be written: a signal has ended the start, or the daemon is [`Lost`]. Takes two
    /// seconds at most, also if the database does not answer.
    pub async fn abandon(self) {
        if let Some(node) = self.node {
            node.release(CLOSE_LIMIT).await;
        }
        close_soon(&self.kept).await;
    }
}

/// The key that seals secrets: a credential of the service manager, or a file beside the store.
async fn vault_key(paths: &Paths, env: &Environment) -> Result<VaultKey, Failure> {
    let credential = env.directory("CREDENTIALS_DIRECTORY").map(|dir| dir.join(KEY_CREDENTIAL));
    let credential = credential.filter(|path| path.exists());
    let file = paths.data.join("secret.key");
    let read = tokio::task::spawn_blocking(move || match credential {
        // The service manager decides who may read it.
        Some(path) => std::fs::read(&path)
            .map(Zeroizing::new)
            .map_err(|source| KeyError::Io { path, source })
            .and_then(|bytes| VaultKey::from_bytes(&bytes)),
        None => VaultKey::from_file(&file),
    });
    match read.await {
        Ok(key) => key.map_err(|error| refuse_key(&error)),
        Err(broken) => Err(Failure::new(Exit::Internal, format!("the key of the vault could not be read: {broken}"))),
    }
}

fn refuse_key(error: &KeyError) -> Failure {
    let exit = match error {
        KeyError::Io { .. } | KeyError::NoRandomness => Exit::OutOfReach,
        _ => Exit::Refused,
    };
    Failure::new(exit, words(error))
}

/// Closes a store in which nothing waits to be written. A connection that hangs ends with the process.
async fn close_soon(kept: &SqlStore) {
    if timeout(CLOSE_LIMIT, kept.close()).await.is_err() {
        tracing::warn!("the connections to the database could not be closed in time");
    }
}

/// Connects to a server. After `stop` nobody waits for an attempt that hangs.
async fn connected(
    connect: impl FnOnce() -> Result<SqlStore, OpenError> + Send + 'static,
    stop: &CancellationToken,
) -> Result<SqlStore, Attempt> {
    let opened = stop.run_until_cancelled(blocking(connect)).await.ok_or(NotStarted::Stopped)?;
    opened?.map_err(|error| attempted(&error))
}
