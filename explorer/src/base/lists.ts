/** Lists and columns: access, search, shapes. */

/** The first index for which a test holds that holds for all later ones, too; `length` if there is none. */
export function firstWhere(length: number, test: (at: number) => boolean): number {
  let [low, high] = [0, length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (test(middle)) high = middle;
    else low = middle + 1;
  }
  return low;
}

export function product(shape: readonly number[]): number {
  return shape.reduce((a, b) => a * b, 1);
}

export function strides(shape: readonly number[]): number[] {
  const out = new Array<number>(shape.length);
  let step = 1;
  for (let d = shape.length - 1; d >= 0; d--) {
    out[d] = step;
    step *= shape[d];
  }
  return out;
}
