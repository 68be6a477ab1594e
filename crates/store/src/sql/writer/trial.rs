//! The writer over a real database of each engine, and jobs that act as a test tells them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use belay_protocol::{BootId, EventKind, NewEvent, SessionKey, UnixMillis};
use belay_testkit::postgres::{PostgresServer, Programs, TestDatabase};
use belay_testkit::proxy::TcpProxy;
use tempfile::TempDir;

use super::*;
use crate::queue::{Queue, queue};
use crate::sql::pg::{PgSession, PgSettings, Role};
use crate::sql::{PostgresLimits, tx};
use crate::value::params;
use crate::{StoreUrl, parse_url};

/// What a job does when it is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// Writes its row and its events.
    Write,
    /// The same; the row makes the commit fail.
    WriteOrphan,
    /// Refuses before it writes.
    Refuse,
    /// Writes its row and its events, then refuses.
    WriteAndRefuse,
    /// Writes its row and its events, then fails as with a broken database.
    WriteAndFail,
    /// Writes a row that the database rejects.
    Reject,
    /// Writes its row and its events, then finds that a lock is not free.
    WriteAndContend,
    /// Writes, takes the savepoint of its repetition away, then fails: the savepoint cannot be rolled back.
    LoseSavepoint,
    /// Ends the transaction under all its jobs: SQLite does so by itself on a full disk, and a lost connection does.
    EndTransaction,
}

/// A job: one act for each execution, the last one for all further ones.
#[derive(Clone, Debug)]
pub(super) struct Script {
    pub(super) durability: Durability,
    pub(super) acts: Vec<Act>,
    /// The number of its events.
    pub(super) events: usize,
    /// The subject that it locks before it writes, or after that.
    pub(super) subject: Option<(String, bool)>,
}

impl Script {
    pub(super) fn new(durability: Durability, acts: &[Act]) -> Self {
        Self { durability, acts: acts.to_vec(), events: 1, subject: None }
    }
}

/// A sent job. Jobs have numbers in the order in which they were sent.
pub(super) struct Sent {
    number: i64,
    script: Script,
    executed: Arc<AtomicUsize>,
    answer: oneshot::Receiver<Result<(), StoreError>>,
}

/// The answer of a job, and what became of it.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) number: i64,
    pub(super) script: Script,
    executed: Arc<AtomicUsize>,
    pub(super) answer: Result<(), StoreError>,
}

impl Sent {
    /// Waits for the answer. Fails if there is none.
    pub(super) fn answered(self) -> Answered {
        let Self { number, script, executed, answer } = self;
        let answer = answer.blocking_recv().unwrap_or_else(|_| panic!("job {number} ({script:?}) got no answer"));
        Answered { number, script, executed, answer }
    }
}

impl Script {
    fn act(&self, at: usize) -> Act {
        self.acts[at.min(self.acts.len() - 1)]
    }
}

/// The numbers of the jobs whose rows, and whose events, are in the database, in order.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) rows: Vec<i64>,
    pub(super) events: Vec<i64>,
}

enum Database {
    File(TempDir),
    Server { database: Arc<TestDatabase<'static>>, proxy: TcpProxy },
}

/// What a job executes.
pub(super) type Body = dyn Fn(&mut Tx<'_>, usize) -> Done<()> + Send;

/// A running writer.
pub(super) struct Trial {
    queue: Queue<Box<dyn Job>>,
    thread: std::thread::JoinHandle<()>,
    database: Database,
    sent: i64,
    /// The deadlocks that the connection has counted.
    pub(super) deadlocks: Arc<AtomicU64>,
}

const TABLES: &str = "CREATE TABLE trial_parents (id INTEGER PRIMARY KEY);
     CREATE TABLE trial (id ROW_NUMBER, n INTEGER NOT NULL, parent INTEGER REFERENCES trial_parents DEFERRABLE INITIALLY DEFERRED);";

/// Long enough for a server beside busy tests.
const LIMIT: Duration = Duration::from_secs(60);

impl Trial {
    pub(super) fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("belay.db");
        let (conn, _) = crate::sqlite::open_writer(&path, false, crate::unfinished::Unfinished::Refuse).unwrap();
        conn.execute_batch(&TABLES.replace("ROW_NUMBER", "INTEGER PRIMARY KEY")).unwrap();
        Self::over(Connection::Sqlite(conn.into()), Database::File(folder))
    }

    /// `None`: there is no PostgreSQL here.
    pub(super) fn postgres() -> Option<Self> {
        Self::writers().map(|[trial]| trial)
    }

    /// Writers over one database. `None`: there is no PostgreSQL here.
    pub(super) fn writers<const N: usize>() -> Option<[Self; N]> {
        let server = PostgresServer::shared(&Programs::for_test().unwrap()?).unwrap();
        let database = Arc::new(TestDatabase::new(server).unwrap());
        let trials = [(); N].map(|()| Self::on(server, database.clone()));
        // After the last start, which refuses tables that it does not know.
        let tables = TABLES.replace("ROW_NUMBER", "BIGSERIAL PRIMARY KEY");
        database.sql(&format!("SET search_path = belay; {tables}")).unwrap();
        Some(trials)
    }

    fn on(server: &PostgresServer, database: Arc<TestDatabase<'static>>) -> Self {
        let proxy = TcpProxy::start(server.port()).unwrap();
        let through = database.url().replace(&format!(":{}/", server.port()), &format!(":{}/", proxy.port()));
        let Ok(StoreUrl::Postgres(url)) = parse_url(&format!("{through}?sslmode=disable")) else { panic!("{through}") };
        let limits = PostgresLimits { connections: 1, statement: LIMIT, lock: LIMIT };
        let settings = Arc::new(PgSettings::new(url, limits, Some(BootId::new())));
        let session = PgSession::open(settings, Role::Writer).unwrap();
        Self::over(Connection::Postgres(Box::new(session)), Database::Server { database, proxy })
    }

    /// One for each engine.
    pub(super) fn each() -> impl Iterator<Item = Self> {
        std::iter::once_with(|| Some(Self::sqlite())).chain(std::iter::once_with(Self::postgres)).flatten()
    }

    fn over(conn: Connection, database: Database) -> Self {
        let ((queue, items), deadlocks) = (queue(64, 1), conn.deadlocks());
        let writer = Writer::new(conn, items, Arc::new(Signals::new(Seq::default())), Arc::default(), None);
        Self { queue, thread: std::thread::spawn(move || writer.run()), database, sent: 0, deadlocks }
    }

    /// The proxy before the server.
    pub(super) fn proxy(&self) -> Option<&TcpProxy> {
        match &self.database {
            Database::File(_) => None,
            Database::Server { proxy, .. } => Some(proxy),
        }
    }

    /// Sends jobs that share a transaction, as far as none of them ends it.
    pub(super) fn send(&mut self, scripts: impl IntoIterator<Item = Script>) -> Vec<Sent> {
        let open = self.gate();
        let sent = scripts.into_iter().map(|script| self.send_one(script)).collect();
        // The gate itself is refused if jobs that were promised before fail again. On a slow machine their commit comes first.
        let _ = open.send(());
        sent
    }

    /// Keeps the writer waiting until all jobs of a batch are queued.
    fn gate(&self) -> mpsc::SyncSender<()> {
        let (open, opened) = mpsc::sync_channel(1);
        // The writer waits in this job until they are queued. It refuses itself, and so is no part of the transaction.
        let (gate, _) = job::<(), _>(Durability::Relaxed, move |_| {
            let () = opened.recv().unwrap_or_default();
            Err(StoreError::NotFound("the gate".into()).into())
        });
        self.queue.try_send(gate);
        open
    }

    /// Sends jobs that share a transaction, and are more than a script. Each gets the number of its execution, from 0.
    pub(super) fn send_jobs(&self, jobs: Vec<Box<Body>>) -> Vec<oneshot::Receiver<Result<(), StoreError>>> {
        self.send_with(jobs.into_iter().map(|body| (Durability::Committed, body)).collect())
    }

    /// The same, each with its durability.
    pub(super) fn send_with(
        &self,
        jobs: Vec<(Durability, Box<Body>)>,
    ) -> Vec<oneshot::Receiver<Result<(), StoreError>>> {
        let open = self.gate();
        let answers = jobs.into_iter().map(|(durability, body)| {
            let count = AtomicUsize::new(0);
            let (job, answer) = job(durability, move |tx| body(tx, count.fetch_add(1, Ordering::SeqCst)));
            self.queue.try_send(job);
            answer
        });
        let answers = answers.collect();
        open.send(()).unwrap();
        answers
    }

    fn send_one(&mut self, script: Script) -> Sent {
        self.sent += 1;
        let (number, executed) = (self.sent, Arc::new(AtomicUsize::new(0)));
        let (acts, count) = (script.clone(), executed.clone());
        let (job, answer) = job(script.durability, move |tx| {
            if let Some((subject, false)) = &acts.subject {
                tx.exclusive(subject)?;
            }
            let act = acts.act(count.fetch_add(1, Ordering::SeqCst));
            perform(tx, act, number, acts.events)?;
            match &acts.subject {
                Some((subject, true)) => tx.exclusive(subject),
                _ => Ok(()),
            }
        });
        self.queue.try_send(job);
        Sent { number, script, executed, answer }
    }

    /// Repeats an empty job until it is committed, and with it all that is promised.
    pub(super) fn settle(&self) {
        let until = Instant::now() + LIMIT;
        loop {
            let (job, answer) = job(Durability::Committed, |tx| tx.exec("DELETE FROM trial WHERE n < 0", []));
            self.queue.try_send(job);
            match answer.blocking_recv().unwrap() {
                Ok(_) => return,
                Err(error) => assert!(Instant::now() < until, "{error}"),
            }
        }
    }

    /// Ends the writer, and reads the database.
    pub(super) fn end(self) -> Found {
        let Self { queue, thread, database, .. } = self;
        queue.close();
        thread.join().unwrap();
        let (rows, events) = ("SELECT n FROM trial ORDER BY id", "SELECT session FROM events ORDER BY seq");
        let read = |sql: &str| match &database {
            Database::File(folder) => {
                let conn = rusqlite::Connection::open(folder.path().join("belay.db")).unwrap();
                let conn = Connection::Sqlite(conn.into());
                let sql = sql.replacen("SELECT ", "SELECT CAST(", 1).replacen(" FROM", " AS TEXT) FROM", 1);
                tx::rows(&conn, &sql, [], |row| row.get::<_, String>(0)).unwrap()
            }
            Database::Server { database, .. } => {
                let found = database.sql(&format!("SET search_path = belay; {sql}")).unwrap();
                found.lines().map(str::to_owned).collect()
            }
        };
        let numbers = |sql| read(sql).iter().filter_map(|text| text.parse().ok()).collect();
        Found { rows: numbers(rows), events: numbers(events) }
    }
}

fn perform(tx: &mut Tx<'_>, act: Act, number: i64, events: usize) -> Done<()> {
    let broken = || Failure::Broken("as the test wants it".into());
    match act {
        Act::Write => write(tx, number, events, None),
        Act::WriteOrphan => write(tx, number, events, Some(1)),
        Act::Refuse => Err(refusal()),
        Act::WriteAndRefuse => write(tx, number, events, None).and(Err(refusal())),
        Act::WriteAndFail => write(tx, number, events, None).and(Err(broken())),
        Act::WriteAndContend => {
            write(tx, number, events, None)?;
            match tx.engine() {
                Engine::Sqlite => Err(Failure::Contended("as the test wants it".into())),
                Engine::Postgres => tx.post("DO $$ BEGIN RAISE SQLSTATE '55P03'; END $$", []),
            }
        }
        Act::Reject => tx.post("INSERT INTO trial (n) VALUES (NULL)", []),
        Act::LoseSavepoint => {
            write(tx, number, events, None)?;
            tx.post("RELEASE SAVEPOINT job", [])?;
            Err(broken())
        }
        Act::EndTransaction => {
            match tx.engine() {
                Engine::Sqlite => tx.exec("ROLLBACK", []).map(|_| ())?,
                Engine::Postgres => {
                    tx.row("SELECT pg_terminate_backend(pg_backend_pid())", [], |_| Ok(())).map(|_| ())?
                }
            }
            Err(broken())
        }
    }
}

fn refusal() -> Failure {
    StoreError::NotFound("as the test wants it".into()).into()
}

pub(super) fn write(tx: &mut Tx<'_>, number: i64, events: usize, parent: Option<i64>) -> Done<()> {
    tx.post("INSERT INTO trial (n, parent) VALUES (?1, ?2)", params![number, parent])?;
    (0..events).try_for_each(|_| write_event(tx, number.to_string().into()))
}

pub(super) fn write_event(tx: &mut Tx<'_>, session: SessionKey) -> Done<()> {
    let event = NewEvent { at: UnixMillis(1), session: Some(session), run_id: None, kind: EventKind::RunAccepted };
    ledger::append_events(tx, &[event])
}

/// Checks the answers against the database: nothing promised is lost, nothing is doubled, each answer is true, and rows and
/// events are in the order of the jobs.
pub(super) fn check(jobs: &[Answered], found: &Found) {
    let written = |job: &&Answered| found.rows.contains(&job.number);
    let rows: Vec<i64> = jobs.iter().filter(written).map(|job| job.number).collect();
    assert_eq!(found.rows, rows, "each job once, in order: {jobs:#?}");
    let of_each = jobs.iter().filter(written).flat_map(|job| vec![job.number; job.script.events]);
    assert_eq!(found.events, of_each.collect::<Vec<_>>(), "all events of each, in order: {jobs:#?}");
    for job in jobs {
        let is_written = written(&job);
        match &job.answer {
            // A promised job may be refused or rejected when it is repeated: see `Writer::execute_again`.
            Ok(()) => assert!(is_written || job.may_be_given_up(), "lost: {job:?} of {jobs:#?}"),
            Err(StoreError::NotFound(_)) => assert!(!is_written && job.was_refused(), "{job:?}"),
            Err(StoreError::Unavailable(why)) => {
                assert!(!is_written || why.contains("unknown"), "{job:?} of {jobs:#?}")
            }
            Err(_) => panic!("another answer: {job:?}"),
        }
    }
}

impl Answered {
    /// What it did at last.
    fn last(&self) -> Option<Act> {
        self.executed.load(Ordering::SeqCst).checked_sub(1).map(|at| self.script.act(at))
    }

    fn was_refused(&self) -> bool {
        matches!(self.last(), Some(Act::Refuse | Act::WriteAndRefuse))
    }

    fn may_be_given_up(&self) -> bool {
        self.script.durability == Durability::Relaxed && (self.was_refused() || self.last() == Some(Act::Reject))
    }
}
