// One routine: its state, its next times, its runs, and what can be done with it.

import { html, useState } from '../vendor/preact.js';
import { del, get, path, post } from '../lib/api.js';
import { exact, seconds, visible } from '../lib/format.js';
import { Grants } from '../lib/grants.js';
import { useAction, useLoad } from '../lib/hooks.js';
import { Connection, Json, ListTable, Tabs, useList, useLive } from '../lib/list.js';
import { Act, Code, Facts, Failure, Go, Loaded, Page, Text, Time } from '../lib/ui.js';
import { Enabled, LastRuns, NextTable, RUN_COLUMNS, RUN_EVENTS, RunNow, TABS } from './routine-runs.js';
import { misfireText, specOf, triggerText } from './routine-text.js';

const FIXED = {
  config: 'The configuration defines this routine. It can be changed only there, in [[routines.define]].',
  heartbeat: 'This is the built-in heartbeat. Its settings are in [heartbeat].',
};

export function Routine({ name }) {
  const load = useLoad((signal) => get(path`routines/${name}`, {}, signal), [name]);
  const next = useLoad((signal) => get('routine-runs/next', { routine: name, count: 5 }, signal), [name]);
  const runs = useList(path`routines/${name}/runs`, 'routine_runs', {}, { page: 20 });
  const reload = () => { load.reload(); next.reload(); runs.reload(); };
  const live = useLive([...RUN_EVENTS, 'grant_revoked'], reload);
  return html`<${Page} title="Routine" aside=${html`<${Connection} state=${live} />`}>
    <${Tabs} label="Routines" tabs=${TABS} />
    <${Loaded} load=${load}>${(routine) => html`<${View} routine=${routine} reload=${reload} />`}</${Loaded}>
    ${load.value?.trigger.kind === 'schedule' && html`<h2>Next times</h2>
      <${Loaded} load=${next}>${(value) => html`<${NextTable} next=${value.next} />`}</${Loaded}>
      <h2>Would it run at a time?</h2>
      <${TestAt} test=${(at) => post(path`routines/${name}/test`, { at })} zone=${load.value.trigger.zone} />`}
    ${load.value && html`<h2>Runs</h2>${runs.rows.length > 0 && html`<p><${LastRuns} runs=${runs.rows} /></p>`}
      <${ListTable} list=${runs} keyOf=${(run) => run.routine_run_id} empty="It has not run." columns=${RUN_COLUMNS} />
      <h2>Specification</h2><${Json} value=${specOf(load.value)} />`}
  </${Page}>`;
}

function View({ routine, reload }) {
  const does = (word, body) => () => post(`${path`routines/${routine.name}`}/${word}`, body);
  const fixed = FIXED[routine.origin];
  return html`
    <h2><${Text} value=${routine.name} /></h2>
    ${routine.description && html`<${Text} of="p" value=${routine.description} />`}
    <p><${Enabled} routine=${routine} /></p>
    ${fixed && html`<p class="hint">${fixed}</p>`}
    <p class="row">
      <${RunNow} name=${routine.name} kind="primary" done=${reload} />
      <${Act} action=${does(routine.enabled ? 'disable' : 'enable')} done=${reload}>
        ${routine.enabled ? 'Disable' : 'Enable'}</${Act}>
      ${!fixed && html`<${Go} class="button" to=${`routines/edit/${encodeURIComponent(routine.name)}`}>Edit</${Go}>
        <${Act} kind="danger" confirm=${`Delete the routine ${routine.name}?`} action=${() => del(path`routines/${routine.name}`)}
          done=${() => { location.hash = '#/routines'; }}>Delete</${Act}>`}
    </p>
    <h2>${routine.action.mode === 'full_job' ? 'Task' : 'Prompt'}</h2>
    <${Text} of="pre" value=${routine.action.task ?? routine.action.prompt} />
    <${Facts} of=${facts(routine)} />
    <${Grants} grants=${routine.allow} kind="routines" id=${routine.name} done=${reload} fixed=${Boolean(fixed)} />`;
}

const told = ({ on_attention: report, on_failure: failure, on_success: success }) => [
  report && 'reports', failure && 'failures', success && 'successes'].filter(Boolean).join(', ') || 'nothing';

const facts = ({ trigger, action, guard, notify, ...routine }) => [
  ['Id', html`<${Code} value=${routine.routine_id} />`],
  ['Trigger', html`<${Text} value=${triggerText(trigger)} />`],
  ['Missed times', trigger.kind === 'schedule' && misfireText(trigger.misfire)],
  ['Work', action.mode === 'full_job' ? 'a job' : `a few model calls, ${action.use_tools ? 'with tools' : 'without tools'}`],
  ['Files', action.files?.length > 0 && html`<${Text} value=${action.files.join(', ')} />`],
  ['Cooldown', guard.cooldown_s ? seconds(guard.cooldown_s) : 'none'],
  ['At the same time', guard.max_concurrent],
  ['Same content starts it once in', guard.dedup_window_s > 0 && seconds(guard.dedup_window_s)],
  ['Disabled after', guard.max_failures ? `${guard.max_failures} failures in a row` : 'never'],
  ['Failures in a row', routine.failures],
  ['Runs', routine.routine_runs],
  ['Last run', html`<${Time} at=${routine.fired_at} />`],
  ['Sends', told(notify)],
  ['To', notify.to && html`<${Text} value=${`${notify.to.channel}: ${notify.to.conversation}`} />`],
  ['Made by', html`<${Text} value=${`${routine.creator.principal} (${routine.channel})`} />`],
  ['Made in', html`<${Text} value=${routine.made_in} />`],
  ['Created', exact(routine.created_at)],
  ['Changed', `${exact(routine.changed_at)}, revision ${routine.revision}`],
];

/** Asks whether a routine would run at a local time of its zone. */
export function TestAt({ test, zone = 'UTC' }) {
  const [at, set] = useState('');
  const [found, show] = useState();
  const [run, { busy, error }] = useAction(async () => show(await test(at)));
  return html`<form class="filters row" onSubmit=${(event) => { event.preventDefault(); show(undefined); run(); }}>
      <label>Time in ${visible(zone)}
        <input type="datetime-local" required value=${at} onInput=${(event) => set(event.currentTarget.value)} /></label>
      <button type="submit" disabled=${busy || !at}>Test</button>
    </form>
    <div role="status"><${Failure} error=${error} />${found && html`<${Tested} found=${found} />`}</div>`;
}

const Tested = ({ found }) => html`<p>
  <strong>${found.fires ? 'It would run' : 'It would not run'}</strong> at
  ${' '}<${Text} value=${`${found.at.local} (${found.at.zone})`} />.
  ${found.next ? html` The next time after it is <${Text} value=${found.next.local} />.` : ' There is no time after it.'}
  ${found.disabled_detail !== undefined && html` It is disabled: <${Text} value=${found.disabled_detail} />`}</p>`;
