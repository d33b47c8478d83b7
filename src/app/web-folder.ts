import { fileURLToPath } from 'node:url';

/** Where the build puts the bundles of one page. */
export function webFolder(name: 'console' | 'storefront'): string {
  return fileURLToPath(new URL(`../web/${name}`, import.meta.url));
}
