/**
 * CSV by RFC 4180, safe to open in a spreadsheet: a cell that a spreadsheet would take for a formula
 * (it begins with = + - @ or a control character) gets an apostrophe in front, because user ids and
 * reasons are other people's words.
 */
export type Cell = string | number | undefined;

export function csvLine(cells: readonly Cell[]): string {
  return `${cells.map(csvCell).join(',')}\r\n`;
}

function csvCell(cell: Cell): string {
  if (cell === undefined) return '';
  if (typeof cell === 'number') return String(cell);
  const safe = /^[=+\-@\t\r\n]/.test(cell) ? `'${cell}` : cell;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

export function instantCell(atMs: number | undefined): Cell {
  return atMs === undefined ? undefined : new Date(atMs).toISOString();
}
