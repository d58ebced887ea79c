/** The home of the page in a notebook: a kernel that answers messages. `widget.ts` puts the page into a frame and sends them. */

import { ExplorerError, type Source } from "./format/types";

export interface Answer {
  /** Missing if there is no such file. */
  readonly data?: DataView;
  readonly error?: { readonly kind: string; readonly message: string };
}
export type Ask = (message: Record<string, string | number>) => Promise<Answer>;

/** What the frame of the page has as the property `kernel`. */
export interface Kernel {
  readonly ask: Ask;
  /** The address of the script of the page. */
  readonly script: string;
  readonly settings: { readonly label: string; readonly version?: string; readonly path?: string };
  /** The view that the page shows: notebooks load a frame anew when they move it. */
  address: string;
}

/** The kernel, if this page is in the frame of a widget. */
export const kernel = (globalThis.frameElement as { kernel?: Kernel } | null | undefined)?.kernel;

const FORBIDDEN = "unauthorized-virtual-chunk-container";

export class KernelSource implements Source {
  constructor(
    private readonly ask: Ask,
    readonly label: string,
  ) {}

  async get(key: string, start?: number, end?: number): Promise<Uint8Array | undefined> {
    if (start === undefined || end === undefined) return this.bytes({ file: key });
    return end <= start ? new Uint8Array() : this.bytes({ file: key, start, end });
  }

  external(url: string, start: number, end: number): Promise<Uint8Array | undefined> {
    return this.bytes({ virtual: url, start, end });
  }

  private async bytes(message: Record<string, string | number>): Promise<Uint8Array | undefined> {
    const { data, error } = await this.ask(message);
    if (error) throw new ExplorerError(error.kind === FORBIDDEN ? "forbidden" : "network", error.message);
    return data && new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  }
}
