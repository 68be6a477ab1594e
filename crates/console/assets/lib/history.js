// The stored messages of a conversation: the newest ones, and older ones when they are asked for. What is known is not read
// again.

import { get, path } from './api.js';

/** Messages of one request: the most that the API returns. */
const PAGE = 500;
/** Messages that are kept. */
const KEPT = 500;
/** Links to files expire, so that messages with files are read again after this time. */
const LINKS_MS = 3600 * 1000;

export class History {
  /** `absent()`: whether the session is known not to exist yet. */
  constructor(session, signal, absent) {
    // All messages after the id `start` are in `messages`, at most `kept` of them.
    Object.assign(this, { session, signal, absent, messages: [], start: 0, kept: KEPT, fresh: true, older: false, readAt: 0 });
  }

  /** Reads what is new. Returns whether another conversation has taken the place of the one that was known. */
  async read() {
    const { fresh } = this;
    this.fresh = false;
    try {
      return await this.update(fresh);
    } catch (error) {
      this.fresh ||= fresh;
      throw error;
    }
  }

  async update(fresh) {
    const known = this.messages;
    const old = Date.now() - this.readAt > LINKS_MS && known.some((message) => message.files?.length);
    const last = fresh || old ? undefined : known.at(-1);
    // The last one is read again: another one in its place, or none, was taken back, or belongs to another conversation.
    const found = last && await this.after(last.id - 1);
    if (last && same(found[0], last)) {
      const before = await this.before();
      this.keep([...before, ...known, ...found.slice(1)]);
      return false;
    }
    await this.newest();
    const by = new Map(known.map((message) => [message.id, message]));
    return known.length > 0 && !this.messages.some((message) => same(by.get(message.id), message));
  }

  /** Keeps the newest of these messages. */
  keep(all) {
    const over = all.length - this.kept;
    if (over > KEPT / 5) this.start = all[over - 1].id;
    this.messages = over > KEPT / 5 ? all.slice(over) : all;
  }

  /** The messages before `start`, if they were asked for. An id is a position, so that one page has all of a part. */
  async before() {
    let { start } = this;
    let found = [];
    while (this.older && start > 0 && !found.length) {
      const from = Math.max(0, start - PAGE);
      const { messages } = await this.page(from, PAGE);
      found = messages.filter((message) => message.id <= start);
      start = from;
    }
    this.older = false;
    this.start = start;
    this.kept += found.length;
    return found;
  }

  /** Reads the newest messages, at most about `KEPT`: a long conversation is not read from its beginning. */
  async newest() {
    const first = await this.page(0, PAGE);
    let start = 0;
    let { messages } = first;
    if (first.next) {
      const beyond = async (id) => (await this.page(id, 1)).messages.length > 0;
      let [low, high] = [first.next, first.next * 2];
      for (; await beyond(high); high *= 2) low = high;
      while (high - low > KEPT / 2) {
        const middle = Math.floor((low + high) / 2);
        if (await beyond(middle)) low = middle;
        else high = middle;
      }
      start = Math.max(0, low - KEPT / 2);
      messages = await this.after(start);
    }
    Object.assign(this, { messages, start, kept: KEPT, readAt: Date.now() });
  }

  /** All stored messages after the id `after`. */
  async after(after) {
    const found = [];
    for (let next = after; next !== undefined && next !== null;) {
      const page = await this.page(next, PAGE);
      found.push(...page.messages);
      next = page.next;
    }
    return found;
  }

  /** One page of stored messages. A session that does not exist yet has none. */
  async page(after, limit) {
    const none = { messages: [] };
    if (this.absent()) return none;
    try {
      return await get(path`sessions/${this.session}/messages`, { after, limit }, this.signal);
    } catch (error) {
      if (error.status !== 404) throw error;
      return none;
    }
  }
}

const same = (a, b) => a?.id === b.id && a.at === b.at && a.run_id === b.run_id;
