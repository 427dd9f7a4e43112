"""How the page looks, in light and in dark, and the script of its filter; nothing is loaded from anywhere."""

from __future__ import annotations

STYLE = """
:root { color-scheme: light dark;
  --ink: #1c2430; --soft: #566070; --line: #dfe4ea; --paper: #fff; --ground: #f4f6f8;
  --same: #17803d; --different: #c02626; --allowed: #945400; --unchecked: #626a77;
  --banner-same: #17803d; --banner-different: #b52222; --banner-problem: #945400;
  --wrong: #fdecec; --hint: #fdf6e8; --a: #2f62b5; --b: #b4611a; }
@media (prefers-color-scheme: dark) { :root {
  --ink: #e4e8ee; --soft: #a3adba; --line: #333c48; --paper: #1a2028; --ground: #11151b;
  --same: #4cc27a; --different: #ff7b72; --allowed: #e0a44a; --unchecked: #9aa4b2;
  --banner-same: #14633a; --banner-different: #8f1d1d; --banner-problem: #7a4a05;
  --wrong: #43201f; --hint: #3a2e17; --a: #7fadf5; --b: #efa260; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
main { max-width: 1480px; margin: 0 auto; padding: 20px 16px 40px; }
h1 { font-size: 24px; margin: 0 0 4px; } h2 { font-size: 19px; margin: 0; }
h3 { font-size: 15px; margin: 22px 0 8px; color: var(--soft); font-weight: 600; }
h1, h2, b, li, p { overflow-wrap: anywhere; }
.word { display: inline-block; max-width: 100%; overflow-wrap: anywhere; }
section > h3:first-child { margin-top: 0; }
section { background: var(--paper); border: 1px solid var(--line); border-radius: 10px;
  padding: 18px 20px; margin: 16px 0; }
.banner { color: #fff; border: 0; } .banner p { margin: 2px 0 0; }
.banner.same { background: var(--banner-same); }
.banner.different { background: var(--banner-different); }
.banner.problem { background: var(--banner-problem); }
.facts { color: var(--soft); margin: 8px 0 0; padding: 0; list-style: none; }
.wide { overflow-x: auto; } .wide:focus-visible { outline: 2px solid var(--a); }
table { border-collapse: collapse; width: 100%; } th, td { text-align: left; vertical-align: top;
  padding: 5px 12px 5px 0; border-bottom: 1px solid var(--line); }
th { font-weight: 600; color: var(--soft); font-size: 13px; } tr:last-child td { border-bottom: 0; }
td.number { font-variant-numeric: tabular-nums; white-space: nowrap; }
.state { font-weight: 600; white-space: nowrap; } .state.same { color: var(--same); }
.state.different { color: var(--different); } .state.allowed { color: var(--allowed); }
.state.unchecked { color: var(--unchecked); }
.meaning { color: var(--soft); font-size: 13px; margin: 2px 0 0; overflow-wrap: anywhere; }
.first { border-left: 4px solid var(--different); background: var(--wrong); padding: 10px 14px;
  margin: 14px 0 0; border-radius: 4px; overflow-wrap: anywhere; }
.note { border-left: 4px solid var(--allowed); background: var(--hint); padding: 8px 14px;
  margin: 10px 0 0; border-radius: 4px; overflow-wrap: anywhere; }
code { font: 13px/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace;
  overflow-wrap: anywhere; }
.rows td, .rows th, .differing td { font-size: 13px; } .rows { table-layout: fixed; }
.rows th, .rows td { overflow-wrap: anywhere; }
.many thead { display: none; } .many, .many tbody { display: block; }
.many tr { display: flex; flex-wrap: wrap; gap: 0 16px; padding: 4px 0; } .many td { padding: 1px 6px; }
.many [data-heading]::before { content: attr(data-heading) ": "; color: var(--soft); }
.sides b { overflow-wrap: break-word; } .rows tr > * + * { padding-left: 6px; }
.rows td.wrong { background: var(--wrong); } .rows tbody { border-bottom: 2px solid var(--line); }
.rows tbody td { border-bottom: 0; } .differing td { padding-top: 3px; padding-bottom: 3px; }
.differing b { overflow-wrap: break-word; } .differing td:first-child { max-width: 20em; }
.differing td:nth-child(2) { min-width: 14em; } .differing td:nth-child(3),
.differing td:last-child code { white-space: nowrap; } .differing td:nth-child(n+4) { max-width: 24em; }
.differing td:nth-child(n+4) code { overflow-wrap: break-word; }
.filter { display: flex; flex-wrap: wrap; gap: 6px 12px; align-items: center; margin: 0 0 8px; }
.filter input { font: inherit; color: inherit; background: var(--ground); min-width: 0;
  border: 1px solid var(--line); border-radius: 6px; padding: 4px 10px; width: 22em; }
details { margin: 10px 0 0; } summary { cursor: pointer; font-weight: 600; padding: 4px 0; }
.columns { display: grid; gap: 12px; margin-top: 8px;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 360px), 1fr)); }
.column { border: 1px solid var(--line); border-radius: 8px; padding: 10px 12px; min-width: 0; }
.column.different { border-color: var(--different); }
.column header { display: flex; justify-content: space-between; gap: 12px; margin-bottom: 4px; }
.column table { font-size: 13px; table-layout: fixed; }
.column th:first-child { width: 5.5em; }
.column th, .column td { padding: 1px 8px 1px 0; border: 0; overflow-wrap: anywhere; }
.side-a { color: var(--a); } .side-b { color: var(--b); }
figure { margin: 8px 0 0; } figcaption { font-size: 12px; color: var(--soft); }
svg { display: block; width: 100%; max-width: 340px; height: auto; }
svg text { font: 10px system-ui, sans-serif; fill: var(--soft); }
svg .axis { stroke: var(--soft); fill: none; }
svg .bars-a { fill: var(--a); fill-opacity: .45; }
svg .bars-b { fill: none; stroke: var(--b); stroke-width: 1.6; }
footer { color: var(--soft); font-size: 13px; }
[hidden] { display: none !important; }
@media (max-width: 1200px) {
  .differing td:nth-child(3), .differing td:last-child code { white-space: normal; }
  .differing td:nth-child(n+4) code { overflow-wrap: anywhere; } }
/* Where there is no room for a table, each of its rows is a block, and cells say what they are. */
@media (max-width: 900px) {
  :is(.rows, .differing) thead { display: none; }
  :is(.rows, .differing), :is(.rows, .differing) tbody { display: block; }
  :is(.rows, .differing) tr { display: flex; flex-wrap: wrap; gap: 0 16px; padding: 4px 0; }
  .differing tr:not(:last-child) { border-bottom: 1px solid var(--line); }
  :is(.rows, .differing) td { border: 0; padding: 1px 6px; }
  :is(.rows, .differing) td:is(:empty, :has(code:only-child:empty)) { display: none; }
  .differing td:nth-child(-n+2) { flex-basis: 100%; max-width: none; }
  :is(.rows, .differing) [data-heading]::before { content: attr(data-heading) ": "; color: var(--soft); } }
@media (max-width: 560px) { .sides tr:first-child { display: none; }
  .sides tr { display: flex; flex-wrap: wrap; gap: 0 12px; border-bottom: 1px solid var(--line); }
  .sides td { border: 0; } .sides td:last-child { flex-basis: 100%; }
  .sides [data-heading]::before { content: attr(data-heading) ": "; color: var(--soft); }
  :is(.promises, .glance) tr { display: flex; flex-wrap: wrap; gap: 0 12px; border-bottom: 1px solid var(--line); padding: 5px 0; }
  :is(.promises, .glance) td { border: 0; padding: 0; }
  .promises td:first-child, .promises td:last-child, .glance td:first-child { flex-basis: 100%; }
  .state { white-space: normal; } section { padding: 14px 12px; } }
@media print { body { background: #fff; } section { break-inside: avoid; } }
"""

SCRIPT = """
for (const box of document.querySelectorAll('.filter input')) {
  const part = box.closest('.all-columns'), said = part.querySelector('.found');
  const rows = [...part.querySelectorAll('[data-column]')];
  const folds = [...part.querySelectorAll('details')], before = folds.map(fold => fold.open);
  box.addEventListener('input', () => {
    const text = box.value.trim().toLowerCase();
    for (const row of rows) row.hidden = !row.dataset.column.toLowerCase().includes(text);
    folds.forEach((fold, at) => {
      const some = [...fold.querySelectorAll('[data-column]')].some(row => !row.hidden);
      fold.hidden = !some;
      fold.open = text ? some : before[at];
    });
    const shown = new Set(rows.filter(row => !row.hidden).map(row => row.dataset.column));
    said.textContent = text ? `${shown.size} of ${box.dataset.columns} columns` : '';
  });
}
"""
