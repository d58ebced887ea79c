/** Bytes as numbers and texts. */

export const viewOf = (bytes: Uint8Array): DataView =>
  new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);

/** An unsigned integer of 64 bits. */
export const wide = (view: DataView, position: number): number =>
  view.getUint32(position, true) + view.getUint32(position + 4, true) * 2 ** 32;

const decoder = new TextDecoder();
export const text = (data: Uint8Array): string => decoder.decode(data);

export const hex = (bytes: Uint8Array): string =>
  Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");

export const unhex = (digits: string): Uint8Array =>
  Uint8Array.from(digits.match(/../g) ?? [], (pair) => parseInt(pair, 16));

export const unbase64 = (letters: string): Uint8Array<ArrayBuffer> =>
  Uint8Array.from(atob(letters), (letter) => letter.charCodeAt(0));

export function joined(parts: readonly Uint8Array[]): Uint8Array {
  const [only] = parts;
  if (only && parts.length === 1) return only;
  const out = new Uint8Array(parts.reduce((total, { length }) => total + length, 0));
  parts.reduce((at, part) => (out.set(part, at), at + part.length), 0);
  return out;
}

/** A float of 16 bits. */
export function half(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (exponent === 0 ? fraction * 2 ** -24 : (1 + fraction / 1024) * 2 ** (exponent - 15));
}
