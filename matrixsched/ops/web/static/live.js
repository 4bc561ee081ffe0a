// Refreshes the parts of a page that say so, while somebody looks. Without it every page works, only not live.
"use strict";

(() => {
  const BACK_OFF_MAX_S = 60;
  const stale = document.getElementById("stale");
  let seenAt = new Date();
  let failures = 0;

  function addressOf(name) {
    const address = new URL(location.href);
    address.searchParams.set("fragment", name);
    return address;
  }

  function told(element) {
    // What tells an element apart from its neighbours, so that it is found again after it was replaced.
    return element.id || element.getAttribute("href") || element.getAttribute("name") || "";
  }

  function replace(region, text) {
    const fresh = new DOMParser().parseFromString(text, "text/html").body;
    const open = [...region.querySelectorAll("details[open][id]")].map((one) => one.id);
    const focused = region.contains(document.activeElement) ? told(document.activeElement) : "";
    for (const id of open) {
      const same = fresh.querySelector(`#${CSS.escape(id)}`);
      if (same) same.open = true;
    }
    region.replaceChildren(...fresh.childNodes);
    if (focused) {
      [...region.querySelectorAll("a, button, input, summary, [tabindex]")]
        .find((one) => told(one) === focused)
        ?.focus({ preventScroll: true });
    }
  }

  function hasSelection(region) {
    const chosen = document.getSelection();
    return chosen && !chosen.isCollapsed && region.contains(chosen.anchorNode);
  }

  function tellStale() {
    if (!stale) return;
    stale.hidden = failures === 0;
    if (failures) {
      stale.textContent = `No answer since ${seenAt.toISOString().slice(11, 19)} UTC: what you see is from then.`;
    }
  }

  async function refresh(region) {
    const answer = await fetch(addressOf(region.dataset.live), {
      headers: { Accept: "text/html" },
      credentials: "same-origin",
      signal: AbortSignal.timeout(20000),
    });
    if (answer.status === 401) {
      location.reload(); // the session is over: this leads to the page to sign in
      return;
    }
    if (!answer.ok) throw new Error(String(answer.status));
    const text = await answer.text();
    if (!hasSelection(region)) replace(region, text);
  }

  function keepFresh(region) {
    const every = Number(region.dataset.every || 5);
    const isOnce = "once" in region.dataset;
    let timer = 0;

    async function turn() {
      clearTimeout(timer);
      if (document.hidden) return; // it goes on when somebody looks again
      try {
        await refresh(region);
        failures = 0;
        seenAt = new Date();
        if (isOnce && !region.querySelector("[data-unfinished]")) {
          document.removeEventListener("visibilitychange", turn);
          tellStale();
          return;
        }
      } catch {
        failures += 1;
      }
      tellStale();
      const wait = failures ? Math.min(every * 2 ** failures, BACK_OFF_MAX_S) : every;
      timer = setTimeout(turn, wait * 1000);
    }

    document.addEventListener("visibilitychange", turn);
    timer = setTimeout(turn, isOnce ? 0 : every * 1000);
  }

  document.querySelectorAll("[data-live]").forEach(keepFresh);

  // Escape leaves a question unanswered.
  document.addEventListener("keydown", (event) => {
    const back = document.querySelector("[data-escape]");
    if (event.key === "Escape" && back && !event.defaultPrevented) location.assign(back.href);
  });
})();
