/** The settings of a picture: the version beside it, the bands that are its colours, and the limits of colours. */

import type { VNode } from "preact";
import type { Coordinate } from "../array/axes";
import { MAPS } from "../array/colour";
import { nth } from "../base/lists";
import type { Clock } from "../cf/calendar";
import type { Reader } from "../page/home";
import { Choice, Entry, Setting, type Titles } from "../page/parts";
import { resolve } from "../page/route";
import { route, setQuery } from "../page/state";
import { limitOf } from "./picture";

/** The version that the picture shows, too, and how. */
export function CompareWith({ reader: { repository } }: { reader: Reader }): VNode {
  const value = route.value.query["with"] ?? "";
  const enter = (text: string): string | void =>
    text === "" || repository.row(resolve(repository, text)) >= 0
      ? setQuery({ with: text }, false)
      : `There is no branch, tag or commit ${text}.`;
  const entry = { label: "Compare with", value, list: "versions", size: 10, placeholder: "main~1" };
  return (
    <>
      <Entry key={value} isEager {...entry} onEnter={enter} />
      {value && <Setting label="Layout" name="form" options={LAYOUTS} />}
    </>
  );
}

type BandsProps = { of: Pick<Coordinate, "label"> | undefined; length: number; bands: readonly number[] };

/** The bands of red, green and blue. */
export function Bands({ of, length, bands }: BandsProps): VNode {
  const names = Array.from({ length }, (_, at) => of?.label(at) ?? String(at));
  const usual = ["Red", "Green", "Blue"].map((colour, at) => {
    const found = names.findIndex((name) => name.toLowerCase() === colour.toLowerCase());
    return found < 0 ? at : found;
  });
  const choose = (next: readonly number[]): void => setQuery({ rgb: next.join() });
  return (
    <>
      <button aria-pressed={bands.length > 0} onClick={() => choose(bands.length ? [] : usual)}>
        Colours of three bands
      </button>
      {bands.map((band, at) => (
        <Choice
          key={at}
          label={nth(["Red", "Green", "Blue"], at)}
          value={String(band)}
          options={names.map((name, which) => [String(which), name] as const)}
          onSelect={(value) => choose(bands.with(at, Number(value)))}
        />
      ))}
    </>
  );
}

export function ColourSettings({ clock }: { clock: Clock | undefined }): VNode {
  const { query } = route.value;
  const limit = (name: string, title: string): VNode => {
    const enter = (text: string): string | void =>
      text === "" || limitOf(text, clock) !== undefined
        ? setQuery({ [name]: text })
        : `"${text}" is not a ${clock ? "date" : "number"}.`;
    const value = query[name] ?? "";
    const entry = { label: title, value, size: clock ? 10 : 6, placeholder: "auto", onEnter: enter };
    return <Entry key={value} isEager {...entry} {...(clock ? {} : { inputMode: "decimal" })} />;
  };
  return (
    <>
      <Setting label="Colours" name="map" options={COLOURS} />
      {limit("lo", "from")}
      {limit("hi", "to")}
    </>
  );
}

const LAYOUTS: Titles = [
  ["", "divider"],
  ["pair", "next to each other"],
];
const COLOURS: Titles = [["", "automatic"], ...MAPS.map((name) => [name, name] as const)];
