//! Kept outputs of tools in the database, for several daemons that share it.
//!
//! A part is committed when 256 KiB have been written, so a shorter output takes one commit. A crash may leave parts of an
//! output that nobody reads; later writes remove them.

use std::sync::Arc;

use async_trait::async_trait;
use belay_protocol::{CallId, Clock, OutputName, OutputPart, OutputStore, OutputWriter, RunId, StoreError, UnixMillis};

use crate::parts::PartBuffer;
use crate::sql::{LastPart, SqlStore};

/// The kept outputs in a store. Clones share them.
#[derive(Clone)]
pub struct SqlOutputs {
    store: SqlStore,
    clock: Arc<dyn Clock>,
    max_total_bytes: u64,
}

impl SqlOutputs {
    /// The outputs in this store. `max_total_bytes`: of all outputs of all nodes together; beyond it, the oldest ones are
    /// removed.
    pub fn new(store: SqlStore, clock: Arc<dyn Clock>, max_total_bytes: u64) -> Self {
        Self { store, clock, max_total_bytes }
    }
}

#[async_trait]
impl OutputStore for SqlOutputs {
    async fn begin(&self, run: RunId, call: &CallId) -> Result<Box<dyn OutputWriter>, StoreError> {
        let (outputs, call) = (self.clone(), call.clone());
        Ok(Box::new(RowWriter { outputs, run, call, name: None, stored: 0, size: 0, rest: PartBuffer::default() }))
    }

    async fn part(&self, name: &OutputName, from: u64, most: u64) -> Result<Option<OutputPart>, StoreError> {
        self.store.output_part(name.clone(), from, most).await
    }

    /// Nothing is left to do: the rows are deleted with those of their run, in one transaction.
    async fn forget(&self, _runs: &[RunId]) {}

    async fn forget_before(&self, date: UnixMillis) -> Result<u64, StoreError> {
        self.store.forget_outputs(date).await
    }
}

/// An output that is being written.
struct RowWriter {
    outputs: SqlOutputs,
    run: RunId,
    call: CallId,
    /// From the first stored part on, until the output is finished.
    name: Option<OutputName>,
    /// The number of stored parts.
    stored: u64,
    /// The number of bytes in all.
    size: u64,
    /// Bytes that are not stored yet.
    rest: PartBuffer,
}

impl RowWriter {
    async fn store_part(&mut self, bytes: Vec<u8>) -> Result<(), StoreError> {
        let SqlOutputs { store, clock, .. } = &self.outputs;
        match &self.name {
            None => self.name = Some(store.begin_output(self.run, self.call.clone(), bytes, clock.now()).await?),
            Some(name) => store.put_output_part(name.clone(), self.stored, bytes, clock.now()).await?,
        }
        self.stored += 1;
        Ok(())
    }
}

#[async_trait]
impl OutputWriter for RowWriter {
    async fn write(&mut self, mut bytes: &[u8]) -> Result<(), StoreError> {
        self.size += bytes.len() as u64;
        while let Some(part) = self.rest.fill(&mut bytes) {
            self.store_part(part).await?;
        }
        Ok(())
    }

    async fn finish(mut self: Box<Self>) -> Result<OutputName, StoreError> {
        let (rest, size) = (self.rest.take(), self.size);
        let SqlOutputs { store, clock, max_total_bytes } = &self.outputs;
        let last = LastPart { size, bytes: rest, max_total_bytes: *max_total_bytes, at: clock.now() };
        let name = match self.name.clone() {
            None => store.keep_output(self.run, self.call.clone(), last).await?,
            Some(name) => {
                store.finish_output(name.clone(), self.stored, last).await?;
                name
            }
        };
        self.name = None;
        Ok(name)
    }
}

impl Drop for RowWriter {
    fn drop(&mut self) {
        if let Some(name) = self.name.take() {
            self.outputs.store.drop_output(name);
        }
    }
}
