"""The time to recovery, from what the clients and the doubles saw.

It is the time from the moment at which a fault hits to the first answer that a client of each affected conversation sees. A conversation is
affected if the database was hit, or if the node that was hit has called the model for it last; and if a message of it was sent before the end
of the fault and was answered after the hit. Jobs and routines have no lane that a node owns: theirs is affected if its open order was at that node.
"""

import bisect
import json

# Channels whose orders may be at several nodes at once.
FREE = ("job", "routine")
# The states of a job in which its order has ended.
JOB_ENDS = ("submitted", "accepted", "failed", "cancelled")


def recoveries(fleet, hits):
    """The seconds of all affected conversations of these hits: (kind of fault, moment, node or None, end of the fault). By kind."""
    sights, found = Sights(fleet), {}
    for kind, moment, node, ended in hits:
        times = (sights.recovery(talker, moment, node, ended) for talker in fleet.talkers)
        found.setdefault(kind, []).extend(time for time in times if time is not None)
    return found


class Sights:
    """What was seen of each order: its end, and the nodes that called the model for it."""

    def __init__(self, fleet):
        self.ended_at, self.polls = first_ends(fleet), fleet.api.polled_by
        talker_of = {order.id: talker for talker in fleet.talkers for order in talker.orders}
        # Of each conversation, in the order of time.
        self.calls = {talker: [] for talker in fleet.talkers}
        for at, node, order in sorted(fleet.model.calls):
            if talker := talker_of.get(order):
                self.calls[talker].append((at, node, order))

    def recovery(self, talker, moment, node, ended):
        """Seconds, or None: the conversation was not affected."""
        if node is not None and not self.was_at(talker, moment, node):
            return None
        ends = [self.ended_at.get(order.id) for order in list(talker.orders) if order.sent_at <= ended]
        return min((end - moment for end in ends if end and end > moment), default=None)

    def was_at(self, talker, moment, node):
        at = bisect.bisect_left(self.calls[talker], (moment,)) - 1
        if talker.channel == "telegram" and (polled := bisect.bisect_left(self.polls, (moment,))) and self.polls[polled - 1][1] == node:
            return True  # its messages reach the others through this node
        if at < 0:
            return False
        _, last, order = self.calls[talker][at]
        return last == node and (talker.channel not in FREE or self.ended_at.get(order, moment) >= moment)


def first_ends(fleet):
    """When a client first saw the end of each order: the client that sent it, the reader of all events, or the user on Telegram."""
    order_of = {order.run: order.id for order in fleet.work.orders if order.run}
    ends = [(order.id, order.ended_at) for order in fleet.work.orders if order.ended_at]
    for at, data in fleet.reader.ends:
        ends.append((order_of.get(ended(json.loads(data))), at))
    ends.extend((text.partition("done ")[2].partition(".")[0], at) for at, _, text in fleet.api.shown_by if "done " in text)
    first = {}
    for order, at in ends:
        first[order] = min(at, first.get(order, at))
    return first


def ended(event):
    """The run, the job or the routine run whose end an event reports, or None."""
    if event["type"] == "job_changed":
        return event["job"] if event["to"] in JOB_ENDS else None
    return event["routine_run"] if event["type"] == "routine_run_ended" else event.get("run_id")
