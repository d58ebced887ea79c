/** The array of a version that a person wants to see first, and where it has its newest values. */

import { isLatitude, isLongitude } from "../array/axes";
import {
  attributesOr,
  costOf,
  isArray,
  isHidden,
  isSlow,
  itemSize,
  levelFor,
  levelsFrom,
} from "../array/nodes";
import { box, parseSlice } from "../array/slices";
import { nth, product, record, u32 } from "../base/lists";
import { earthReference } from "../earth/reference";
import type { ArrayNode, Snapshot } from "../format/types";
import { last } from "../page/text";

/** Attributes of CF that name other arrays, which describe this one. */
const NAMING = "coordinates bounds climatology grid_mapping cell_measures ancillary_variables".split(" ");
const ACCESSORY =
  /mask|quality|flag|(^|_)qc|area|weight|uncertain|error|count|(^|_)(bnds|bounds|vertices|spatial_ref|crs)$/i;
const MOST = 300; // candidates that are looked at
const SIDE = 1500; // elements of a picture

/** `start` is the index of its newest values, as the address has it. */
export function firstVariable(snapshot: Snapshot): { node: ArrayNode; start: string } | undefined {
  const arrays = snapshot.nodes.filter(isArray).filter((node) => !isHidden(node.path) && isSound(node));
  const named = new Set<unknown>(arrays.flatMap(({ dimensions }) => dimensions));
  for (const node of arrays) {
    const facts = attributesOr(node);
    for (const name of NAMING.map((each) => facts[each]))
      if (typeof name === "string") for (const word of name.split(/[\s:]+/)) named.add(word);
  }
  const isPlace = (node: ArrayNode): boolean =>
    [isLatitude, isLongitude].some((test) => test(last(node.path), attributesOr(node)));
  const data = arrays.filter((node) => !named.has(last(node.path)) && !isPlace(node) && product(node.shape));
  const scores = data.slice(0, MOST).map((node) => ({ node, score: scoreOf(snapshot, node) }));
  const best = scores.sort((one, other) => other.score - one.score)[0]?.node;
  return best && { node: best, start: newest(snapshot, best).join() };
}

function isSound(node: ArrayNode): boolean {
  try {
    return node.chunkShape.length === node.dimensions.length;
  } catch {
    return false; // its description is damaged, or of an extension
  }
}

/** How much an array says: places on Earth, two dimensions, values that are there and quick to read. */
function scoreOf(snapshot: Snapshot, node: ArrayNode): number {
  const facts = attributesOr(node);
  const slice = parseSlice(node.shape, {});
  const levels = levelsFrom(snapshot, node);
  const shown = levelFor(levels, slice, 1000).node;
  const cost = costOf(snapshot, shown, box(shown.shape, parseSlice(shown.shape, {}), SIDE));
  const isNumber = itemSize(node.dtype) !== undefined && !/^(datetime|timedelta|r\d)/.test(node.dtype);
  return (
    (isNumber ? 8 : 0) +
    (slice.y >= 0 ? 4 : 0) +
    (slice.y >= 0 && earthReference(snapshot, node, slice.x, slice.y) ? 8 : 0) +
    (snapshot.manifests(node.path).length ? 16 : 0) +
    (facts.flag_values !== undefined || ACCESSORY.test(last(node.path)) ? -3 : 0) +
    (isSlow(cost) ? 0 : 2) +
    (node.shape.filter((length) => length > 1).length > 2 ? 1 : 0) +
    ((facts.units ?? facts.standard_name ?? facts.long_name) ? 1 : 0) -
    6 * nth(levels, 0).place
  );
}

/** The last index along times that has a stored chunk, and the first one along other dimensions. */
function newest(snapshot: Snapshot, node: ArrayNode): number[] {
  const manifests = snapshot.manifests(node.path);
  return node.shape.map((length, d) => {
    const name = node.dimensions[d] ?? "";
    const facts = record(attributesOr(snapshot.node(node.path.replace(/[^/]*$/, name)) ?? node));
    const isTime = /time|^t$|date/i.test(name) || facts.axis === "T" || / since /.test(String(facts.units));
    const end = Math.max(0, ...manifests.map(({ extents }) => u32(extents, 2 * d + 1)));
    return isTime ? Math.max(0, Math.min(length, end * nth(node.chunkShape, d)) - 1) : 0;
  });
}
