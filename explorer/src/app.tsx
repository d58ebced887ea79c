/** The page: header, and the view that the address names. */

import { render, type VNode } from "preact";
import { useEffect, useState } from "preact/hooks";
import { nth } from "./base/lists";
import { forgetColours } from "./page/canvas";
import { type Folder, type Reader, stored } from "./page/home";
import { Boundary, onDemand, Wait } from "./page/parts";
import { mainBranch, type Route, writeRoute } from "./page/route";
import { address, change, followAddress, go, notice, opening, reader, route, useLoad } from "./page/state";
import { Home } from "./views/home";
import { VersionView } from "./views/version";

const History = onDemand(() => import("./views/history"), "History");
const Diff = onDemand(() => import("./views/diff"), "Diff");
const RepositoryView = onDemand(() => import("./views/repository"), "RepositoryView");
const ChangeDialog = onDemand(() => import("./views/change"), "ChangeDialog");
const Repositories = onDemand(() => import("./views/repositories"), "Repositories");

export function start(target: Element, open: () => Promise<Reader | Folder>): void {
  followAddress();
  for (const query of ["(prefers-color-scheme: dark)", "(prefers-contrast: more)"])
    matchMedia(query).addEventListener("change", forgetColours);
  render(<App open={open} />, target);
}

/** `?embed` before the fragment hides the header, for a frame on another page. */
const EMBEDDED = new URLSearchParams(location.search).has("embed");

function App({ open }: { open: () => Promise<Reader | Folder> }): VNode {
  const load = useLoad(
    async () => {
      const home = await open();
      document.title = `${home.label} – Frazil explorer`;
      if ("repositories" in home) return home;
      reader.value = home;
      if (!location.hash.includes("/") && (home.version || home.path)) {
        const path = `/${(home.path ?? "").replace(/^\//, "")}`;
        go({ page: "node", version: home.version ?? "main", path, query: { view: "data" } }, true);
      }
      return home;
    },
    [opening.value],
    true,
  );
  const home = load.value && !("repositories" in load.value) ? load.value : undefined;
  const View = { home: Home, history: History, node: VersionView, diff: Diff, repository: RepositoryView }[
    route.value.page
  ];
  return (
    <div class="app">
      {!EMBEDDED && <Header of={home} />}
      <main class="column fill" id="main" tabIndex={-1}>
        <Wait of={load} what="the repository">
          {(value) => (
            <Boundary place={writeRoute(route.value)}>
              {"repositories" in value ? <Repositories of={value} /> : <View reader={value} />}
            </Boundary>
          )}
        </Wait>
      </main>
      {home?.change && change.value && <ChangeDialog reader={home} of={change.value} />}
      <div class="hidden" role="status">
        {notice.value}
      </div>
    </div>
  );
}

const THEME = "frazil-theme";
const THEMES = ["system", "light", "dark", "contrast"];
const LOOK = 60_000; // milliseconds between two looks at the repository

/** A button for the present state, once somebody has changed the repository. A page that nobody sees does not look. */
function Newer({ of }: { of: Reader }): VNode | null {
  const [former, setFormer] = useState<Reader>();
  useEffect(() => {
    const look = async (): Promise<void> => {
      if (document.visibilityState === "visible" && (await of.isOutdated?.())) setFormer(of);
    };
    const timer = setInterval(look, LOOK);
    addEventListener("focus", look); // back from a terminal
    return () => {
      clearInterval(timer);
      removeEventListener("focus", look);
    };
  }, [of]);
  return former === of ? (
    <button onClick={() => opening.value++}>The repository has changed: show its present state</button>
  ) : null;
}

function Header({ of }: { of: Reader | undefined }): VNode {
  const [theme, setTheme] = useState(
    stored("localStorage", THEME) ?? document.documentElement.dataset["theme"] ?? "system",
  );
  useEffect(() => {
    document.documentElement.dataset["theme"] = theme;
    forgetColours();
  }, [theme]);
  const select = (name: string): void => {
    stored("localStorage", THEME, name);
    setTheme(name);
  };
  const { page, version } = route.value;
  const main = of && (of.version ?? mainBranch(of.repository));
  const tab = (name: Route["page"], title: string, href: string): VNode => (
    <a {...(page === name ? { href: location.hash, "aria-current": "page" } : { href })}>{title}</a>
  );
  return (
    <header>
      <a
        class="skip"
        href="#main"
        onClick={(event) => (event.preventDefault(), document.getElementById("main")?.focus())}
      >
        Skip to the content
      </a>
      <h1>Frazil</h1>
      {of && (
        <>
          <span class="label" title={of.label}>
            {of.folder && <a href={of.folder}>Repositories</a>} {of.label}
          </span>
          <nav aria-label="Views">
            {tab("home", "Overview", address({ page: "home" }))}
            {tab("history", "History", address({ page: "history" }))}
            {main && tab("node", "Data", address({ page: "node", version: version || main, path: "/" }))}
            {tab("repository", "Repository", address({ page: "repository" }))}
            {page === "diff" && tab("diff", "Differences", "")}
          </nav>
          <span class="quiet">
            format {of.repository.specVersion}, {of.repository.status}
          </span>
          <Newer of={of} />
          <datalist id="versions">
            {[...of.repository.branches.keys(), ...of.repository.tags.keys()].map((name) => (
              <option key={name} value={name} />
            ))}
          </datalist>
        </>
      )}
      <button
        class="theme"
        title="Colours of the page"
        onClick={() => select(nth(THEMES, (THEMES.indexOf(theme) + 1) % THEMES.length))}
      >
        <span aria-hidden="true">◐ </span>
        <span class="hidden">Colours of the page: </span>
        {theme}
      </button>
    </header>
  );
}
