/** Passes and the other signed tokens: how each is made, and the one order in which it is checked. */
export * from './token.ts';
export * from './key-ring.ts';
export * from './pass.ts';
export * from './entry-token.ts';
export * from './user-token.ts';
export * from './decision-token.ts';
export * from './challenge.ts';
export * from './path-id.ts';
