// The form of a routine. The whole specification is one object, which the expert view shows as JSON.

import { html, useState } from '../vendor/preact.js';
import { get, path, post, put } from '../lib/api.js';
import { visible, escaped } from '../lib/format.js';
import { ConfirmGrants, parseGrants, writeGrants } from '../lib/grants.js';
import { useAction, useLoad } from '../lib/hooks.js';
import { Tabs } from '../lib/list.js';
import { Failure, Go, Loaded, Page, Text } from '../lib/ui.js';
import { Fields } from './routine-fields.js';
import { TestAt } from './routine-one.js';
import { TABS, routineLink } from './routine-runs.js';
import { specOf } from './routine-text.js';

const zone = () => Intl.DateTimeFormat().resolvedOptions().timeZone ?? 'UTC';
const FRESH = () => ({
  name: '',
  trigger: { kind: 'schedule', when: '0 9 * * MON-FRI', zone: zone(), misfire: 'once' },
  action: { mode: 'lightweight', prompt: '', use_tools: false, max_tool_rounds: 3 },
  guard: { cooldown_s: 300, max_concurrent: 1, dedup_window_s: 0, max_failures: 5 },
  notify: { on_attention: true, on_failure: true, on_success: false },
});

export const NewRoutine = () => html`<${Page} title="New routine">
  <${Tabs} label="Routines" tabs=${TABS} />
  <${Form} start=${FRESH()} save=${(spec) => post('routines', spec)} label="Create the routine" />
</${Page}>`;

export function EditRoutine({ name }) {
  const load = useLoad((signal) => get(path`routines/${name}`, {}, signal), [name]);
  return html`<${Page} title="Edit routine">
    <${Tabs} label="Routines" tabs=${TABS} />
    <p><${Go} to=${routineLink(name)}>Back without a change</${Go}></p>
    <${Loaded} load=${load}>${(routine) => html`<${Form} start=${specOf(routine)} named label="Save the routine"
      save=${(spec) => put(path`routines/${name}`, spec)} />`}</${Loaded}>
  </${Page}>`;
}

const pretty = (spec) => escaped(JSON.stringify(spec, null, 2));

/** Whether a part of a stored routine has characters that nobody sees. */
const hidesText = (spec) => visible(pretty(spec)) !== pretty(spec);

function Form({ start, save, label, named }) {
  const [spec, set] = useState(start);
  const [grants, setGrants] = useState(() => writeGrants(start.allow));
  const [json, setJson] = useState();
  const [problem, refuse] = useState();
  const [asked, ask] = useState();
  const [send, { busy, error }] = useAction(async (whole) => {
    const stored = await save(whole);
    location.hash = `#/${routineLink(stored.name)}`;
  });

  /** The specification of the view that is shown. Throws on faulty JSON and faulty grants. */
  const current = () => {
    if (json !== undefined) return JSON.parse(json);
    if (grants === undefined || grants === writeGrants(start.allow)) return spec;
    const allow = [...parseGrants(grants), ...(start.allow ?? []).filter((grant) => grant.revoked)];
    return { ...spec, allow: allow.length ? allow : undefined };
  };
  const guarded = (step) => {
    refuse(undefined);
    try { step(current()); } catch (wrong) { refuse(wrong); }
  };
  const expert = () => guarded((whole) => setJson(pretty(whole)));
  const simple = () => guarded((whole) => {
    set(whole);
    setGrants(writeGrants(whole.allow));
    setJson(undefined);
  });
  const submit = (event) => {
    event.preventDefault();
    guarded((whole) => {
      const given = (whole.allow ?? []).filter((grant) => !grant.revoked);
      // Grants that the routine has already are not asked for again.
      const old = (start.allow ?? []).filter((grant) => !grant.revoked);
      if (given.length && pretty(given) !== pretty(old)) ask({ given, whole });
      else send(whole);
    });
  };
  const schedule = json === undefined && spec.trigger.kind === 'schedule';
  return html`
    <form onSubmit=${submit}>
      ${hidesText(start) && html`<p class="notice">This routine has hidden characters, which the fields do not show:
        <${Text} value=${pretty(start)} /></p>`}
      ${json === undefined ? html`<${Fields} spec=${spec} set=${set} named=${named} grants=${grants} setGrants=${setGrants} />`
        : html`<label>The whole specification as JSON
          <textarea class="code" rows="24" spellcheck="false" value=${json}
            onInput=${(event) => setJson(event.currentTarget.value)}></textarea></label>`}
      <${Failure} error=${problem ?? error} />
      <p class="row"><button type="submit" disabled=${busy}>${label}</button>
        <button type="button" onClick=${json === undefined ? expert : simple}>
          ${json === undefined ? 'Expert view' : 'Back to the form'}</button></p>
    </form>
    ${schedule && html`<h2>Would it run at a time?</h2>
      <${TestAt} zone=${spec.trigger.zone}
        test=${async (at) => post('routines/test', { spec: { ...current(), name: spec.name || 'test' }, at })} />`}
    ${asked && html`<${ConfirmGrants} grants=${asked.given} busy=${busy} close=${() => ask(undefined)}
      give=${() => { ask(undefined); send(asked.whole); }} />`}`;
}
