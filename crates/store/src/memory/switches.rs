//! Tools that are switched off.

use async_trait::async_trait;
use belay_protocol::{NewEvent, StoreError, ToolSwitch, ToolSwitches};

use super::MemoryStore;

#[async_trait]
impl ToolSwitches for MemoryStore {
    async fn switches(&self) -> Result<Vec<ToolSwitch>, StoreError> {
        Ok(self.lock().switches.values().cloned().collect())
    }

    async fn switch(&self, switch: ToolSwitch, events: Vec<NewEvent>) -> Result<(), StoreError> {
        self.with(|state| {
            let newer = |kept: &ToolSwitch| kept.revision >= switch.revision;
            if !state.switches.get(&switch.name).is_some_and(newer) {
                state.switches.insert(switch.name.clone(), switch);
                state.push_events(&events);
            }
            Ok(())
        })
    }
}
