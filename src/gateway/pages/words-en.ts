import { formatCount } from './format.ts';

const n = (count: number): string => formatCount('en', count);
const units = (count: number): string => (count === 1 ? '1 unit' : `${n(count)} units`);

/** Every word of the pages, in English. Its shape is what the other languages must fill. */
export const en = {
  skip: 'Skip to content',
  rehearsal: 'Rehearsal.',
  rehearsalText:
    'This is a copy of the sale for a trial run. Nothing here is for sale, and no order is real.',
  languageLabel: 'Language',
  home: 'All sales',
  back: 'Back to the sale',
  footerPromise:
    'Passing a limit is not buying, and a reservation is not an order. Only an order is, once it is written down.',
  yourRequest: 'Your latest request',
  yourRequestLink: 'See what became of it',

  steps: ['Join', 'Wait', 'Confirm', 'Order', 'Pay'],
  stepsLabel: 'Where you are',
  stepDone: 'done',

  homeTitle: 'On sale here',
  homeLead:
    'A fair turn for everyone: a draw anybody can check, a true answer at every step, and nothing sold twice.',
  homeEmpty: 'There is no sale at the moment.',
  homeEmptyMore: 'When one is announced, it will stand here.',
  cardOpen: (name: string) => `Open ${name}`,

  phase: {
    scheduled: 'Announced',
    lobby: 'Lobby open',
    open: 'On sale',
    sold_out: 'Sold out for now',
    closed: 'Closed',
  },
  opensIn: 'Opens in',
  lobbyOpensIn: 'Lobby opens in',
  closesIn: 'Closes in',
  ended: 'Over',

  timesTitle: 'Times',
  lobbyOpens: 'Lobby opens',
  saleOpens: 'Sale opens',
  saleCloses: 'Sale closes',
  inUtc: (instant: string) => `${instant} in UTC`,

  skusTitle: 'What is on sale',
  perPerson: (count: number) => `At most ${units(count)} per person`,
  availability: {
    plenty: 'Available',
    low: 'Few left',
    maybe_later: 'All taken; some may come back',
    sold_out: 'Sold out',
  },
  availabilityNote: 'A picture of this moment, not a promise.',

  joinLobby: 'Join the lobby',
  joinLine: 'Join the line',
  joinPlace: 'Go to my place',
  joinChoose: 'Which are you interested in?',
  joinNotYet: 'The lobby is not open yet. Joining early will bring no advantage.',
  joinSoldOut:
    'Everything is taken at the moment. Reservations that are not paid come back, so you may still join and wait.',
  joinClosed: 'This sale is over.',
  signIn: 'Sign in to join',
  signInText: 'This shop signs people in on its own page. Come back here afterwards.',

  workHeading: 'One moment before you join',
  workText:
    'Your device does a small calculation. One person does it once; whoever wants ten thousand places has to do it ten thousand times.',
  workAgainText:
    'The last answer was too old or already used, so there is another one to find. Nothing is lost: it did not count as joining.',
  workProgress: 'Calculation',
  workStarting: 'Starting…',
  workNoScript:
    'This step needs JavaScript, which is off in this browser. Turn it on for this page, or join on another device with the same account: your place is the same on all of them.',
  workByHand: 'Or find the answer with a program of your own',
  workByHandText: (bits: number) =>
    `Find a text n so that the SHA-256 of the code below, followed by a tilde (~) and n, begins with ${bits} zero bits. Send the code, the tilde and n.`,
  workAnswer: 'Answer',
  workSend: 'Send the answer and join',
  workPrivacy: 'Nothing about you or your device is read or sent. Joining sooner brings nothing.',
  vouchHeading: 'One step before you join',
  vouchText:
    'This sale asks another service to confirm that you are a person. It sends you back here afterwards.',
  vouchGo: (host: string) => `Go to ${host}`,
  vouchFine: 'It gets a one-time code, and not your account.',
  vouchedHeading: 'That is confirmed',
  vouchedText: 'Join now; the confirmation is good for a few minutes.',

  orderTitle: 'How the order is made',
  orderRule: {
    draw: 'Everyone who joins the lobby before the sale opens has the same chance: at opening the lobby is shuffled by a draw. Whoever comes later follows in order of arrival. Being early, fast or on many devices brings nothing.',
    fifo: 'In order of arrival. Your place is fixed when you join.',
    weighted:
      'By a draw with published weights: a signed entitlement may raise a chance, and how much is public.',
    quota:
      'Places are set aside for groups. There is a draw inside each; what is left over goes on by a published rule.',
    lottery: 'By a lottery: results are announced in batches, and those not drawn are told so.',
    passthrough: 'There is no waiting in this sale: everyone is let in.',
    reject: 'Nobody is let in at the moment.',
  } as Readonly<Record<string, string>>,
  onePlace: 'One person has one place, on however many devices or tabs it is open.',
  commitmentTitle: 'Check the draw yourself',
  commitmentText:
    'The secret of the draw was fixed before anybody joined. This is its SHA-256; the secret itself is published with the result.',
  commitmentNoBeacon:
    'No public beacon is mixed in: the fingerprint stops us from choosing a secret after seeing who joined.',
  commitmentBeacon: (name: string) =>
    `The public value “${name}”, known only after the lobby closes, is mixed in.`,
  checkpointText:
    'And this stands for everything decided so far. Note it: the file that is published afterwards must contain it.',

  roomTitle: 'Waiting room',
  lobbyHeading: 'You are in the lobby',
  lobbyText:
    'Everyone here has the same chance. The draw is made when the sale opens; there is nothing to do until then.',
  waitingHeading: 'You have a place',
  waitingText:
    'The draw is made. People are let in from the front, as fast as stock and system allow.',
  heldHeading: 'One moment, please',
  heldText:
    'The waiting room cannot take anybody in right now. Nothing is lost: please try again in a few seconds.',
  haltedText:
    'Nobody is let in at the moment: the sale has been stopped for a while. Your place is kept.',
  drawIn: 'The draw is made in',
  chanceDrawLabel: 'Your chance',
  placeLabelPlain: 'Your place',
  placeAfterDraw: 'Known after the draw',
  placeLabel: 'Your place, about',
  aheadLabel: 'Ahead of you, at most',
  waitLabel: 'Estimated wait',
  chanceLabel: 'Will stock reach you?',
  keepOpen: 'This page refreshes by itself.',
  leave: 'Leave the room',
  leaveSure: 'Your place goes to the next person. Joining again later makes you a later arrival.',
  leaveConfirm: 'Yes, give up my place',
  turnHeading: 'It is your turn',
  turnText: 'Take your pass before the time is up. Afterwards your turn goes to the next person.',
  turnLeft: 'Time left to begin',
  claim: 'Take my pass',
  claimChoose: 'Which one?',
  claimedHeading: 'You have your pass',
  claimedText: 'Go on to confirm what you want.',
  continue: 'Continue',
  missedHeading: 'Your turn has passed',
  missedText:
    'The time to begin ran out, so your turn went to the next person. You may join again.',
  turnOverText:
    'The pass of this turn has run out or has been used. You may join again and stand in line behind the others, as long as your limit allows.',
  leftHeading: 'You have left the room',
  leftText: 'Your place is given up. You may join again; you will be a later arrival.',
  notDrawnHeading: 'Not drawn this time',
  notDrawnText: 'The lottery is over and your entry was not among those drawn.',
  soldOutHeading: 'Sold out for now',
  soldOutText:
    'Everything has been reserved before your turn. You keep your place: if reservations come back unpaid, the line moves on.',
  closedHeading: 'This sale is over',
  closedText: 'The room is closed.',
  rejoin: 'Join again',

  confirmTitle: 'Confirm',
  confirmHeading: 'Almost there',
  confirmText:
    'Confirming asks for a reservation. You get an order if stock is there; only the order says that you have it.',
  passLeft: 'Your pass is valid for',
  quantity: 'How many?',
  total: 'Total',
  each: (price: string) => `${price} each`,
  confirm: 'Confirm',
  confirmFine: 'You pay after the order is written, not now.',

  requestTitle: 'Your request',
  queuedHeading: 'Reserved for you',
  queuedText:
    'Your request is taken in and units are held for you. The order is being written; this takes a moment. It is not an order yet.',
  unknownHeading: 'We do not know yet',
  unknownText:
    'A part of the system did not answer in time, so we cannot say whether your request went through. We keep asking for the same request; nothing will be bought twice.',
  soldOutOutcomeHeading: 'Sold out',
  soldOutOutcomeText:
    'There was no stock left for your request. Nothing was reserved and nothing is charged. Some may come back later.',
  alreadyHeading: 'You already have yours',
  alreadyText: 'The limit per person is used by what you have reserved or ordered.',
  alreadyOrder: 'Go to that order',
  expiredHeading: 'Not in time',
  expiredText: 'The reservation ran out and its units went back. Nothing is charged.',
  cancelledHeading: 'Cancelled',
  cancelledText: 'This request was cancelled. Nothing is charged.',
  refundedHeading: 'Refunded',
  refundedText: 'The payment goes back to you.',
  busyHeading: 'A lot of people at once',
  busyText: 'Your request was not taken in. Your pass is untouched: try again in a moment.',
  passExpiredHeading: 'Your pass has run out',
  passExpiredText:
    'A pass is valid for a short time only. Nothing was reserved. You may go back to the room.',
  lostHeading: 'Your reservation was lost',
  lostText:
    'A failure on our side lost it. Nothing is charged. You may try again with the same request.',
  rejectedHeading: 'This did not work',
  rejectedText: 'The request was refused. Nothing was reserved and nothing is charged.',
  notOpenHeading: 'Not open',
  notOpenText: 'The sale is not open at the moment, by our clock.',
  tryAgain: 'Try again',
  tryAgainIn: 'Useful again in',
  requestId: 'Request',

  orderPageTitle: 'Your order',
  orderPendingHeading: 'It is yours to pay',
  orderPendingText:
    'Your order is written. Pay before the time is up, or the units go to somebody else.',
  payLeft: 'Time left to pay',
  payBefore: 'Pay before',
  payDemo: 'Pay (demonstration)',
  payDemoFine: 'No money moves: this shop is a demonstration.',
  payElsewhere: 'Payment is made at the shop’s payment provider.',
  cancel: 'Cancel the order',
  cancelSure: 'The units go back on sale at once. This cannot be undone.',
  cancelConfirm: 'Yes, cancel it',
  payingHeading: 'Your payment is on its way',
  payingText:
    'The payment provider has it; this page asks again by itself. The order is yours once the payment is confirmed.',
  payAgain: 'Pay again',
  payAgainText:
    'Only needed if this takes longer than a minute. The same payment is used, so you cannot pay twice.',
  paidHeading: 'Paid. It is yours.',
  paidText: 'The order is paid and kept.',
  orderExpiredHeading: 'The order has expired',
  orderExpiredText: 'It was not paid in time, so its units went back on sale.',
  orderCancelledHeading: 'The order is cancelled',
  orderCancelledText: 'Its units went back on sale. Nothing is charged.',
  orderRefundedHeading: 'Refunded',
  orderRefundedText: 'The payment goes back to you.',
  orderNumber: 'Order',
  orderItem: 'Item',
  orderQuantity: 'Quantity',
  orderTotal: 'Total',
  orderMade: 'Written',
  orderPaid: 'Paid',
  orderState: 'State',
  orderStates: {
    PENDING_PAYMENT: 'Waiting for payment',
    PAID: 'Paid',
    EXPIRED: 'Expired',
    CANCELLED: 'Cancelled',
    REFUNDED: 'Refunded',
  },
  payRefused: 'The order could not be paid in its present state. This is where it stands:',
  cancelRefused: 'The order could not be cancelled in its present state. This is where it stands:',

  notFoundTitle: 'Nothing here',
  notFoundText: 'There is no such page, or it is not yours.',
  originTitle: 'Not from here',
  originText:
    'This change was asked for by another site, so it was not made. Open the page again and repeat it there.',
  badFormTitle: 'That form was not complete',
  badFormText: 'Something in the form was missing or not allowed.',
  limitedTitle: 'A little slower, please',
  limitedText: 'Too many requests came from your connection. Your place is not affected.',
  overloadedTitle: 'Very busy',
  overloadedText: 'We could not take this now. Your place is not affected.',
  unavailableTitle: 'One moment',
  unavailableText:
    'A part of the system does not answer. Nothing is lost; this page tries again by itself.',
  errorTitle: 'Something broke',
  errorText: 'The fault is ours. Your place and your orders are not affected.',
};

export type Words = typeof en;
