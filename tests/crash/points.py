"""Every named point of the daemon, and the work that passes it.

A test compares this table with the sources (tests/architecture.rs). The work of each name is a function of work.py.
"""

POINTS = {
    # A message from its arrival to its durable acceptance.
    "inbox.before-insert": "say",
    "inbox.before-acknowledgement": "say",
    "inbox.after-acknowledgement": "say",
    "lane.before-open": "say",
    "lane.opened": "say",
    "lane.restored": "say",
    "run.before-start": "queue",
    "run.started": "queue",
    "context.built": "say",
    # The one transaction of many writes.
    "store.before-commit": "effect",
    "store.after-commit": "effect",
    # A model call and its money.
    "money.before-reservation": "say",
    "money.reserved": "say",
    "model.before-send": "say",
    "model.received": "say",
    "model.last-byte": "say",
    "money.before-settlement": "say",
    "money.settled": "say",
    "model.before-journal": "effect",
    # A tool call.
    "tool.before-intent": "effect",
    "tool.intent-journaled": "effect",
    "tool.spawned": "effect",
    "tool.exited": "effect",
    "tool.before-result": "effect",
    "tool.result-journaled": "effect",
    # A question and its answer.
    "approval.before-question": "ask",
    "approval.asked": "ask",
    "approval.before-decision": "ask",
    "approval.decided": "ask",
    "approval.before-resume": "ask",
    "compaction.before-store": "compact",
    "compaction.stored": "compact",
    # The end of a run, and the delivery of its reply.
    "run.before-end": "telegram",
    "run.ended": "telegram",
    "outbox.before-mark": "telegram",
    "outbox.marked-sending": "telegram",
    "outbox.before-piece": "long",
    "outbox.after-wire": "telegram",
    "outbox.settled": "telegram",
    "telegram.before-confirmation": "telegram",
    # Routines and jobs.
    "routine.before-claim": "routine",
    "routine.claimed": "routine",
    "routine.submitted": "routine",
    "routine.before-settlement": "routine",
    "routine.settled": "routine",
    "job.claimed": "job",
    "job.submitted": "job",
    "job.before-settlement": "job",
    "job.settled": "job",
    # A start, and what it resumes.
    "recovery.begun": "say",
    "recovery.jobs-reclaimed": "say",
    "recovery.runs-read": "say",
    "recovery.lanes-opened": "say",
    "recovery.before-ready": "say",
    "recovery.resumed": "say",
    "recovery.ready": "say",
    "recovery.before-outbox": "say",
    "recovery.outbox-settled": "say",
    # A shutdown in the middle of work.
    "drain.begun": "drain",
    "drain.before-stop": "drain",
    "drain.lanes-ended": "drain",
    "drain.before-delivery": "drain",
    "drain.delivered": "drain",
    "drain.before-close": "drain",
    # Deletion and backups.
    "prune.before-batch": "say",
    "prune.batch-deleted": "say",
    "prune.before-deletion": "delete",
    "prune.session-deleted": "delete",
    "backup.before-copy": "backup",
    "backup.writing": "backup",
    "backup.made": "backup",
}

# A point that is passed only if the death before was at this one.
AFTER = {"recovery.outbox-settled": "outbox.marked-sending"}
