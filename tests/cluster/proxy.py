"""A TCP proxy between one daemon and the database. Its connections can be cut, held back or slowed."""

import asyncio
import threading

# Pieces that one direction holds before it stops reading.
QUEUE = 256
# How long connections may take to end, in seconds.
END_S = 3


class Proxy:
    """Listens on a free port of 127.0.0.1. All methods return at once, and may be called from any thread."""

    def __init__(self, target):
        self.target, self.delay_s, self.is_cut = target, 0.0, False
        self.writers, self.flows = set(), asyncio.Event()
        self.flows.set()
        self.loop, ready = asyncio.new_event_loop(), threading.Event()
        self.port = None

        async def listen():
            server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
            self.port = server.sockets[0].getsockname()[1]
            ready.set()

        self.loop.create_task(listen())
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        ready.wait()

    def cut(self):
        """Ends all connections. New ones are closed at once."""
        self.loop.call_soon_threadsafe(self.now_cut)

    def silence(self):
        """Nothing passes any more, and nobody learns of it: connections stay open, and new ones get no answer."""
        self.loop.call_soon_threadsafe(self.flows.clear)

    def slow(self, seconds):
        """Each piece arrives so much later."""
        self.delay_s = seconds

    def heal(self):
        """Everything passes again. Pieces that were held back arrive now."""
        self.delay_s = 0.0
        self.loop.call_soon_threadsafe(self.now_heal)

    def close(self):
        self.cut()
        self.heal()
        asyncio.run_coroutine_threadsafe(self.ended(), self.loop).result(2 * END_S)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()

    async def ended(self):
        """Waits for the end of all connections."""
        own, deadline = asyncio.current_task(), self.loop.time() + END_S
        while len(asyncio.all_tasks()) > 1 and self.loop.time() < deadline:
            await asyncio.sleep(0.02)
        for task in asyncio.all_tasks() - {own}:
            task.cancel()

    def now_cut(self):
        self.is_cut = True
        for writer in list(self.writers):
            writer.transport.abort()

    def now_heal(self):
        self.is_cut = False
        self.flows.set()

    async def serve(self, reader, writer):
        if self.is_cut:
            writer.transport.abort()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        ends = (writer, far_writer)
        self.writers.update(ends)
        try:
            await asyncio.gather(self.pass_on(reader, far_writer), self.pass_on(far_reader, writer))
        finally:
            self.writers.difference_update(ends)

    async def pass_on(self, reader, writer):
        """Passes one direction on, until one end closes it."""
        queue = asyncio.Queue(QUEUE)
        sender = self.loop.create_task(self.send(queue, writer))
        try:
            while data := await reader.read(65536):
                await queue.put((self.loop.time() + self.delay_s, data))
        except OSError:
            pass
        await queue.put((0, None))
        await sender

    async def send(self, queue, writer):
        is_open = True
        while True:
            due, data = await queue.get()
            if data is None:
                break
            await asyncio.sleep(max(0.0, due - self.loop.time()))
            await self.flows.wait()
            try:
                if is_open:
                    writer.write(data)
                    await writer.drain()
            except OSError:
                is_open = False  # the queue is still emptied, so that its reader ends
        writer.close()
