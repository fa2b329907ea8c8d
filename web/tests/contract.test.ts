import { expect, test } from "vitest";
import { UserError } from "../src/contract";

test("an error for the user is told from others by its class and name", () => {
  const error: unknown = new UserError("The kit is damaged; copy it again.");
  expect(error).toBeInstanceOf(UserError);
  expect((error as Error).name).toBe("UserError");
});
