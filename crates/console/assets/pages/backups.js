// Backups: those that exist, the next one, the last failure, and one now.

import { html, useState } from '../vendor/preact.js';
import { get, post } from '../lib/api.js';
import { Squares, counted } from '../lib/chart.js';
import { now } from '../lib/clock.js';
import { bytes, exact } from '../lib/format.js';
import { useLoad } from '../lib/hooks.js';
import { Act, Code, Facts, Loaded, Page, State, Table, Text, Time } from '../lib/ui.js';

export default function Backups() {
  const load = useLoad((signal) => get('backups', {}, signal), [], { every: 60000 });
  const [key, withKey] = useState(false);
  const [made, say] = useState();
  return html`<${Page} title="Backups">
    <p class="row">
      <${Act} kind="primary" action=${() => post('backups', { with_key: key })}
        done=${(backup) => { say(backup); load.reload(); }}>Make a backup now</${Act}>
      <label class="check"><input type="checkbox" checked=${key} onChange=${(event) => withKey(event.currentTarget.checked)} />
        With the key of the vault</label>
    </p>
    <p class="hint">A backup is verified after it is written. Everybody who has one with the key can read all secrets.</p>
    <div role="status">${made && html`<p>Made and verified: <${Code} value=${made.file} /></p>`}</div>
    <${Loaded} load=${load}>${(report) => html`
      ${report.last_failure && html`<p class="failure" role="alert">The last backup failed:
        ${' '}<${Text} value=${report.last_failure.detail} /> <${Time} at=${report.last_failure.at} /></p>`}
      <${Facts} of=${[
        ['Last success', html`<${Time} at=${report.backups.find((backup) => !backup.problem)?.created} />`],
        ['Next', report.next ? html`<${Time} at=${report.next} /> (${exact(report.next)})`
          : 'none is scheduled; the setting backup.every_hours schedules them'],
        ['Backups', report.backups.length],
        ['Size of all', bytes(report.backups.reduce((sum, backup) => sum + backup.bytes, 0))],
      ]} />
      <p><${Days} backups=${report.backups} failure=${report.last_failure} /> <span class="soft small">the last ${DAYS} days</span></p>
      <${Table} rows=${report.backups} keyOf=${(backup) => backup.file} empty="There is no backup." columns=${COLUMNS} />
      <p class="hint">The commands <code>belay backup verify</code> and <code>belay backup restore</code>
        read them.</p>`}</${Loaded}>
  </${Page}>`;
}

const DAYS = 14;
const dayOf = (at) => new Date(at).toISOString().slice(0, 10);
/** A square for each UTC day, today at the right: whether a backup was made. */
function Days({ backups, failure }) {
  const squares = Array.from({ length: DAYS }, (_, i) => {
    const day = dayOf(now() - (DAYS - 1 - i) * 86400e3);
    const made = backups.filter((backup) => !backup.problem && dayOf(backup.created) === day).length;
    if (made) return ['good', `${day}: ${made} made`, 'with a backup'];
    return failure && dayOf(failure.at) === day ? ['bad', `${day}: failed`, 'failed'] : ['muted', `${day}: none`, 'without one'];
  });
  return html`<${Squares} squares=${squares} label=${`The last ${DAYS} days: ${counted(squares.map(([, , word]) => word))}`} />`;
}

const COLUMNS = [
  ['Made', (backup) => html`<span><${Time} at=${backup.created} /><br /><small>${exact(backup.created)}</small></span>`],
  ['State', (backup) => (backup.problem
    ? html`<span><${State} value="unusable" tone="bad" /><br /><${Text} value=${backup.problem} /></span>`
    : html`<${State} value=${backup.verified ? 'verified' : 'not verified'} tone=${backup.verified ? 'good' : 'ask'} />`)],
  ['Key of the vault', (backup) => (backup.with_key ? html`<${State} value="inside" tone="ask" />` : 'not inside')],
  ['Size', (backup) => bytes(backup.bytes), 'number'],
  ['Version', (backup) => html`<${Text} value=${backup.program ?? '–'} />`],
  ['File', (backup) => html`<${Code} value=${backup.file} />`],
];
