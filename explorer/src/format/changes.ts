/** Transaction logs: what a commit changed. */

import { type Body, reading } from "./files";
import type { Flat } from "./flatbuffer";
import type { Changes } from "./types";

export function readChanges({ flat }: Body): Changes {
  const root = flat.root();
  const ids = (slot: number): string[] => flat.ids(root, slot, 8);
  return {
    newGroups: ids(1),
    newArrays: ids(2),
    deletedGroups: ids(3),
    deletedArrays: ids(4),
    updatedArrays: ids(5),
    updatedGroups: ids(6),
    updatedChunks: flat.tables(root, 7).map((table) => new UpdatedChunks(flat, table)),
    moves: flat
      .tables(root, 8)
      .map((table) => ({ from: flat.text(table, 0) ?? "", to: flat.text(table, 1) ?? "" })),
  };
}

/** The chunks of one array, of which most readers need only the number. */
class UpdatedChunks {
  readonly nodeId: string;
  readonly count: number;

  constructor(
    private readonly flat: Flat,
    private readonly table: number,
  ) {
    this.nodeId = flat.id(table, 0, 8);
    this.count = flat.vector(table, 1, 4)[1];
  }

  get coords(): Uint32Array {
    return reading("a transaction log", () => {
      const { flat, count } = this;
      const [start] = flat.vector(this.table, 1, 4);
      const rank = count === 0 ? 0 : flat.vector(flat.follow(start), 0, 4)[1];
      const coords = new Uint32Array(count * rank);
      for (let i = 0; i < count; i++) {
        const [index, length] = flat.vector(flat.follow(start + 4 * i), 0, 4);
        if (length !== rank) throw new RangeError("chunks of one array with different numbers of dimensions");
        for (let d = 0; d < rank; d++) coords[i * rank + d] = flat.view.getUint32(index + 4 * d, true);
      }
      return coords;
    });
  }
}
