import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["e2e/**/*.test.ts"],
    passWithNoTests: true,
    fileParallelism: false,
    testTimeout: 180_000,
    hookTimeout: 120_000,
    // A page draws what was done to it when its database has answered.
    expect: { poll: { timeout: 20_000 } },
    // A browser, a server and a camera on a busy machine: what fails three times is broken.
    retry: 2,
  },
});
