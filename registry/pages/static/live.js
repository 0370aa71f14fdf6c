// Keeps #live up to date: the server says over one stream that something has changed, and the page is
// fetched anew. A page that nobody looks at lets its stream go: a browser has few connections to a host.
"use strict";

(() => {
  const SECONDS_BETWEEN = 1;
  const address = document.body.dataset.live;
  const every = Number(document.body.dataset.every || 0);
  let stream = null;
  let seen = null;
  let due = null;
  let last = 0;
  let focused = "";
  let opened = [];

  function isTyping() {
    const active = document.activeElement;
    return active !== null && active.closest("#live") !== null && active.matches("input:not([type=checkbox]), select, textarea");
  }

  function refresh() {
    due = null;
    if (isTyping()) {
      later(SECONDS_BETWEEN);
      return;
    }
    last = Date.now();
    htmx.ajax("GET", location.pathname + location.search, { target: "#live", swap: "innerHTML" });
  }

  function later(seconds) {
    if (due === null) due = setTimeout(refresh, seconds * 1000);
  }

  function changed() {
    later(Math.max(0.05, SECONDS_BETWEEN - (Date.now() - last) / 1000));
  }

  function open() {
    if (stream !== null || !address) return;
    const url = new URL(address, location.href);
    if (seen !== null) url.searchParams.set("after", seen);
    stream = new EventSource(url);
    stream.onopen = () => { document.getElementById("offline").hidden = true; };
    stream.onerror = () => { document.getElementById("offline").hidden = false; };
    stream.onmessage = (message) => {
      seen = message.lastEventId;
      changed();
    };
  }

  function close() {
    if (stream !== null) stream.close();
    stream = null;
  }

  document.addEventListener("visibilitychange", () => {
    if (document.hidden) close();
    else {
      open();
      if (address) changed();
    }
  });
  window.addEventListener("pagehide", close);
  window.addEventListener("pageshow", open);
  if (every > 0) setInterval(() => { if (!document.hidden) changed(); }, every * 1000);

  // What a person has opened and where they are must survive a refresh.
  document.body.addEventListener("htmx:beforeSwap", () => {
    focused = document.activeElement ? document.activeElement.id : "";
    opened = [...document.querySelectorAll("#live details[open][id]")].map((each) => each.id);
  });
  document.body.addEventListener("htmx:afterSwap", () => {
    for (const id of opened) document.getElementById(id)?.setAttribute("open", "");
    ages();
  });
  document.body.addEventListener("htmx:afterSettle", () => {
    if (focused && document.activeElement === document.body) {
      document.getElementById(focused)?.focus({ preventScroll: true });
    }
  });

  function ago(seconds) {
    for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "min"]]) {
      if (seconds >= size) return `${Math.floor(seconds / size)} ${unit} ago`;
    }
    return `${Math.max(0, Math.floor(seconds))} s ago`;
  }

  function ages() {
    for (const time of document.querySelectorAll("time[datetime]")) {
      time.textContent = ago((Date.now() - Date.parse(time.dateTime)) / 1000);
    }
  }
  setInterval(ages, 10000);
})();
