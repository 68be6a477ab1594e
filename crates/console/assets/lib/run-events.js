// The events of one run: its rows, live while it runs, and the recording with whole arguments and results.

import { useEffect, useMemo, useRef, useState } from '../vendor/preact.js';
import { lines, path } from './api.js';
import { recorded, Rows } from './facts.js';
import { useFollow } from './hooks.js';

const RENDER_MS = 50;
export const isOpen = (run) => ['accepted', 'queued', 'running', 'paused'].includes(run?.status);

/** `{ rows, link, writing }`: `writing` is the text of the step in progress. The stream ends with the run; facts are rendered in batches. */
export function useRunEvents(run, changed) {
  const rows = useMemo(() => new Rows(run.accepted_at), [run.run_id]);
  const timer = useRef();
  const [writing, setWriting] = useState('');
  const text = useRef('');
  const [, render] = useState(0);
  useEffect(() => () => clearTimeout(timer.current), []);
  const soon = () => {
    timer.current ??= setTimeout(() => { timer.current = undefined; setWriting(text.current); render((n) => n + 1); }, RENDER_MS);
  };
  const link = useFollow(path`runs/${run.run_id}/events`, ({ type, data }) => {
    if (type === 'delta') {
      if (data.kind === 'text') text.current += data.text;
    } else if (type !== 'reset') {
      rows.add(data);
      if (type === 'model_called' || type === 'run_ended') text.current = '';
      if (['run_started', 'run_ended', 'approval_requested', 'approval_resolved'].includes(type) && isOpen(run)) changed();
    }
    soon();
  }, { isEnd: (event) => (event ? event.type === 'run_ended' : !isOpen(run)) });
  return { rows: rows.rows, link, writing };
}

/** The recording of a run, and `read()`, which reads it again when there are more rows. */
export function useRecording(run, count) {
  const [recording, set] = useState({});
  const read = () => {
    if (recording.loading || (recording.lines && recording.rows === count)) return;
    set({ ...recording, loading: true });
    lines(path`runs/${run.run_id}/trajectory`).then(
      (all) => set({ lines: all, rows: count, ...recorded(all) }),
      (error) => set({ error, rows: count }),
    );
  };
  return [recording, read];
}
