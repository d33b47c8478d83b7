// Makes sure that the programs are there which tests run against: a browser and real servers.
// On Debian and Ubuntu, as root, missing ones are installed; elsewhere it says what to install.
// Tests start these programs themselves, on free ports and in temporary folders; no service is used
// that the system runs.
import { spawnSync } from 'node:child_process';
import { accessSync, constants, existsSync, readFileSync, readdirSync } from 'node:fs';
import { delimiter, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { prepareKafka } from './kafka-jars.mjs';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');

/** What is needed, where it is looked for, and what brings it on Debian and elsewhere. */
export const programs = [
  {
    name: 'chromium',
    files: ['/usr/bin/chromium'],
    debian: 'chromium',
    why: 'pages in a real browser',
  },
  {
    name: 'postgres',
    files: postgresFiles(),
    debian: 'postgresql',
    why: 'orders on a real PostgreSQL',
  },
  {
    name: 'redis-server',
    files: onPath('redis-server'),
    debian: 'redis-server',
    why: 'stores on a real Redis',
  },
  { name: 'nginx', files: onPath('nginx'), debian: 'nginx-light', why: 'a real proxy in front' },
  {
    name: 'nats-server',
    files: onPath('nats-server'),
    debian: 'nats-server',
    why: 'orders over a real NATS',
  },
  {
    name: 'java',
    files: onPath('java'),
    debian: 'default-jre-headless',
    why: 'orders over a real Kafka',
  },
  { name: 'mvn', files: onPath('mvn'), debian: 'maven', why: 'fetching that Kafka' },
];

/** No program: fetched by one. */
const kafka = {
  name: 'kafka',
  debian: 'maven',
  why: 'orders over a real Kafka; mvn could not fetch it from Maven Central',
};

function onPath(name) {
  const folders = (process.env.PATH ?? '').split(delimiter).concat('/usr/sbin', '/usr/local/sbin');
  return [...new Set(folders)]
    .filter((folder) => folder !== '')
    .map((folder) => join(folder, name));
}

function postgresFiles() {
  const base = '/usr/lib/postgresql';
  if (!existsSync(base)) return [];
  return readdirSync(base).map((version) => join(base, version, 'bin', 'postgres'));
}

function isProgram(file) {
  try {
    accessSync(file, constants.X_OK);
    return true;
  } catch {
    return false; // Not there, or not to be run: either way it is missing.
  }
}

const isThere = ({ name, files }) =>
  (name === 'postgres' ? postgresFiles() : files).some(isProgram);

/** Programs that are not there. */
export const missing = () => programs.filter((program) => !isThere(program));

function isDebian() {
  if (!existsSync('/etc/os-release') || !existsSync('/usr/bin/apt-get')) return false;
  return /^(?:ID|ID_LIKE)=.*\b(?:debian|ubuntu)\b/m.test(readFileSync('/etc/os-release', 'utf8'));
}

function aptGet(...args) {
  const { status } = spawnSync('apt-get', ['-q', ...args], {
    stdio: ['ignore', 'inherit', 'inherit'],
    env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive' },
    timeout: 8 * 60_000,
  });
  return status === 0;
}

/** Installs what is missing where it can. Returns what is missing still. */
export function setUp() {
  const absent = installMissing();
  const unable = absent.some(({ name }) => name === 'java' || name === 'mvn');
  return unable || prepareKafka(root) ? absent : [...absent, kafka];
}

function installMissing() {
  const absent = missing();
  if (absent.length === 0) return [];
  const packages = absent.map(({ debian }) => debian);
  if (isDebian() && process.getuid?.() === 0) {
    console.log(`setup: installing ${packages.join(', ')}`);
    // A list that is fresh enough needs no update; an install that fails gets one, and a second try.
    const install = () => aptGet('install', '-y', '--no-install-recommends', ...packages);
    if (!install()) {
      aptGet('update');
      install();
    }
  }
  return missing();
}

/** What a person should do about it. */
export function advice(absent) {
  const lines = absent.map(({ name, why }) => `  ${name.padEnd(14)} for ${why}`);
  const packages = absent.map(({ debian }) => debian).join(' ');
  const how = isDebian()
    ? `Run as root:  apt-get update && apt-get install -y --no-install-recommends ${packages}`
    : `Install them by your system's means (on Debian: apt-get install ${packages}); Chromium must be /usr/bin/chromium.`;
  return `setup: missing for the tests:\n${lines.join('\n')}\n${how}`;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const absent = setUp();
  if (absent.length > 0) {
    console.error(advice(absent));
    process.exit(1);
  }
  console.log(`setup: all there (${programs.map(({ name }) => name).join(', ')})`);
}
