import fc from 'fast-check';

/**
 * Properties draw the same cases in every run of the ordinary suite, so that it says the same thing
 * about the same code; the long suite draws new ones each time, and prints the seed of what it finds.
 */
if (process.env['SLUICE_LONG'] !== '1') fc.configureGlobal({ seed: 20_261_129 });

export { fc };
