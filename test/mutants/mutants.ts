/**
 * Bugs as people write them, planted one at a time into the product's sources as they are loaded for a
 * simulation. The product knows nothing of them. Each must be caught: a simulator that finds nothing
 * has only shown that it looks away.
 */
export interface Mutant {
  readonly name: string;
  /** What somebody might have thought. */
  readonly thought: string;
  readonly edits: readonly Edit[];
}

export interface Edit {
  readonly file: string;
  /** Stands there once. */
  readonly find: string;
  readonly put: string;
}

const mutant = (name: string, thought: string, ...edits: readonly Edit[]): Mutant => ({
  name,
  thought,
  edits,
});
const edit = (file: string, find: string, put: string): Edit => ({ file, find, put });

const stock = 'src/core/stock/sku-stock.ts';
const machine = 'src/core/stock/stock-machine.ts';
const outbox = 'src/core/stock/outbox.ts';
const orderWorker = 'src/workers/order-worker.ts';
const settle = 'src/workers/settle.ts';
const rebuild = 'src/workers/rebuild.ts';
const flags = 'src/pipeline/sold-out-flags.ts';
const batcher = 'src/pipeline/reserve-batcher.ts';
const pipeline = 'src/pipeline/pipeline.ts';
const pass = 'src/core/pass/pass.ts';
const money = 'src/core/orders/judge-payment.ts';
const budget = 'src/core/limit/budget.ts';

export const mutants: readonly Mutant[] = [
  mutant(
    'second-order-for-a-request',
    'the limit of a person keeps a retry from a second order',
    edit('src/core/orders/decide-batch.ts', "  if (again) return 'refused';\n", ''),
  ),
  mutant(
    'nonce-not-checked',
    'the request id says it all',
    edit(stock, "    if (this.#nonces.has(request.nonce)) return { kind: 'nonce_used' };\n", ''),
  ),
  mutant(
    'limit-off-by-the-quantity',
    'whoever has less than the limit may buy',
    edit(
      stock,
      'if ((person?.units ?? 0) + request.quantity > request.limit)',
      'if ((person?.units ?? 0) >= request.limit)',
    ),
  ),
  mutant(
    'one-unit-too-many',
    'not below zero means one more',
    edit(
      stock,
      'if (this.available < request.quantity) return',
      'if (this.available < request.quantity - 1) return',
    ),
  ),
  mutant(
    'fingerprint-not-compared',
    'a retry is a retry',
    edit(
      stock,
      'return known.fingerprint === request.fingerprint\n',
      'return known.requestId === request.requestId\n',
    ),
  ),
  mutant(
    'restock-twice',
    'releasing is harmless',
    edit(stock, "        return reservation.state !== 'released';\n", '        return true;\n'),
  ),
  mutant(
    'paused-sells-on',
    'the doors are closed elsewhere',
    edit(
      machine,
      "    if (stock.paused) return { reply: { kind: 'paused', mark: stock.mark() }, step: undefined };\n",
      '',
    ),
  ),
  mutant(
    'given-back-into-nowhere',
    'the visibility time will do',
    edit(
      outbox,
      'if (this.pending.get(number)?.attempts !== attempt || !this.#out.delete(number)) return false;\n    this.#return(number);',
      'if (this.pending.get(number)?.attempts !== attempt || !this.#out.delete(number)) return false;',
    ),
  ),
  mutant(
    'visibility-never-ends',
    'consumers do not die',
    edit(outbox, '      if (dueUs > nowUs) break;\n', '      if (dueUs > 0) break;\n'),
  ),
  mutant(
    'acknowledge-before-commit',
    'fewer messages in flight',
    edit(
      orderWorker,
      '    let fates: readonly CommitFate[];\n    try {',
      '    let fates: readonly CommitFate[];\n    await this.#acknowledge(deliveries, tally);\n    try {',
    ),
  ),
  mutant(
    'acknowledge-before-settle',
    'the inventory will hear of it some day',
    edit(orderWorker, '    if (!(await this.#settle(deliveries, fates, tally))) return;\n', ''),
  ),
  mutant(
    'deadline-by-the-wall-clock',
    'a clock is a clock',
    edit(orderWorker, 'nowMs: this.#wall.nowMs(),', 'nowMs: this.#parts.clock.wallMs(),'),
  ),
  mutant(
    'expiry-by-the-wall-clock',
    'a clock is a clock',
    edit(
      'src/workers/expiry-worker.ts',
      'const nowMs = this.#wall.nowMs();',
      'const nowMs = this.#parts.clock.wallMs();',
    ),
  ),
  mutant(
    'restock-ticked-off-untold',
    'somebody else tells the inventory',
    edit(settle, '      await inventory.settle(sku, fates, nowMs);\n', ''),
  ),
  mutant(
    'restocks-forgotten',
    'one at a time is enough',
    edit(
      settle,
      '    await orders.restocksDone(done);\n',
      '    if (done.length > 1) await orders.restocksDone(done);\n',
    ),
  ),
  mutant(
    'rebuild-in-the-same-generation',
    'it is the same stock',
    edit(
      rebuild,
      '  await orders.raiseGeneration(sku, generation, { ...reason, nowMs: clock.wallMs() });\n',
      '',
    ),
  ),
  mutant(
    'rebuild-without-the-orders',
    'stock starts full',
    edit(
      rebuild,
      'for (const entry of orderPage) live.push(recordOf(entry, generation));',
      'for (const entry of orderPage.slice(1)) live.push(recordOf(entry, generation));',
    ),
  ),
  mutant(
    'older-epoch-accepted',
    'the last word is the newest',
    edit(flags, '    if (order < 0) return;\n', ''),
  ),
  mutant(
    'flag-trusted-over-the-winner',
    'sold out is sold out',
    edit(
      flags,
      "    if (personId !== undefined && flag.holders.mayHave(personId)) return 'pass';\n",
      '',
    ),
  ),
  mutant(
    'answers-change-hands',
    'a batch is a batch',
    edit(
      batcher,
      'waiting.resolve(results(at));',
      'waiting.resolve(results(batch.length - 1 - at));',
    ),
  ),
  mutant(
    'unknown-told-as-nothing-done',
    'no answer means no',
    edit(
      batcher,
      "  return error instanceof UnavailableError ? 'unavailable' : 'unknown';",
      "  return error instanceof UnavailableError ? 'unavailable' : 'unavailable';",
    ),
  ),
  mutant(
    'lane-never-free',
    'it is empty anyway',
    edit(batcher, '    lane.inFlight = false;\n  }\n', '  }\n'),
  ),
  mutant(
    'slot-leaks',
    'the limit adapts',
    edit(
      pipeline,
      '    submission.slots?.release(releaseOf(verdict, unavailable));\n',
      "    if (verdict.decision === 'handle') submission.slots?.release(releaseOf(verdict, unavailable));\n",
    ),
  ),
  mutant(
    'failures-not-accounted',
    'an error is no answer',
    edit(
      pipeline,
      '    this.#ledger.left(verdict.stage, exit, verdict.reason);\n',
      "    if (exit !== 'fail') this.#ledger.left(verdict.stage, exit, verdict.reason);\n",
    ),
  ),
  mutant(
    'expired-pass-still-good',
    'a pass is a pass',
    edit(
      'src/pipeline/stages/10-reserve.ts',
      '      if (pass.expired) {\n',
      '      if (pass.expired && pass.maxQuantity < 1) {\n',
    ),
  ),
  mutant(
    'signature-not-checked',
    'nobody guesses a pass',
    edit(
      'src/core/pass/token.ts',
      '  if (!key.verify(raw.slice(0, secondDot), raw.slice(secondDot + 1))) return refusals.signature;\n',
      '',
    ),
  ),
  mutant(
    'pass-of-somebody-else',
    'whoever holds it may use it',
    edit(pass, "  if (claims.userId !== expected.userId) return 'user';\n", ''),
  ),
  mutant(
    'lease-not-debited',
    'the store refills anyway',
    edit(budget, 'levelUnits: levelUnits - grantedMilli * bucket.unitsPerMilli,', 'levelUnits,'),
  ),
  mutant(
    'admission-cap-ignored',
    'waves are small',
    edit(
      'src/core/room/decide.ts',
      'newLastSecond: model.window.lastSecond(monoMs),',
      'newLastSecond: 0 * model.window.lastSecond(monoMs),',
    ),
  ),
  mutant(
    'active-cap-ignored',
    'people finish',
    edit('src/core/room/decide.ts', 'active: model.book.active,', 'active: 0 * model.book.active,'),
  ),
  mutant(
    'no-way-out-of-degraded',
    'it will get better',
    edit('src/core/overload/mode.ts', 'cleanCyclesDown: 5,', 'cleanCyclesDown: 1e9,'),
    edit('src/core/overload/mode.ts', 'longestStayMs: 60_000,', 'longestStayMs: 1e12,'),
  ),
  mutant(
    'money-for-a-cancelled-order-kept',
    'they may come back',
    edit(
      money,
      "return move('refund_due_cancelled', 'REFUND_DUE');",
      "return move('refund_due_cancelled', 'CONFIRMED');",
    ),
  ),
  mutant(
    'amount-not-compared',
    'providers do not err',
    edit(
      money,
      'if (event.amountMinor !== payment.amountMinor || event.currency !== payment.currency) {',
      'if (event.currency !== payment.currency) {',
    ),
  ),
  mutant(
    'unknown-payments-forgotten',
    'the callback will come',
    edit(
      'src/workers/payment-worker.ts',
      "const unfinished: readonly PaymentState[] = ['CREATED', 'PROCESSING', 'UNKNOWN'];",
      "const unfinished: readonly PaymentState[] = ['CREATED', 'PROCESSING'];",
    ),
  ),
  mutant(
    'payments-by-the-wall-clock',
    'a clock is a clock',
    edit(
      'src/workers/payment-worker.ts',
      'this.#wall = new SteadyWall(parts.clock);',
      'this.#wall = new SteadyWall(parts.clock, { toleranceMs: 1e15 });',
    ),
    edit(
      'src/workers/payment-service.ts',
      'this.#wall = new SteadyWall(parts.clock);',
      'this.#wall = new SteadyWall(parts.clock, { toleranceMs: 1e15 });',
    ),
  ),
  mutant(
    'loop-ends-with-its-first-failure',
    'failures are rare',
    edit(
      'src/workers/loop.ts',
      "      this.#options.onError(error);\n      return 'blocked';",
      "      this.#options.onError(error);\n      this.#stopping = true;\n      return 'blocked';",
    ),
  ),
  mutant(
    'two-places-for-one-person',
    'who joins again has left',
    edit(
      'src/stores/memory/admission-room.ts',
      'if (row >= 0 && (this.#flags.get(row) & flagLeft) === 0) return undefined;',
      'if (row < -1) return undefined;',
    ),
  ),
  mutant(
    'second-pass-for-one-release',
    'asking again is a new question',
    edit(
      'src/stores/memory/admission-room.ts',
      'if (claim >= 0 && this.#claimWave.get(claim) === request.wave && this.#isOpen(claim)) {',
      'if (claim >= 0 && this.#claimWave.get(claim) > request.wave && this.#isOpen(claim)) {',
    ),
  ),
  mutant(
    'claim-window-not-checked',
    'the gateway has looked',
    edit(
      'src/stores/memory/admission-room.ts',
      '    if (nowMs >= request.claimBeforeMs) return missed;\n',
      '',
    ),
  ),
  mutant(
    'shrink-below-zero',
    'the operator knows',
    edit(machine, '    if (stock.available + delta < 0)\n', '    if (stock.total + delta < 0)\n'),
  ),
  mutant(
    'acknowledged-twice-counts-twice',
    'it is only a counter',
    edit(outbox, 'if (pending !== undefined) this.acknowledged += 1;', 'this.acknowledged += 1;'),
  ),
  mutant(
    'old-generation-accepted',
    'a message is a message',
    edit(
      'src/core/orders/decide-batch.ts',
      "  if (message.generation < stock.generation) return 'lost';\n",
      '',
    ),
  ),
  mutant(
    'answered-before-the-journal',
    'disks are fast',
    edit(
      'src/stores/memory/inventory-store.ts',
      '    await this.engine.promised(step !== undefined);\n    return reply;',
      '    return reply;',
    ),
  ),
  mutant(
    'given-out-before-the-journal',
    'a message is not an answer',
    edit('src/queues/memory-queue.ts', '        await safe;\n', '        void safe;\n'),
  ),
  mutant(
    'confirmed-twice-refunds',
    'a second confirmation is a second payment',
    edit(
      money,
      "    case 'CONFIRMED':\n    case 'REFUND_DUE':\n    case 'REFUNDED':\n    case 'HELD':\n      return move('none');\n    case 'CREATED':",
      "    case 'REFUND_DUE':\n    case 'REFUNDED':\n    case 'HELD':\n      return move('none');\n    case 'CONFIRMED':\n    case 'CREATED':",
    ),
  ),
  mutant(
    'late-money-kept-without-a-unit',
    'an operator will see it',
    edit(
      money,
      "gone: { effect: 'refund_due_late', payment: 'REFUND_DUE' },",
      "gone: { effect: 'refund_due_late', payment: 'CONFIRMED' },",
    ),
  ),
  mutant(
    'emergency-budget-without-its-marker',
    'it is an emergency',
    edit(
      'src/stores/limits/shared-budgets.ts',
      'lease.openEmergency(granted ? emergencyTokens * 1000 : 0);',
      'lease.openEmergency(granted || emergencyTokens > 0 ? emergencyTokens * 1000 : 0);',
    ),
  ),
  mutant(
    'store-away-lets-in',
    'better to sell than to refuse',
    edit(
      'src/core/rules/live.ts',
      "    ({ live }) => live.rule.fail === 'closed' || live.rule.fail === 'local',\n",
      "    ({ live }) => live.rule.fail === 'local',\n",
    ),
  ),
  mutant(
    'leads-longer-than-the-lease',
    'renewing has always worked',
    edit(
      'src/control/leadership.ts',
      'this.#untilUs = askedUs + this.#leaseMs * (1 - margin) * 1_000;',
      'this.#untilUs = askedUs + this.#leaseMs * (3 - margin) * 1_000;',
    ),
  ),
];
