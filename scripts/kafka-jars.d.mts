/** Where the jars of the broker for tests are, or would be. `marker` is there once all of them are. */
export function kafkaJars(root: string): {
  readonly pom: string;
  readonly folder: string;
  readonly marker: string;
  readonly classPath: string;
};
/** Copies the jars unless they are there. Whether they are there now. */
export function prepareKafka(root: string): boolean;
