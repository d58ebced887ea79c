/** The pipelines of a version, each as a graph. */

import type { VNode } from "preact";
import { useMemo } from "preact/hooks";
import type { Properties } from "../base/json";
import type { Snapshot } from "../format/types";
import { Graph } from "../page/graph";
import type { Reader } from "../page/home";
import { Failure, Setting } from "../page/parts";
import { route, useLoad } from "../page/state";
import { boxesOf, type Facts, factsOf } from "../versions/pipeline";

const SHOWN = [
  ["", "drawing"],
  ["list", "list"],
] as const;

type Props = { reader: Reader; snapshot: Snapshot; version: string };

export function Pipelines({ of, ...props }: Props & { of: readonly Properties[] }): VNode {
  const { reader, snapshot } = props;
  const facts = useLoad((signal) => factsOf(of, reader, snapshot, signal), [reader, snapshot]);
  return (
    <div class="scroll" tabIndex={0} role="group" aria-label="Pipelines">
      <div class="bar wide-only">
        <Setting label="Show" name="show" options={SHOWN} />
      </div>
      <Failure of={facts} />
      {of.map((each, at) => (
        <Pipeline key={at} {...props} of={each} facts={facts.value} />
      ))}
      <p class="quiet">
        The states of derived arrays follow from the changes of commits. <code>frazil derived</code> compares
        digests.
      </p>
    </div>
  );
}

type PipelineProps = Props & { of: Properties; facts: Facts | undefined };

function Pipeline({ of, facts, reader, snapshot, version }: PipelineProps): VNode {
  const keys = [of, facts, reader, snapshot, version] as const;
  const boxes = useMemo(() => boxesOf(...keys), keys);
  const [name, owners] = [String(of["name"]), of["owners"]];
  return (
    <>
      <h3>
        {name}{" "}
        {Array.isArray(owners) && owners.length > 0 && <span class="quiet">of {owners.join(", ")}</span>}
      </h3>
      <Graph label={`Pipeline ${name}`} boxes={boxes} isList={route.value.query["show"] === "list"} />
    </>
  );
}
