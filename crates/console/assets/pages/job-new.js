// The form of a new job. The grants are shown before they are given.

import { html, useMemo, useState } from '../vendor/preact.js';
import { newId, post } from '../lib/api.js';
import { ConfirmGrants, GrantsField, parseGrants } from '../lib/grants.js';
import { useAction } from '../lib/hooks.js';
import { Choice } from '../lib/list.js';
import { Failure, Go, Page } from '../lib/ui.js';

const START = {
  task: '', title: '', plan: false, runs_in: 'local', steps: '', tokens: '', dollars: '', minutes: '', grants: '', session: '',
};
const figure = (text, factor = 1) => Math.round(Number(text || 0) * factor);

export function NewJob() {
  const [form, set] = useState(START);
  const [problem, refuse] = useState();
  const [grants, ask] = useState();
  // The same id for each attempt to send: an answer that was lost makes no second job.
  const id = useMemo(newId, []);
  const put = (name) => (event) => set((before) => ({ ...before, [name]: event.currentTarget.value }));
  const [send, { busy, error }] = useAction(async (allow) => {
    const job = await post('jobs', {
      job_id: id,
      task: form.task,
      title: form.title.trim() || undefined,
      plan: form.plan,
      runs_in: form.runs_in,
      budget: { max_steps: figure(form.steps), max_tokens: figure(form.tokens), max_micro_usd: figure(form.dollars, 1e6),
        max_time_ms: figure(form.minutes, 60000) },
      allow: allow.length ? allow : undefined,
      session: form.session.trim() || undefined,
    });
    location.hash = `#/jobs/${encodeURIComponent(job.job_id)}`;
  });
  const submit = (event) => {
    event.preventDefault();
    refuse(undefined);
    try {
      const found = parseGrants(form.grants);
      if (found.length) ask(found);
      else send([]);
    } catch (wrong) { refuse(wrong); }
  };
  const count = (name, label, step = 1) => html`<label>${label}
    <input type="number" min="0" step=${step} inputmode="decimal" value=${form[name]} onInput=${put(name)} /></label>`;
  return html`<${Page} title="New job">
    <p><${Go} to="jobs">All jobs</${Go}></p>
    <form onSubmit=${submit}>
      <label>Task
        <textarea required rows="6" maxlength="65536" value=${form.task} onInput=${put('task')}></textarea>
        <span class="hint">The job knows only its task. Write down everything that it needs.</span></label>
      <label>Title <input value=${form.title} onInput=${put('title')} maxlength="200" />
        <span class="hint">Empty: the first line of the task.</span></label>
      <label class="check"><input type="checkbox" checked=${form.plan}
        onChange=${(event) => set({ ...form, plan: event.currentTarget.checked })} /> Make a plan first</label>
      <${Choice} label="Runs in" value=${form.runs_in} set=${(value) => set({ ...form, runs_in: value })}
        options=${[['local', 'The daemon, with the tools of a conversation'], ['worker', 'A sandboxed worker']]} />
      <${GrantsField} value=${form.grants} set=${(value) => set({ ...form, grants: value })} />
      <fieldset><legend>Limits</legend>
        <p class="hint">Empty: the limits of the settings, which are also the maximum.</p>
        <div class="row">${count('steps', 'Steps')}${count('tokens', 'Tokens')}${count('dollars', 'US dollars', 0.01)}
          ${count('minutes', 'Minutes')}</div>
      </fieldset>
      <label>Conversation that gets the result <input value=${form.session} onInput=${put('session')} maxlength="256" />
        <span class="hint">Empty: only this console shows the result.</span></label>
      <${Failure} error=${problem ?? error} />
      <p><button type="submit" disabled=${busy || !form.task.trim()}>Create the job</button></p>
    </form>
    ${grants && html`<${ConfirmGrants} grants=${grants} busy=${busy} close=${() => ask(undefined)}
      give=${() => { ask(undefined); send(grants); }} />`}
  </${Page}>`;
}
