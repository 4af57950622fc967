// Redraft's dashboard: the theme, forms that make changes, and live pages.
"use strict";

(() => {
  const root = document.documentElement;
  const same = (text) => text;
  // Only pages of this server are parsed, and their templates escape all data.
  const ours = window.trustedTypes ? trustedTypes.createPolicy("redraft", { createHTML: same }) : { createHTML: same };

  const theme = localStorage.getItem("theme");
  if (theme) root.dataset.theme = theme;

  function isDark() {
    return root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  }

  function offerThemes() {
    const button = document.getElementById("theme");
    const name = () => { button.textContent = isDark() ? "Light" : "Dark"; };
    button.hidden = false;
    name();
    button.addEventListener("click", () => {
      root.dataset.theme = isDark() ? "light" : "dark";
      localStorage.setItem("theme", root.dataset.theme);
      name();
    });
  }

  function say(text, isError) {
    const message = document.getElementById("said");
    message.textContent = text;
    message.className = isError ? "said bad" : "said";
    message.hidden = false;
  }

  // Post the fields of a form with data-change as JSON, show the message of the server, and reset the form.
  async function change(form, button) {
    const fields = Object.fromEntries(new FormData(form, button));
    const question = form.dataset.confirm;
    if (question && !confirm(question)) return;
    const focused = form.contains(document.activeElement) ? identity(document.activeElement) : "";
    for (const each of form.querySelectorAll("button")) each.disabled = true;
    try {
      const answer = await fetch(form.getAttribute("action"), {
        method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(fields),
      });
      const reply = await answer.json().catch(() => ({ error: `The server answered ${answer.status}.` }));
      say(reply.message || reply.error, !answer.ok);
      if (answer.ok) form.reset();
      if (answer.ok) await refresh();
    } catch {
      say("The dashboard can't be reached: is `redraft ui` still running?", true);
    } finally {
      for (const each of form.querySelectorAll("button")) each.disabled = false;
      // A disabled button loses the focus; restore it for people who use the keyboard.
      const isLost = focused && document.activeElement === document.body;
      const controls = [...document.querySelectorAll("form :is(button, input, select, textarea)")];
      if (isLost) controls.find((control) => identity(control) === focused)?.focus();
    }
  }

  // Fetch the page again, and replace the parts that differ; opened details and filled-in fields stay. Returns
  // whether the page has changed for the last time.
  async function refresh() {
    const answer = await fetch(location.href, { headers: { accept: "text/html" } });
    const page = new DOMParser().parseFromString(ours.createHTML(await answer.text()), "text/html");
    label(page);
    const parts = document.querySelectorAll("[data-live]");
    for (const part of parts) {
      const newPart = page.getElementById(part.id);
      if (newPart && newPart.outerHTML !== part.outerHTML) replace(part, document.importNode(newPart, true));
    }
    // An error page replaces the page while the store can't be read, and the other way round.
    if (!parts.length || !page.querySelector("[data-live]")) replace(document.querySelector("main"), document.importNode(page.querySelector("main"), true));
    return answer.ok && !page.body.dataset.events;
  }

  // A text that identifies a link or control in the old part and in the new part.
  function identity(element) {
    if (element.form) return [element.form.getAttribute("action"), element.name, element.type === "submit" && element.value].join(" ");
    return element.getAttribute("href") || element.id;
  }

  function isFilledIn(field) {
    return field.options ? [...field.options].some((option) => option.selected && !option.defaultSelected) : field.value !== field.defaultValue;
  }

  function replace(part, newPart) {
    const before = part.querySelectorAll("details");
    newPart.querySelectorAll("details").forEach((details, at) => { if (before[at]) details.open = before[at].open; });
    const elements = [...newPart.querySelectorAll("[href], [id], button, input, select, textarea")];
    const byIdentity = new Map(elements.map((element) => [identity(element), element]));
    for (const field of part.querySelectorAll("input, select, textarea")) {
      const newField = byIdentity.get(identity(field));
      if (!newField || !isFilledIn(field)) continue;
      newField.value = field.value;
      if (newField.selectedIndex === -1) newField.selectedIndex = 0;  // the selected option is gone
    }
    const focused = part.contains(document.activeElement) ? document.activeElement : null;
    const { selectionStart, selectionEnd } = focused || {};
    part.replaceWith(newPart);
    const element = focused && byIdentity.get(identity(focused));
    if (!element) return;
    element.focus();
    if (element.setSelectionRange && typeof selectionStart === "number") element.setSelectionRange(selectionStart, selectionEnd);
  }

  // In a narrow window, each row of a list is a block, whose cells are labelled with their columns.
  function label(within) {
    for (const list of within.querySelectorAll("table.list")) {
      const names = [...list.querySelectorAll("thead th")].map((head) => head.textContent.trim());
      for (const row of list.tBodies[0]?.rows || []) {
        [...row.cells].forEach((cell, at) => { if (cell.tagName === "TD" && names[at]) cell.dataset.label = names[at]; });
      }
    }
  }

  // Hidden pages close their streams: browsers allow only a few connections to a server.
  function follow() {
    let { events, fingerprint } = document.body.dataset;
    let source = null;
    let refreshing = Promise.resolve();
    const state = document.getElementById("connection");

    function stop() {
      if (source) source.close();
      source = null;
    }

    function listen() {
      if (source || document.hidden || !events) return;
      source = new EventSource(`${events}${events.includes("?") ? "&" : "?"}since=${encodeURIComponent(fingerprint)}`);
      source.addEventListener("open", () => { state.textContent = "live"; });
      source.addEventListener("error", () => { state.textContent = "not connected"; });
      source.addEventListener("change", (event) => {
        fingerprint = JSON.parse(event.data);
        refreshing = refreshing.then(refresh).then((hasEnded) => {
          if (!hasEnded) return;
          events = "";
          state.textContent = "";
          stop();
        }).catch(() => { state.textContent = "not connected"; });
      });
    }

    document.addEventListener("visibilitychange", () => (document.hidden ? stop() : listen()));
    addEventListener("pagehide", stop);
    listen();
  }

  document.addEventListener("DOMContentLoaded", () => {
    offerThemes();
    label(document);
    if (document.body.dataset.events) follow();
    document.addEventListener("submit", (event) => {
      if (!event.target.matches("form[data-change]")) return;
      event.preventDefault();
      change(event.target, event.submitter);
    });
    // The key in data-key presses a button, except in a field or with a modifier.
    document.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.altKey || event.metaKey || event.repeat) return;
      if (event.target.closest("input, select, textarea")) return;
      const button = document.querySelector(`button[data-key="${CSS.escape(event.key.toLowerCase())}"]:not([disabled])`);
      if (!button) return;
      event.preventDefault();
      button.click();
    });
  });
})();
