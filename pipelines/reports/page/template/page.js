"use strict";

// Libraries lie in the page compressed; each is unpacked and loaded as a module.
async function unpacked(id) {
  const bytes = Uint8Array.from(atob(document.getElementById(id).textContent), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

async function loaded(id) {
  const url = URL.createObjectURL(new Blob([await unpacked(id)], { type: "text/javascript" }));
  try {
    return await import(url);
  } finally {
    URL.revokeObjectURL(url);
  }
}

async function drawCharts() {
  const figures = document.querySelectorAll("figure");
  if (figures.length === 0) return;
  await loaded("packed-charts");
  const config = JSON.parse(document.getElementById("chart-config").textContent);
  // Expressions are interpreted: the page forbids making code from text.
  const options = { config, renderer: "svg", actions: false, ast: true };
  await Promise.all([...figures].map((figure) =>
    vegaEmbed(figure.querySelector(".chart"), JSON.parse(figure.querySelector("script").textContent), options)));
}

async function sortAndFilterTables() {
  const tables = document.querySelectorAll("table.display");
  if (tables.length === 0) return;
  const style = document.createElement("style");
  style.textContent = await unpacked("packed-table-style");
  document.head.prepend(style); // before the page's own, which has the last word
  const { ITable } = await loaded("packed-tables");
  const isLive = "version" in document.body.dataset;
  for (const table of tables) {
    const rows = Number(table.dataset.rows);
    new ITable(table, {
      order: [],
      autoWidth: false,
      paging: rows > 10,
      pageLength: 10,
      lengthChange: false,
      searching: rows > 3,
      info: rows > 10,
      // A live page keeps order and filter when it loads itself again.
      stateSave: isLive,
      stateDuration: -1,
      language: { search: "", searchPlaceholder: "Filter", zeroRecords: "No row matches" },
      layout: { topStart: rows > 3 ? "search" : null, topEnd: null, bottomStart: rows > 10 ? "info" : null, bottomEnd: rows > 10 ? "paging" : null },
    });
  }
}

function followDarkness() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const show = () => document.documentElement.classList.toggle("dark", dark.matches);
  dark.addEventListener("change", show);
  show();
}

function showTheQueryOfTheAddress() {
  const query = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const folded = query && query.closest("details");
  if (!folded) return;
  folded.open = true;
  query.scrollIntoView();
}

function copyOnDemand() {
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("button.copy");
    if (!button) return;
    const code = button.parentElement.querySelector("code");
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
    } catch {
      // No clipboard for this page: the text is selected instead, one key away.
      getSelection().selectAllChildren(code);
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
}

function followTheServer() {
  const shown = document.body.dataset.version;
  if (shown === undefined) return;
  const state = document.getElementById("live");
  setInterval(async () => {
    try {
      const newest = await (await fetch("/version", { cache: "no-store" })).text();
      if (newest !== shown) return location.reload();
      state.textContent = " live";
      state.classList.remove("stopped");
    } catch {
      state.textContent = " the report has been stopped";
      state.classList.add("stopped");
    }
  }, 2000);
}

followDarkness();
copyOnDemand();
followTheServer();
addEventListener("hashchange", showTheQueryOfTheAddress);
Promise.allSettled([drawCharts(), sortAndFilterTables()]).then((results) => {
  for (const failed of results.filter((result) => result.status === "rejected")) console.error(failed.reason);
  document.body.classList.add("ready");
  showTheQueryOfTheAddress();
});
