import { Type } from 'typebox';
import { passLifeDefaultMs } from '../core/bounds.ts';
import { pollBudgetDefault } from '../core/room/pace.ts';
import { choice, closed, text } from './schema-parts.ts';
import { formatDuration } from './values.ts';

/** `activities[].room` of the configuration file. */
export const room = Type.Object(
  {
    mode: choice(
      ['draw', 'fifo', 'weighted', 'quota', 'lottery', 'passthrough', 'reject'],
      'Order of release: `draw` shuffles the lobby at opening, `fifo` goes by arrival, `weighted` draws with the weights of `weight_claim`, `quota` draws inside each group of `quota`, `lottery` lets in those drawn and tells the others, `passthrough` lets everyone in, `reject` nobody.',
      'draw',
    ),
    pass_life: text('duration', 'How long a pass is valid.', {
      default: formatDuration(passLifeDefaultMs),
    }),
    claim_window: text('duration', 'How long an admitted person may wait before taking the pass.', {
      default: '60s',
    }),
    max_admissions: text('rate', 'New admissions, never more.', { default: '500/s' }),
    max_active: Type.Integer({
      minimum: 1,
      maximum: 10_000_000,
      default: 5_000,
      description: 'Admitted people who have not finished, never more.',
    }),
    lottery_places: Type.Optional(
      Type.Integer({
        minimum: 1,
        maximum: 10_000_000,
        description: 'How many a `lottery` draws.',
      }),
    ),
    weight_claim: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: 64,
        description:
          'Claim of the user token that holds the weight in a `weighted` draw; 1 without.',
      }),
    ),
    group_claim: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: 64,
        description: 'Claim of the user token that names the group of a `quota`.',
      }),
    ),
    quota: Type.Optional(
      Type.Array(
        Type.Object(
          {
            group: text('id', 'Value of the claim.'),
            places: Type.Integer({
              minimum: 1,
              maximum: 10_000_000,
              description: 'People of the group who are let in.',
            }),
          },
          closed,
        ),
        {
          minItems: 1,
          maxItems: 60,
          description: 'Places of each group; who is in none has none.',
        },
      ),
    ),
    leftover: choice(
      ['kept', 'to_all'],
      'What becomes of places that a group of a `quota` does not need: kept, or open to all in the drawn order.',
      'kept',
    ),
    beacon: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: 200,
        description:
          'A public value that nobody knows before the lobby closes, in words; it is mixed into the draw, and the opening waits for it.',
      }),
    ),
    challenge: Type.Optional(
      Type.Unsafe<'proof_of_work' | 'callback'>({
        type: 'string',
        enum: ['proof_of_work', 'callback'],
        description:
          'Asked of everyone before joining: `proof_of_work` is solved by the pages and the client by themselves, `callback` sends people to `challenge_provider`.',
      }),
    ),
    challenge_bits: Type.Optional(
      Type.Integer({
        minimum: 1,
        maximum: 20,
        description:
          'How hard the proof of work is, as leading zero bits of a hash (14 where `challenge` names it alone): each bit doubles it, and 14 take a phone a fifth of a second. Up to 6 more for a device that comes under many names, or a network that far more come from than from others.',
      }),
    ),
    bind_device: Type.Boolean({
      default: false,
      description:
        'Passes are good only with the `Sluice-Device` they were taken with. The pages of the shop send none: for apps.',
    }),
    poll_budget: text('rate', 'Questions that the whole room may ask; the pace of each follows.', {
      default: `${pollBudgetDefault.perSecond}/s`,
    }),
  },
  { ...closed, default: {}, description: 'The waiting room.' },
);
