"""What a browser measures of a page for people who read it: what is cut off, scrolls sideways, or is too faint."""

# Elements with text of their own that somebody sees; the site's search and its drawer of pages are closed, which they
# are by lying outside of the window or below other things.
_TEXTS = """[...document.querySelectorAll('body *')].filter(e =>
  !e.closest('.md-search, .md-nav--primary .md-nav__title') && e.checkVisibility({opacityProperty: true, visibilityProperty: true}) && e.getClientRects().length
  && !(e instanceof SVGElement && !(e instanceof SVGTextElement))
  && [...e.childNodes].some(n => n.nodeType === Node.TEXT_NODE && n.textContent.trim()))"""

# Texts that end beyond the window, or beyond the inner edge of something that hides or scrolls what is outside. Code
# blocks scroll by themselves, as their lines are the program's, and lists of contents beside the page scroll down.
CUT = f"""{_TEXTS}.filter(e => {{
  if (e.closest('pre')) return false;
  const box = e.getBoundingClientRect();
  if (!box.width || box.right < 0 || box.left >= innerWidth) return false;
  if (box.right > innerWidth + 0.5 || box.left < -0.5) return true;
  for (let at = e; at !== document.body; at = at.parentElement) {{
    if (at instanceof SVGElement) continue;
    const hides = getComputedStyle(at).overflowX !== 'visible';
    if (hides && at.clientWidth > 1 && at.scrollWidth > at.clientWidth + 1) return true;
  }}
  return false;
}}).map(e => e.outerHTML.slice(0, 160))"""

# Texts whose contrast with what is behind them is below the 4.5 that WCAG asks of small text. Where an ancestor is
# translucent, so is the text.
FAINT = f"""{_TEXTS}.map(e => {{
  const canvas = document.createElement('canvas').getContext('2d', {{willReadFrequently: true}});
  const rgba = text => {{  // whatever notation the style sheet has
    const found = text.match(/^rgba?\\(([^)]*)\\)$/);
    if (found) {{
      const [r, g, b, a = 1] = found[1].split(/[\\s,/]+/).map(Number);
      return [r, g, b, a];
    }}
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = text;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  }};
  const over = ([r, g, b, a], back) => [r, g, b].map((v, i) => a * v + (1 - a) * back[i]);
  const light = colour => colour.map(v => v / 255).map(
    v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4
  ).reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const dark = getComputedStyle(document.documentElement).colorScheme.includes('dark')
    && matchMedia('(prefers-color-scheme: dark)').matches;
  const layers = [];
  let shine = 1;
  for (let at = e; at; at = at.parentElement) {{
    layers.unshift(rgba(getComputedStyle(at).backgroundColor));
    shine *= Number(getComputedStyle(at).opacity);
  }}
  const ground = layers.reduce((back, front) => over(front, back), dark ? [0, 0, 0] : [255, 255, 255]);
  const style = getComputedStyle(e);
  const [r, g, b, a] = rgba(e instanceof SVGElement ? style.fill : style.color);
  const [x, y] = [light(over([r, g, b, a * shine], ground)), light(ground)].sort((p, q) => q - p);
  return [(x + 0.05) / (y + 0.05), e];
}}).filter(([contrast]) => contrast < 4.5).map(([contrast, e]) => contrast.toFixed(2) + ' ' + e.outerHTML.slice(0, 160))"""
