/** What went wrong, for a person: cause and advice. `kind` is stable. */
export class ExplorerError extends Error {
  constructor(
    readonly kind: "not-found" | "network" | "forbidden" | "format" | "codec" | "unsupported",
    message: string,
  ) {
    super(message);
  }
}

/** What an error says, also one of another kind. */
export const reasonOf = (cause: unknown): string => (cause instanceof Error ? cause.message : String(cause));

const of =
  (kind: ExplorerError["kind"]) =>
  (message: string): ExplorerError =>
    new ExplorerError(kind, message);

export const unsupported = of("unsupported");
export const unknownCodec = of("codec");
export const notFound = of("not-found");
export const wrongFormat = of("format");
export const forbidden = of("forbidden");
export const networkFailure = of("network");
