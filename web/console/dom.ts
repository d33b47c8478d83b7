/** Elements without a framework. Text always goes in as text: nothing is parsed as markup. */
export type Child = Node | string | number | false | null | undefined;

type Attributes = Readonly<
  Record<string, string | number | boolean | undefined | ((event: Event) => void)>
>;

function fill(element: Element, attributes: Attributes, children: readonly Child[]): void {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === 'function') element.addEventListener(name, value);
    else if (value === true) element.setAttribute(name, '');
    else if (value !== false && value !== undefined) element.setAttribute(name, String(value));
  }
  for (const child of children)
    if (child !== false && child !== null && child !== undefined)
      element.append(typeof child === 'number' ? String(child) : child);
}

export function h<Name extends keyof HTMLElementTagNameMap>(
  name: Name,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[Name] {
  const element = document.createElement(name);
  fill(element, attributes, children);
  return element;
}

export function svg(name: string, attributes: Attributes = {}, ...children: Child[]): SVGElement {
  const element = document.createElementNS('http://www.w3.org/2000/svg', name);
  fill(element, attributes, children);
  return element;
}

/** Writes text only where it changed, so that a screen reader or a selection is left in peace. */
export function setText(element: Element, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}

/** Brings a table's body to these rows, touching only cells that changed. */
export function setRows(body: HTMLTableSectionElement, rows: readonly (readonly string[])[]): void {
  while (body.rows.length > rows.length) body.deleteRow(-1);
  rows.forEach((cells, at) => {
    const row = body.rows[at] ?? body.insertRow();
    cells.forEach((text, column) => {
      const cell =
        row.cells[column] ?? row.appendChild(document.createElement(column === 0 ? 'th' : 'td'));
      if (column === 0) cell.setAttribute('scope', 'row');
      setText(cell, text);
    });
  });
}

/** A table with its heads; numbers stand right where `numeric` says so. */
export function table(
  caption: string,
  heads: readonly string[],
): { readonly element: HTMLElement; readonly body: HTMLTableSectionElement } {
  const body = h('tbody');
  const element = h(
    'div',
    { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': caption },
    h(
      'table',
      {},
      h('caption', { class: 'unseen' }, caption),
      h('thead', {}, h('tr', {}, ...heads.map((head) => h('th', { scope: 'col' }, head)))),
      body,
    ),
  );
  return { element, body };
}
