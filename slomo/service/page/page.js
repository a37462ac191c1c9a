"use strict";
// What the pages do beyond links and forms: send changes to the API, follow jobs, and let network functions be dragged.
(() => {
  const said = document.getElementById("said");
  const say = (text) => { said.textContent = ""; said.textContent = text; };
  const call = async (method, path, body) => {
    const headers = { "Idempotency-Key": crypto.randomUUID ? crypto.randomUUID() : String(Date.now()) + Math.random() };
    if (body) headers["Content-Type"] = "application/json";
    const answer = await fetch(path, { method, headers, body: body && JSON.stringify(body) });
    const told = await answer.json();
    if (!answer.ok) throw new Error(told.detail + (told.hint ? " (" + told.hint + ")" : ""));
    return told;
  };
  const attempt = async (work) => { try { await work(); } catch (error) { say(error.message); } };
  const again = (text) => { say(text); setTimeout(() => location.reload(), 900); };

  for (const code of document.querySelectorAll("code")) code.textContent = code.textContent.replace(" .../", " " + location.origin + "/");

  document.addEventListener("mouseover", (event) => {
    const link = event.target.closest(".server a");
    if (link && !link.title) link.title = link.querySelector(".unseen").textContent;
  });

  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.dataset.action !== "place") return;
    event.preventDefault();
    attempt(async () => {
      const share = Number(form.elements.share.value);
      const slo = share > 0 ? { min_share: share / 100 } : { kind: "on-demand" };
      const what_if = Boolean(event.submitter && event.submitter.name === "what_if");
      const request = { id: form.elements.id.value, nf: form.elements.nf.value, slo };
      const told = await call("POST", "/v1/place", { requests: [request], what_if });
      const decision = told.decisions[0];
      const text = (decision.accepted ? "" : "Refused. ") + decision.reasons.join("; ");
      if (decision.accepted && !what_if) again("Placed: " + text); else say((what_if && decision.accepted ? "It would fit: " : "") + text);
    });
  });

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-action]");
    if (!button) return;
    const id = encodeURIComponent(button.dataset.id);
    if (button.dataset.action === "undo" && confirm(button.getAttribute("aria-label") + "?")) attempt(async () => {
      const told = await call("POST", "/v1/receipts/" + id + "/undo");
      again("Receipt " + told.undone + " is undone; receipt " + told.receipt + " says so.");
    });
    if (button.dataset.action === "resume") attempt(async () => {
      await call("POST", "/v1/jobs/" + id + "/resume");
      again("The job goes on.");
    });
    if (button.dataset.action === "remove" && confirm("Remove " + button.dataset.id + "? A receipt can undo it.")) attempt(async () => {
      const told = await call("DELETE", "/v1/cluster/requests/" + id);
      again("Removed. Receipt " + told.receipt + " can undo it.");
    });
  });

  // Which servers are shown; the choice is in the address, so that it can be kept and sent.
  const find = document.getElementById("find");
  const filters = find ? ["find", "kind", "machine", "runs"].map((id) => document.getElementById(id)) : [];
  const show = () => {
    const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
    const cells = [...document.querySelectorAll(".server")];
    for (const cell of cells) {
      const text = cell.querySelector(".unseen").textContent.toLowerCase();
      cell.hidden = !words.every((word) => text.includes(word)) ||
        filters.slice(1).some((filter) => filter.value && !cell.dataset[filter.id].split(" ").includes(filter.value));
    }
    for (const rack of document.querySelectorAll(".rack")) rack.hidden = !rack.querySelector(".server:not([hidden])");
    const left = cells.filter((cell) => !cell.hidden).length;
    const text = (left === cells.length ? "" : left + " of ") + cells.length + (cells.length === 1 ? " server" : " servers");
    const shown = document.getElementById("shown");
    if (shown.textContent !== text) shown.textContent = text;
  };
  const chosen = () => {
    const query = new URLSearchParams(filters.filter((filter) => filter.value).map((filter) => [filter.id, filter.value]));
    history.replaceState(null, "", query.size ? "?" + query : location.pathname);
    show();
  };
  for (const filter of filters) {
    filter.value = new URLSearchParams(location.search).get(filter.id) || "";
    if (filter.selectedIndex === -1) filter.value = "";
    filter.addEventListener(filter === find ? "input" : "change", chosen);
  }
  if (find) show();

  // What runs is shown anew when it changes; forms and what is focused stay as they are.
  const live = () => [...document.querySelectorAll("[data-live]")];
  const renew = async () => {
    if (document.hidden || live().some((part) => part.contains(document.activeElement))) return;
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
    if (!answer.ok) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const part of live()) {
      const other = fresh.querySelector("[data-live=" + part.dataset.live + "]");
      if (other && other.innerHTML !== part.innerHTML) part.replaceChildren(...other.childNodes);
    }
    document.querySelector(".status").textContent = fresh.querySelector(".status").textContent;
    if (find) show();
  };
  const soon = () => renew().catch(() => {});
  let changes = null;
  const follow = () => {
    if (changes) changes.close();
    changes = document.hidden ? null : new EventSource("/v1/cluster/events");
    if (changes) changes.addEventListener("cluster", soon);
  };
  if (live().length) {
    follow();
    document.addEventListener("visibilitychange", follow);
    setInterval(soon, 30000);
  }

  for (const chip of document.querySelectorAll(".chip")) {
    chip.addEventListener("dragstart", (event) => event.dataTransfer.setData("text/plain", chip.dataset.nf));
  }
  const over = (event) => event.target.closest && event.target.closest(".server");
  document.addEventListener("dragover", (event) => { const cell = over(event); if (cell) { event.preventDefault(); cell.classList.add("over"); } });
  document.addEventListener("dragleave", (event) => { const cell = over(event); if (cell) cell.classList.remove("over"); });
  document.addEventListener("drop", (event) => {
    const cell = over(event);
    if (!cell) return;
    event.preventDefault();
    const query = new URLSearchParams({ server: cell.dataset.server, add: event.dataTransfer.getData("text/plain") });
    location.assign("/whatif?" + query);
  });

  for (const mark of document.querySelectorAll("[data-job]")) {
    const row = mark.closest("tr");
    const source = new EventSource("/v1/jobs/" + mark.dataset.job + "/events");
    source.addEventListener("job", (event) => {
      const job = JSON.parse(event.data);
      row.querySelector("progress").value = job.done;
      row.querySelector(".state").textContent = job.state;
      row.querySelector(".message").textContent = job.message;
      if (["done", "failed", "interrupted"].includes(job.state)) { source.close(); say("Job " + job.id + ": " + job.state); }
    });
    source.onerror = () => source.close();
  }
})();
