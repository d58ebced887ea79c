/** The page with a repository in memory, for measurements in a browser: `?commits=100000&stations=10000`. */

import { start } from "../../src/app";
import { present } from "../present";
import { memoryReader } from "./memory";

const sizes = Object.fromEntries(
  [...new URLSearchParams(location.search)].map(([name, text]) => [name, Number(text)]),
);
start(present(document.getElementById("app")), async () => memoryReader(sizes));
