/** The tasks that the page trains. */
import type { TaskName } from "../../contract";
import { Attributes } from "./attributes";
import { Classification } from "./classification";
import type { Task } from "./task";

export { marks, type Task } from "./task";

/** The task of this name with so many classes or attributes. */
export function taskOf(name: TaskName, outputs: number): Task {
  return name === "attributes" ? new Attributes(outputs) : new Classification(outputs);
}
