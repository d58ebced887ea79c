/** What went wrong, for a person: cause and advice. `kind` is stable. */
export class ExplorerError extends Error {
  constructor(
    readonly kind: "not-found" | "network" | "forbidden" | "format" | "codec" | "unsupported",
    message: string,
  ) {
    super(message);
  }
}
