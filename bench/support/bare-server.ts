import { createServer } from 'node:http';

/** A bare `node:http` server that answers every request with these bytes; its port. */
export function bareServer(answer: string): Promise<number> {
  const split = answer.indexOf('\r\n\r\n');
  const [first = '', ...lines] = answer.slice(0, split).split('\r\n');
  const status = Number(first.slice(9, 12));
  // Node adds these three itself, to this server as to ours.
  const headers = lines
    .filter((line) => !/^(date|connection|keep-alive):/i.test(line))
    .flatMap((line) => {
      const colon = line.indexOf(':');
      return [line.slice(0, colon), line.slice(colon + 2)];
    });
  const body = answer.slice(split + 4);
  const server = createServer((_request, response) => {
    response.writeHead(status, headers);
    response.end(body);
  });
  return new Promise((resolve) => {
    server.listen(0, '127.0.0.1', () => {
      const address = server.address();
      resolve(typeof address === 'object' && address !== null ? address.port : 0);
    });
  });
}
