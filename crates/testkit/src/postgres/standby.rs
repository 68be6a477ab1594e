//! A second server that replicates the first, by streaming.

use std::{thread, time::Duration};

use anyhow::{Result, bail};

use super::{
    account::run,
    server::{PostgresServer, quoted},
};

/// Time between two looks at how far a standby is.
const POLL: Duration = Duration::from_millis(20);

impl PostgresServer {
    /// Copies this server and starts the copy as its standby, which answers queries and refuses writes.
    ///
    /// Replication is asynchronous: a commit is answered before the standby has it. [`synchronous_to`](Self::synchronous_to)
    /// changes that.
    ///
    /// # Errors
    /// This server does not run, or the copy does not start.
    pub fn standby(&self) -> Result<Self> {
        let mut standby = Self::new_folder(&self.programs, None)?;
        standby.password.clone_from(&self.password);
        standby.root_certificate.clone_from(&self.root_certificate);
        let mut copy = self.account.command(&self.programs.pg_basebackup, standby.folder.path());
        let primary = format!(
            "host={} port={} user=belay application_name={}",
            self.folder.path().display(),
            self.port,
            standby.replication_name()
        );
        run(copy.args([
            "--pgdata=data",
            "--write-recovery-conf",
            "--checkpoint=fast",
            "--no-sync",
            "--dbname",
            &primary,
        ]))?;
        standby.start_on_a_free_port()?;
        Ok(standby)
    }

    /// The name by which the primary knows this server as its standby.
    fn replication_name(&self) -> String {
        self.folder.path().file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Waits until the standby is connected, and has the commits of this server wait for it from now on. A promotion then
    /// loses no commit that was answered.
    ///
    /// # Errors
    /// This server does not answer, or the standby is none of its own and has ended.
    pub fn synchronous_to(&self, standby: &Self) -> Result<()> {
        let name = quoted(&standby.replication_name()).replace('\'', "''");
        self.sql(
            "postgres",
            &format!("alter system set synchronous_standby_names = '{name}'; select pg_reload_conf()"),
        )?;
        let state = format!(
            "select coalesce((select sync_state from pg_stat_replication where application_name = '{}'), '')",
            standby.replication_name()
        );
        while self.sql("postgres", &state)? != "sync" {
            standby.sql("postgres", "select 1")?;
            thread::sleep(POLL);
        }
        Ok(())
    }

    /// Waits until this standby has all that the primary had committed before the call.
    ///
    /// # Errors
    /// One of the two does not answer.
    pub fn catch_up_with(&self, primary: &Self) -> Result<()> {
        let position = primary.sql("postgres", "select pg_current_wal_lsn()")?;
        let reached = format!("select pg_last_wal_replay_lsn() >= '{position}'::pg_lsn");
        while self.sql("postgres", &reached)? != "t" {
            thread::sleep(POLL);
        }
        Ok(())
    }

    /// Ends the replication of this standby: it gets no further commit of the primary.
    ///
    /// # Errors
    /// It is no standby, or does not answer.
    pub fn fall_behind(&self) -> Result<()> {
        self.sql("postgres", "alter system set primary_conninfo = ''")?;
        self.sql("postgres", "select pg_reload_conf()")?;
        while self.sql("postgres", "select count(*) from pg_stat_wal_receiver")? != "0" {
            thread::sleep(POLL);
        }
        Ok(())
    }

    /// Makes this standby a primary, and waits until it is.
    ///
    /// # Errors
    /// It is no standby, or it did not become a primary within the 60 s that PostgreSQL grants.
    pub fn promote(&self) -> Result<()> {
        match self.sql("postgres", "select pg_promote()")?.as_str() {
            "t" => Ok(()),
            _ => bail!("the standby was not promoted: {}", self.log().lines().last().unwrap_or_default()),
        }
    }
}
