// The fields of the form of a routine.

import { html } from '../vendor/preact.js';
import { GrantsField } from '../lib/grants.js';
import { Choice } from '../lib/list.js';
import { Text, Hidden } from '../lib/ui.js';

const KINDS = [['schedule', 'At times'], ['manual', 'By hand only'], ['event', 'At a message of its owner']];
const OTHER = { webhook: 'When another program calls', system: 'At an event of another part of the system' };
const MISFIRES = [['once', 'Run the newest one'], ['skip', 'Record it as missed'], ['all', 'Run several']];
const ZONES = Intl.supportedValuesOf?.('timeZone') ?? [];
const WHEN = html`<code>0 9 * * MON-FRI</code>, <code>@daily</code>, <code>every 2h</code>, <code>at 2026-12-01T09:00</code>`;

const input = (event) => event.currentTarget.value;

/** `set` receives the whole specification. Parts that have no field keep their values. */
export function Fields({ spec, set, named, grants, setGrants }) {
  const part = (name) => (change) => set({ ...spec, [name]: { ...spec[name], ...change } });
  return html`
    <label>Name <input required maxlength="64" disabled=${named} value=${spec.name}
      onInput=${(event) => set({ ...spec, name: input(event) })} /><${Hidden} value=${spec.name} /></label>
    <label>Purpose <input maxlength="200" value=${spec.description ?? ''}
      onInput=${(event) => set({ ...spec, description: input(event) || undefined })} />
      <${Hidden} value=${spec.description} /></label>
    <${Trigger} trigger=${spec.trigger} set=${(trigger) => set({ ...spec, trigger })} />
    <${Action} action=${spec.action} set=${(action) => set({ ...spec, action })} />
    ${grants === undefined ? html`<p class="hint">Its grants have patterns of several arguments. The expert view shows them.</p>`
      : html`<${GrantsField} value=${grants} set=${setGrants} />`}
    <${Guard} guard=${spec.guard ?? {}} set=${part('guard')} />
    <${Notify} notify=${spec.notify ?? {}} set=${part('notify')} />`;
}

function Trigger({ trigger, set }) {
  const to = (change) => set({ ...trigger, ...change });
  const kinds = OTHER[trigger.kind] ? [...KINDS, [trigger.kind, OTHER[trigger.kind]]] : KINDS;
  const kind = (value) => set({
    schedule: { kind: 'schedule', when: '', zone: 'UTC', misfire: 'once' },
    manual: { kind: 'manual' },
    event: { kind: 'event', pattern: '' },
  }[value] ?? trigger);
  const misfire = trigger.misfire?.all ? 'all' : trigger.misfire ?? 'once';
  return html`<fieldset><legend>Trigger</legend>
    <${Choice} label="Starts" value=${trigger.kind} options=${kinds} set=${kind} />
    ${trigger.kind === 'schedule' && html`
      <label>When <input required class="code" value=${trigger.when} onInput=${(event) => to({ when: input(event) })} />
        <span class="hint">A cron line, or such as ${WHEN}</span></label>
      <label>Zone <input required list="zones" value=${trigger.zone} onInput=${(event) => to({ zone: input(event) })} />
        <datalist id="zones">${['UTC', ...ZONES].map((zone) => html`<option value=${zone} />`)}</datalist></label>
      <${Choice} label="A missed time" value=${misfire} options=${MISFIRES}
        set=${(value) => to({ misfire: value === 'all' ? { all: 3 } : value })} />
      ${misfire === 'all' && html`<${Count} label="Most missed times that run" min="1" value=${trigger.misfire.all}
        set=${(all) => to({ misfire: { all } })} />`}`}
    ${trigger.kind === 'event' && html`
      <label>Pattern <input required class="code" value=${trigger.pattern}
        onInput=${(event) => to({ pattern: input(event) })} />
        <span class="hint">A regular expression. A message that matches gets no other answer.</span></label>
      <label>Channel <input value=${trigger.channel ?? ''} onInput=${(event) => to({ channel: input(event) || undefined })} />
        <span class="hint">Empty: any channel.</span></label>`}
    ${OTHER[trigger.kind] ? html`<p class="hint">The expert view has the fields of this trigger.</p>`
      : html`<p class="hint">The expert view also takes the triggers <code>webhook</code> and <code>system</code>.</p>`}
  </fieldset>`;
}

function Action({ action, set }) {
  const to = (change) => set({ ...action, ...change });
  const job = action.mode === 'full_job';
  const mode = (value) => set(value === 'full_job' ? { mode: value, task: action.prompt ?? '', plan: false, runs_in: 'local' }
    : { mode: value, prompt: action.task ?? '', use_tools: false, max_tool_rounds: 3 });
  return html`<fieldset><legend>Work</legend>
    <${Choice} label="Kind" value=${action.mode} set=${(value) => value !== action.mode && mode(value)}
      options=${[['lightweight', 'A few model calls'], ['full_job', 'A job']]} />
    <label>${job ? 'Task' : 'Prompt'} <textarea required rows="5" value=${job ? action.task : action.prompt}
      onInput=${(event) => to({ [job ? 'task' : 'prompt']: input(event) })}></textarea>
      <${Hidden} value=${job ? action.task : action.prompt} /></label>
    ${job ? html`
      <${Check} label="Make a plan first" checked=${action.plan} set=${(plan) => to({ plan })} />
      <${Choice} label="Runs in" value=${action.runs_in ?? 'local'} set=${(value) => to({ runs_in: value })}
        options=${[['local', 'The daemon, with the tools of a conversation'], ['worker', 'A sandboxed worker']]} />`
      : html`
      <label>Files that the model reads <textarea rows="2" class="code" value=${(action.files ?? []).join('\n')}
        onChange=${(event) => to({ files: input(event).split('\n').map((file) => file.trim()).filter(Boolean) })}></textarea>
        <span class="hint">One path in the workspace on each line.</span></label>
      <${Check} label="It may call tools" checked=${action.use_tools} set=${(value) => to({ use_tools: value })} />
      ${action.use_tools && html`<${Count} label="Most rounds of tool calls" min="1" max="20" value=${action.max_tool_rounds}
        set=${(value) => to({ max_tool_rounds: value })} />`}`}
  </fieldset>`;
}

const Guard = ({ guard, set }) => html`<fieldset><legend>Guardrails</legend><div class="row">
  <${Count} label="Seconds between two runs" value=${guard.cooldown_s ?? 300} set=${(value) => set({ cooldown_s: value })} />
  <${Count} label="Runs at the same time" min="1" value=${guard.max_concurrent ?? 1}
    set=${(value) => set({ max_concurrent: value })} />
  <${Count} label="Seconds without the same content" value=${guard.dedup_window_s ?? 0}
    set=${(value) => set({ dedup_window_s: value })} />
  <${Count} label="Failures in a row that disable it" value=${guard.max_failures ?? 5}
    set=${(value) => set({ max_failures: value })} />
</div></fieldset>`;

const Notify = ({ notify, set }) => html`<fieldset><legend>What is sent</legend>
  <${Check} label="Reports" checked=${notify.on_attention ?? true} set=${(value) => set({ on_attention: value })} />
  <${Check} label="Failures" checked=${notify.on_failure ?? true} set=${(value) => set({ on_failure: value })} />
  <${Check} label="Successes without a report" checked=${notify.on_success ?? false}
    set=${(value) => set({ on_success: value })} />
  <p class="hint">Where it goes: ${notify.to ? html`<${Text} value=${`${notify.to.channel}, ${notify.to.conversation}`} />`
    : 'to the conversation that made it; a routine of this console has none, and its reports stand in its runs'}.</p>
</fieldset>`;

const Check = ({ label, checked, set }) => html`<label class="check">
  <input type="checkbox" checked=${checked} onChange=${(event) => set(event.currentTarget.checked)} /> ${label}</label>`;
const Count = ({ label, value, set, min = '0', max }) => html`<label>${label}
  <input type="number" required min=${min} max=${max} value=${value} onInput=${(event) => set(Number(input(event)))} /></label>`;
