// What the theme leaves out for keyboards and screen readers. It adds these elements after the page has loaded.
const complete = () => {
  // a box for a button is no landmark
  for (const box of document.querySelectorAll("nav.md-code__nav")) box.setAttribute("role", "presentation");
  // what scrolls needs the focus, so that keys can scroll it
  for (const box of document.querySelectorAll(".md-typeset__scrollwrap, pre > code")) box.tabIndex = 0;
};
new MutationObserver(complete).observe(document, { childList: true, subtree: true });
complete();
