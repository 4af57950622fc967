"""The dashboard, and the page of a run in one HTML file; `page` says how a page is added."""
