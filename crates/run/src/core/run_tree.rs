//! Limits of a run tree: its depth, the number of runs at the same time, and the total number of runs.

use std::sync::{Arc, Mutex, PoisonError};

use crate::config::SubagentsConfig;

/// The position of a run in its tree. Clones share the tree.
#[derive(Clone, Debug)]
pub struct RunTree {
    shared: Arc<Tree>,
    /// 0 for the run of the conversation, 1 for those that it starts.
    depth: u32,
}

/// The limits and counters that all runs of a tree share.
#[derive(Debug)]
struct Tree {
    max_depth: u32,
    max_live: u32,
    max_total: u32,
    // Held for a few instructions, never across an await.
    counts: Mutex<Counts>,
}

#[derive(Debug)]
struct Counts {
    live: u32,
    total: u32,
}

/// A subagent's slot in the tree. Dropping it releases the slot, also when the subagent panics or is abandoned.
#[derive(Debug)]
pub struct RunSlot(Arc<Tree>);

impl RunTree {
    /// The root of a tree. `before`: number of subagents that earlier attempts started.
    pub fn root(config: &SubagentsConfig, before: u32) -> Self {
        let SubagentsConfig { max_depth, max_live, max_total, .. } = *config;
        let counts = Mutex::new(Counts { live: 0, total: before });
        Self { shared: Arc::new(Tree { max_depth, max_live, max_total, counts }), depth: 0 }
    }

    /// The number of levels below the run of the conversation.
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// Whether the runs that this one starts may start other runs.
    pub fn children_may_spawn(&self) -> bool {
        self.depth + 1 < self.shared.max_depth
    }

    /// Takes a slot one level below this run.
    ///
    /// # Errors
    /// A sentence for the model that names the limit.
    pub fn enter(&self) -> Result<(Self, RunSlot), String> {
        let Tree { max_depth, max_live, max_total, ref counts } = *self.shared;
        if self.depth >= max_depth {
            return Err(format!("a subagent at depth {max_depth} cannot start others; do this part yourself"));
        }
        let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.total >= max_total {
            return Err(format!(
                "{max_total} subagents have been started for this request, which is the limit; do the rest yourself"
            ));
        }
        if counts.live >= max_live {
            return Err(format!("{max_live} subagents are running already; wait for their results, then try again"));
        }
        counts.live += 1;
        counts.total += 1;
        Ok((Self { shared: self.shared.clone(), depth: self.depth + 1 }, RunSlot(self.shared.clone())))
    }
}

impl Drop for RunSlot {
    fn drop(&mut self) {
        let mut counts = self.0.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.live = counts.live.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(max_depth: u32, max_live: u32, max_total: u32, before: u32) -> RunTree {
        let config = SubagentsConfig { max_depth, max_live, max_total, ..SubagentsConfig::default() };
        RunTree::root(&config, before)
    }

    fn refused(tree: &RunTree) -> String {
        tree.enter().expect_err("a cap is reached")
    }

    #[test]
    fn each_cap_lets_its_number_in_and_names_itself_to_the_next() {
        let tree = root(2, 9, 9, 0);
        let (child, _one) = tree.enter().expect("depth 1");
        let (grandchild, _two) = child.enter().expect("depth 2");
        assert_eq!((grandchild.depth(), tree.children_may_spawn(), child.children_may_spawn()), (2, true, false));
        assert!(refused(&grandchild).contains("cannot start others"));

        let tree = root(1, 2, 9, 0);
        let (_, first) = tree.enter().expect("one of two");
        let (_, _second) = tree.enter().expect("two of two");
        assert!(refused(&tree).contains("are running already"));
        drop(first);
        tree.enter().expect("a slot was given back");

        let tree = root(1, 9, 3, 1);
        for _ in 0..2 {
            tree.enter().expect("ended at once, and counted all the same");
        }
        assert!(refused(&tree).contains("have been started for this request"));
    }

    #[test]
    fn children_of_children_count_for_the_same_tree() {
        let tree = root(3, 2, 9, 0);
        let (child, _place) = tree.enter().expect("first");
        let (grandchild, _below) = child.enter().expect("second");
        for anyone in [&tree, &child, &grandchild] {
            assert!(refused(anyone).contains("are running already"));
        }
    }
}
