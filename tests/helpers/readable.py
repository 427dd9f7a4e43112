"""What a browser measures of a page for people who read it: what is cut off, scrolls sideways, or is too faint."""

# Elements with text of their own that somebody sees; the site's search and its drawer of pages are closed, which they
# are by lying outside of the window or below other things.
_TEXTS = """[...document.querySelectorAll('body *')].filter(e =>
  !e.closest('.md-search, .md-nav--primary .md-nav__title')
  && e.checkVisibility({opacityProperty: true, visibilityProperty: true}) && e.getClientRects().length
  && !(e instanceof SVGElement && !(e instanceof SVGTextElement))
  && [...e.childNodes].some(n => n.nodeType === Node.TEXT_NODE && n.textContent.trim()))"""

# Texts that end beyond the window, or beyond the inner edge of something that hides or scrolls what is outside. Code
# blocks scroll by themselves, as their lines are the program's, and lists of contents beside the page scroll down.
CUT = f"""(() => {{
  const found = new Map([[document.body, false]]);
  const overflows = e => {{  // whether it, or what it is in, hides or scrolls some of its width
    if (!found.has(e)) {{
      const itself = !(e instanceof SVGElement) && e.clientWidth > 1 && e.scrollWidth > e.clientWidth + 1
        && getComputedStyle(e).overflowX !== 'visible';
      found.set(e, itself || overflows(e.parentElement));
    }}
    return found.get(e);
  }};
  return {_TEXTS}.filter(e => {{
    if (e.closest('pre')) return false;
    const box = e.getBoundingClientRect();
    if (!box.width || box.right < 0 || box.left >= innerWidth) return false;
    return box.right > innerWidth + 0.5 || box.left < -0.5 || overflows(e);
  }}).map(e => e.outerHTML.slice(0, 160));
}})()"""

# Texts whose contrast with what is behind them is below the 4.5 that WCAG asks of small text. Where an ancestor is
# translucent, so is the text.
FAINT = f"""(() => {{
  const canvas = document.createElement('canvas').getContext('2d', {{willReadFrequently: true}});
  const known = new Map();
  const read = text => {{  // whatever notation the style sheet has
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
  const rgba = text => known.get(text) || known.set(text, read(text)).get(text);
  const over = ([r, g, b, a], back) => [r, g, b].map((v, i) => a * v + (1 - a) * back[i]);
  const light = colour => colour.map(v => v / 255).map(
    v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4
  ).reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const dark = getComputedStyle(document.documentElement).colorScheme.includes('dark')
    && matchMedia('(prefers-color-scheme: dark)').matches;
  const behind = new Map([[null, [dark ? [0, 0, 0] : [255, 255, 255], 1]]]);
  const ground = e => {{  // the colour behind an element's text, and how opaque the text is
    if (!behind.has(e)) {{
      const style = getComputedStyle(e), [back, shine] = ground(e.parentElement);
      behind.set(e, [over(rgba(style.backgroundColor), back), shine * Number(style.opacity)]);
    }}
    return behind.get(e);
  }};
  return {_TEXTS}.map(e => {{
    const style = getComputedStyle(e), [back, shine] = ground(e);
    const [r, g, b, a] = rgba(e instanceof SVGElement ? style.fill : style.color);
    const [x, y] = [light(over([r, g, b, a * shine], back)), light(back)].sort((p, q) => q - p);
    return [(x + 0.05) / (y + 0.05), e];
  }}).filter(([contrast]) => contrast < 4.5).map(
    ([contrast, e]) => contrast.toFixed(2) + ' ' + e.outerHTML.slice(0, 160));
}})()"""

# Words of a page of the site that begin on one line and end on another; parts of names that underscores or dots join count as words.
BROKEN = """(() => {
  const broken = [], page = document.querySelector('.md-content');
  const texts = document.createTreeWalker(page, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const text = texts.currentNode, parent = text.parentElement;
    if (parent.closest('pre, script, style') || !parent.checkVisibility()) continue;
    for (const word of text.textContent.matchAll(/[A-Za-z0-9]+/g)) {
      const range = document.createRange();
      range.setStart(text, word.index);
      range.setEnd(text, word.index + word[0].length);
      if (new Set([...range.getClientRects()].map(box => Math.round(box.top))).size > 1)
        broken.push(word[0] + ' of ' + parent.outerHTML.slice(0, 160));
    }
  }
  return broken;
})()"""
