// The specifications of routines as text.

/** The time in a zone, with the name of the zone. */
export function inZone(at, zone = 'UTC') {
  try {
    return `${new Date(at).toLocaleString('en-GB', { timeZone: zone, dateStyle: 'medium', timeStyle: 'short' })} ${zone}`;
  } catch {
    return `${new Date(at).toISOString()} (the browser does not know the zone ${zone})`;
  }
}

export function triggerText(trigger) {
  switch (trigger.kind) {
    case 'schedule': return `${trigger.when} (${trigger.zone ?? 'UTC'})`;
    case 'event': return `a message that matches ${trigger.pattern}${trigger.channel ? ` on ${trigger.channel}` : ''}`;
    case 'webhook': return `POST /hooks/${trigger.path}`;
    case 'system': return `the event ${trigger.event} of ${trigger.source}`;
    default: return 'by hand only';
  }
}

export const misfireText = (misfire) => (misfire === 'skip' ? 'recorded as missed'
  : misfire?.all ? `the newest ${misfire.all} run` : 'the newest one runs');

const SPEC = ['name', 'description', 'trigger', 'action', 'guard', 'notify', 'allow'];
/** The part of a stored routine that its author writes. */
export const specOf = (routine) => Object.fromEntries(
  SPEC.filter((key) => routine[key] !== undefined).map((key) => [key, routine[key]]));
