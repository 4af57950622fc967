"""The dashboard, and the page of a run in one HTML file; `pages` says how a page is added."""
