import { addressSet } from '../limit/address.ts';
import type { Risk, RiskSettings } from './model.ts';
import { risks } from './model.ts';

/** What is known of a caller that says how much to trust it. */
export interface RiskSigns {
  /** Canonical. */
  readonly address: string;
  /** The word of the risk header, from a trusted edge; never from a caller. */
  readonly edgeWord?: string;
  /** Accounts seen on this device. */
  readonly accounts?: number;
  readonly forgedPass?: boolean;
}

/**
 * The risk of a caller: the worst of all signs, `low` without any. `trusted` is only ever said by an
 * edge or a prefix list, and one bad sign undoes it.
 */
export function riskAssessor(settings: RiskSettings): (signs: RiskSigns) => Risk {
  const lists = settings.prefixes.map(({ risk, ranges }) => ({ risk, holds: addressSet(ranges) }));
  return (signs) => {
    let worst: Risk | undefined;
    const say = (risk: Risk | undefined): void => {
      if (risk === undefined) return;
      if (worst === undefined || risks.indexOf(risk) > risks.indexOf(worst)) worst = risk;
    };
    say(risks.find((risk) => risk === signs.edgeWord));
    for (const { risk, holds } of lists) if (holds(signs.address)) say(risk);
    const { accountsPerDevice, forgedPass } = settings;
    if (accountsPerDevice !== undefined && (signs.accounts ?? 0) > accountsPerDevice.more) {
      say(accountsPerDevice.risk);
    }
    if (signs.forgedPass === true) say(forgedPass ?? 'high');
    return worst ?? 'low';
  };
}
