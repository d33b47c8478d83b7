import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { expect, test } from 'vitest';
import { systemRandom, systemTimers } from '../../app/system.ts';
import { openPool } from './pool.ts';

/** One message of the server's: type, length, body. */
function message(type: string, body: Buffer): Buffer {
  const head = Buffer.alloc(5);
  head.write(type);
  head.writeInt32BE(body.length + 4, 1);
  return Buffer.concat([head, body]);
}

test('a connection that is ended in the same breath in which it is ready ends no process', async () => {
  const ready = Buffer.concat([
    message('R', Buffer.alloc(4)),
    message('Z', Buffer.from('I')),
    message('E', Buffer.from('SFATAL\0C57P01\0Mterminating connection\0\0')),
  ]);
  const server = createServer((socket) => {
    socket.on('error', () => undefined);
    socket.once('data', () => socket.end(ready));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const pool = openPool({
    url: `postgres://sluice@127.0.0.1:${port}/sluice`,
    timers: systemTimers,
    random: systemRandom,
  });
  // Nobody listening to it would be an uncaught error, which fails this run.
  await expect(pool.query('SELECT 1')).rejects.toThrow();
  await pool.close();
  server.close();
});
