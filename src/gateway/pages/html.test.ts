import { fc } from '../../../test/support/property.ts';
import { describe, expect, it } from 'vitest';
import { attr, escapeHtml, html, trusted } from './html.ts';

describe('html', () => {
  it('escapes whatever is interpolated', () => {
    const evil = `<img src=x onerror="alert('1')">&\``;
    expect(html`<p>${evil}</p>`.text).toBe(
      '<p>&lt;img src=x onerror=&quot;alert(&#39;1&#39;)&quot;&gt;&amp;&#96;</p>',
    );
    expect(html`<a title="${evil}">x</a>`.text).not.toMatch(/<img|"alert|onerror="/);
  });

  it('never lets a value leave its place, whatever the value', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), (value) => {
        const text = html`<p title="${value}">${value}</p>`.text;
        expect(text.match(/</g)).toHaveLength(2);
        expect(text.match(/>/g)).toHaveLength(2);
        expect(text.match(/"/g)).toHaveLength(2);
        expect(text).not.toMatch(/['`]/);
      }),
    );
  });

  it('has a negative control: without escaping the property above would fail', () => {
    const unescaped = `<p title="${'"><script>'}"></p>`;
    expect(unescaped.match(/</g)?.length).toBeGreaterThan(2);
  });

  it('nests markup, lists and nothing', () => {
    const items = ['a', '<b>'].map((item) => html`<li>${item}</li>`);
    expect(html`<ul>${items}${false}${null}${undefined}${0}</ul>`.text).toBe(
      '<ul><li>a</li><li>&lt;b&gt;</li>0</ul>',
    );
    expect(html`<i>${trusted('<b></b>')}</i>`.text).toBe('<i><b></b></i>');
  });

  it('writes attributes inside tags only', () => {
    expect(html`<input ${attr('disabled', true)} ${attr('value', '"x"')}>`.text).toBe(
      '<input disabled value="&quot;x&quot;">',
    );
    expect(html`<input ${attr('disabled', false)}>`.text).toBe('<input >');
    expect(() => html`<p>${attr('hidden', true)}</p>`).toThrow(/only inside a tag/);
    expect(() => attr('onclick', 'x')).toThrow(/no on/);
    expect(() => attr('style', 'x')).toThrow(/no style/);
  });

  it('refuses places where escaping is not enough', () => {
    expect(() => html`<a href=${'x'}>y</a>`).toThrow(/unquoted/);
    expect(() => html`<script>${'x'}</script>`).toThrow(/script/);
    expect(() => html`<style>${'x'}</style>`).toThrow(/script, style/);
    expect(() => html`<!-- ${'x'} -->`).toThrow(/comment/);
    expect(() => html`<${'x'}>`).toThrow(/unquoted/);
    expect(() => html`<a ${'x'}>y</a>`).toThrow(/only attr/);
    expect(() => html`<a title="${html`<b></b>`}">y</a>`).toThrow(/inside an attribute/);
    expect(html`<title>${'<x>'}</title>`.text).toBe('<title>&lt;x&gt;</title>');
  });

  it('escapes each of the six characters', () => {
    expect(escapeHtml(`&<>"'\``)).toBe('&amp;&lt;&gt;&quot;&#39;&#96;');
  });
});
