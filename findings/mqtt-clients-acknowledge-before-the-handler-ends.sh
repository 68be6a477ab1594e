#!/usr/bin/env bash
# Guess: with QoS 1 and a persistent session, a bot gets each message at least once. A client acknowledges a message
# when the handler has ended, so a message in whose handler the process ends comes again.
# Seen with paho-mqtt 2.2.0, aiomqtt 2.5.1, gmqtt 0.8.0 and amqtt 0.12.1 for Python, MQTT.js 5.16.0 for Node, and the
# broker aedes 1.2.0 (MQTT 3.1.1): only paho does. The others acknowledge a message when it is read, also messages that
# wait in a queue of the client, so a process that ends in its first handler loses all three. gmqtt waits for the
# handler with `optimistic_acknowledgement=False`. With MQTT.js a program has to replace `handleMessage` and call its
# callback. If the handler of paho raises an error, the thread of the client ends: the process gets no further message,
# and `is_connected()` stays true.
# Output seen (Python 3.11, Node 20.20.2): three messages wait, and the first process ends in its first handler
#   paho: the first process handles 1, the next one gets 1 2 3
#   aiomqtt: the first process handles 1, the next one gets none
#   gmqtt: the first process handles 1 2 3, the next one gets none
#   gmqtt, optimistic_acknowledgement=False: the first process handles 1 2 3, the next one gets 1 2 3
#   amqtt: the first process handles 1, the next one gets none
#   MQTT.js: the first process handles 1 2 3, the next one gets none
#   MQTT.js, handleMessage: the first process handles 1, the next one gets 1 2 3
#   paho, an error in the first handler: handles 1, is_connected() is True, threads: MainThread
set -euo pipefail
folder=$(mktemp -d)
trap '[ $? = 0 ] || cat "$folder/errors" || true; kill "${server:-}" 2>/dev/null || true; rm -rf "$folder"' EXIT
cd "$folder"
echo '{"private":true,"type":"module"}' >package.json
npm install --no-audit --no-fund --ignore-scripts mqtt@5.16.0 aedes@1.2.0 >log 2>&1
python3 -m venv v
v/bin/pip install --quiet --no-compile --disable-pip-version-check paho-mqtt==2.2.0 aiomqtt==2.5.1 gmqtt==0.8.0 amqtt==0.12.1 2>errors
cat >broker.js <<'JS'
import { createServer } from 'node:net';
import { Aedes } from 'aedes';

const server = createServer((await Aedes.createBroker()).handle);
server.listen(0, '127.0.0.1', () => console.log(server.address().port));
JS
mkfifo ready
node broker.js >ready &
server=$!
read -r port <ready
cat >bot.py <<'PY'
"""A bot with a persistent session. It subscribes and ends, or its first handler ends the process or raises an error, or it
shows what it gets until nothing more comes."""
import asyncio, os, sys, threading, time
import aiomqtt, amqtt.client, gmqtt, paho.mqtt.client

name, port, mode = sys.argv[1], int(sys.argv[2]), sys.argv[3]
gmqtt_settings = {"optimistic_acknowledgement": False} if "optimistic" in name else {}


def end():
    os._exit(0)


def begin(payload):
    print(bytes(payload).decode(), flush=True)
    if mode == "raise":
        raise RuntimeError


async def handle(payload):
    begin(payload)
    if mode == "end":
        await asyncio.sleep(2)
        end()


def handle_in_thread(payload):
    begin(payload)
    if mode == "end":
        time.sleep(2)
        end()


def with_paho():
    client = paho.mqtt.client.Client(paho.mqtt.client.CallbackAPIVersion.VERSION2, client_id=name, clean_session=False)
    subscribed = threading.Event()
    client.on_connect = lambda client, *_: client.subscribe("jobs", qos=1)
    client.on_subscribe = lambda *_: subscribed.set()
    client.on_message = lambda client, _, message: handle_in_thread(message.payload)
    client.connect("127.0.0.1", port)
    client.loop_start()
    subscribed.wait() if mode == "subscribe" else time.sleep(4)
    if mode == "raise":
        print(client.is_connected(), *(thread.name for thread in threading.enumerate()))
    client.disconnect()


async def with_aiomqtt():
    async with aiomqtt.Client("127.0.0.1", port, identifier=name, clean_session=False) as client:
        await client.subscribe("jobs", qos=1)
        if mode != "subscribe":
            async for message in client.messages:
                await handle(message.payload)


async def with_gmqtt():
    async def on_message(client, topic, payload, qos, properties):
        await handle(payload)
        return 0

    client = gmqtt.Client(name, clean_session=False, **gmqtt_settings)
    subscribed = asyncio.Event()
    client.on_subscribe = lambda *_: subscribed.set()
    client.on_message = on_message
    await client.connect("127.0.0.1", port, version=gmqtt.constants.MQTTv311)
    client.subscribe("jobs", qos=1)
    await (subscribed.wait() if mode == "subscribe" else asyncio.sleep(4))
    await client.disconnect()


async def with_amqtt():
    client = amqtt.client.MQTTClient(client_id=name, config={"auto_reconnect": False})
    await client.connect(f"mqtt://127.0.0.1:{port}", cleansession=False)
    await client.subscribe([("jobs", 1)])
    while mode != "subscribe":
        await handle((await client.deliver_message()).data)
    await client.disconnect()


if mode == "show":
    threading.Timer(4, end).start()
if name.startswith("paho"):
    with_paho()
else:
    asyncio.run({"aiomqtt": with_aiomqtt, "gmqtt": with_gmqtt, "amqtt": with_amqtt}[name.split(",")[0]]())
end()
PY
cat >bot.js <<'JS'
import mqtt from 'mqtt';

const [name, port, mode] = process.argv.slice(2);
const client = mqtt.connect(`mqtt://127.0.0.1:${port}`, { clientId: name, clean: false });
const handle = async (payload) => {
  console.log(String(payload));
  if (mode !== 'end') return;
  await new Promise((resolve) => setTimeout(resolve, 2000));
  process.exit();
};
if (name.includes('handleMessage')) client.handleMessage = ({ payload }, done) => handle(payload).then(() => done(), done);
else client.on('message', (_, payload) => handle(payload));
client.on('connect', async () => {
  await client.subscribeAsync('jobs', { qos: 1 });
  if (mode === 'subscribe') await client.endAsync();
});
if (mode === 'show') setTimeout(() => process.exit(), 4000);
JS
cat >publish.js <<'JS'
import mqtt from 'mqtt';

const client = await mqtt.connectAsync(`mqtt://127.0.0.1:${process.argv[2]}`);
for (const text of ['1', '2', '3']) await client.publishAsync('jobs', text, { qos: 1 });
await client.endAsync();
JS
bot() { # what a process with the named client gets, on one line
    case $1 in
    MQTT.js*) node bot.js "$1" "$port" "$2" ;;
    *) v/bin/python bot.py "$1" "$port" "$2" 2>>errors ;;
    esac | paste -sd ' '
}
show() {
    local first next
    bot "$1" subscribe
    node publish.js "$port"
    first=$(bot "$1" end)
    next=$(bot "$1" show)
    echo "$1: the first process handles ${first:-none}, the next one gets ${next:-none}"
}
{
    for name in paho aiomqtt gmqtt 'gmqtt, optimistic_acknowledgement=False' amqtt MQTT.js 'MQTT.js, handleMessage'; do
        show "$name"
    done
    name='paho, an error in the first handler'
    bot "$name" subscribe
    node publish.js "$port"
    read -r handled connected threads <<<"$(bot "$name" raise)"
    echo "$name: handles $handled, is_connected() is $connected, threads: $threads"
} | grep . | tee seen
diff seen - <<'TEXT'
paho: the first process handles 1, the next one gets 1 2 3
aiomqtt: the first process handles 1, the next one gets none
gmqtt: the first process handles 1 2 3, the next one gets none
gmqtt, optimistic_acknowledgement=False: the first process handles 1 2 3, the next one gets 1 2 3
amqtt: the first process handles 1, the next one gets none
MQTT.js: the first process handles 1 2 3, the next one gets none
MQTT.js, handleMessage: the first process handles 1, the next one gets 1 2 3
paho, an error in the first handler: handles 1, is_connected() is True, threads: MainThread
TEXT
