import { execFileSync } from 'node:child_process';

/** Stops a process and returns once it stands still: the signal alone takes effect a moment later. */
export async function freeze(pid: number | undefined): Promise<void> {
  if (pid === undefined) throw new Error('no process to freeze');
  process.kill(pid, 'SIGSTOP');
  for (let tries = 0; ; tries += 1) {
    const state = execFileSync('ps', ['-o', 'stat=', '-p', String(pid)], { encoding: 'utf8' });
    if (state.startsWith('T')) return;
    if (tries > 500) throw new Error(`process ${pid} does not stop: ${state}`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}
