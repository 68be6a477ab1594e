// The drafts of messages: they outlive a reload of the page, and no sign-out.

export const draftName = (session) => `draft:${session}`;
/** Removes the draft of a session, unless it is another text by now. */
export function dropDraft(session, text) {
  const name = draftName(session);
  try { if (sessionStorage.getItem(name) === text) sessionStorage.removeItem(name); } catch { /* no storage here */ }
}

/** Removes all drafts: the next person at this browser must not read them. */
export function dropDrafts() {
  try {
    const drafts = Object.keys(sessionStorage).filter((name) => name.startsWith(draftName('')));
    drafts.forEach((name) => sessionStorage.removeItem(name));
  } catch { /* no storage here */ }
}
