// Redraft's dashboard: the theme, forms that change something, and pages that move while a run does.
"use strict";

(() => {
  const root = document.documentElement;
  const same = (text) => text;
  // What is parsed is always a page of this server, whose templates escape all that is not theirs.
  const ours = window.trustedTypes ? trustedTypes.createPolicy("redraft", { createHTML: same }) : { createHTML: same };

  const kept = localStorage.getItem("theme");
  if (kept) root.dataset.theme = kept;

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
    const said = document.getElementById("said");
    said.textContent = text;
    said.className = isError ? "said bad" : "said";
    said.hidden = false;
  }

  // A form with data-change posts its fields as JSON; what the server says happened is shown, and the form is
  // as it was before it was filled in.
  async function change(form, button) {
    const fields = Object.fromEntries(new FormData(form, button));
    const question = form.dataset.confirm;
    if (question && !confirm(question)) return;
    const focused = form.contains(document.activeElement) ? called(document.activeElement) : "";
    for (const one of form.querySelectorAll("button")) one.disabled = true;
    try {
      const answer = await fetch(form.getAttribute("action"), {
        method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(fields),
      });
      const told = await answer.json().catch(() => ({ error: `The server answered ${answer.status}.` }));
      say(told.message || told.error, !answer.ok);
      if (answer.ok) form.reset();
      if (answer.ok) await refresh();
    } catch {
      say("The dashboard can't be reached: is `redraft ui` still running?", true);
    } finally {
      for (const one of form.querySelectorAll("button")) one.disabled = false;
      // A disabled button loses the focus, and whoever works with keys alone would have to find it again.
      const again = focused && document.activeElement === document.body;
      if (again) [...document.querySelectorAll("form :is(button, input, select, textarea)")].find((one) => called(one) === focused)?.focus();
    }
  }

  // Read the page again, and exchange the parts of it that differ, but for what a reader has opened or is
  // filling in; say if it will not change any more.
  async function refresh() {
    const answer = await fetch(location.href, { headers: { accept: "text/html" } });
    const page = new DOMParser().parseFromString(ours.createHTML(await answer.text()), "text/html");
    label(page);
    const parts = document.querySelectorAll("[data-live]");
    for (const part of parts) {
      const made = page.getElementById(part.id);
      if (made && made.outerHTML !== part.outerHTML) exchange(part, document.importNode(made, true));
    }
    // A store that went away, or came back, makes it another page.
    if (!parts.length || !page.querySelector("[data-live]")) exchange(document.querySelector("main"), document.importNode(page.querySelector("main"), true));
    return answer.ok && !page.body.dataset.events;
  }

  // What a link or control is called, in the part that goes and in the one that comes.
  function called(one) {
    if (one.form) return [one.form.getAttribute("action"), one.name, one.type === "submit" && one.value].join(" ");
    return one.getAttribute("href") || one.id;
  }

  function isFilledIn(one) {
    return one.options ? [...one.options].some((option) => option.selected && !option.defaultSelected) : one.value !== one.defaultValue;
  }

  function exchange(part, made) {
    const before = part.querySelectorAll("details");
    made.querySelectorAll("details").forEach((one, at) => { if (before[at]) one.open = before[at].open; });
    const coming = new Map([...made.querySelectorAll("[href], [id], button, input, select, textarea")].map((one) => [called(one), one]));
    for (const one of part.querySelectorAll("input, select, textarea")) {
      const again = coming.get(called(one));
      if (!again || !isFilledIn(one)) continue;
      again.value = one.value;
      if (again.selectedIndex === -1) again.selectedIndex = 0;  // what was chosen is no choice any more
    }
    const focused = part.contains(document.activeElement) ? document.activeElement : null;
    const { selectionStart, selectionEnd } = focused || {};
    part.replaceWith(made);
    const again = focused && coming.get(called(focused));
    if (!again) return;
    again.focus();
    if (again.setSelectionRange && typeof selectionStart === "number") again.setSelectionRange(selectionStart, selectionEnd);
  }

  // In a narrow window each row of a list is a block, in which cells are named after their column.
  function label(within) {
    for (const list of within.querySelectorAll("table.list")) {
      const names = [...list.querySelectorAll("thead th")].map((head) => head.textContent.trim());
      for (const row of list.tBodies[0]?.rows || []) {
        [...row.cells].forEach((cell, at) => { if (cell.tagName === "TD" && names[at]) cell.dataset.label = names[at]; });
      }
    }
  }

  // A page that is not looked at listens to nothing: browsers allow few connections to one server.
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
    // A button with data-key is pressed by that key, but not while someone types, or with a modifier.
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
