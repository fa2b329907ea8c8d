import js from "@eslint/js";
import { defineConfig, globalIgnores } from "eslint/config";
import ts from "typescript-eslint";

export default defineConfig(
  globalIgnores(["node_modules", "tests/fixtures"]),
  js.configs.recommended,
  ts.configs.strict,
  {
    files: ["**/*.ts"],
    rules: {
      "@typescript-eslint/consistent-type-imports": "error",
      // Indices into typed arrays are checked by tests; noUncheckedIndexedAccess asks for `!`.
      "@typescript-eslint/no-non-null-assertion": "off",
      "@typescript-eslint/no-unused-vars": [
        "error",
        { argsIgnorePattern: "^_", varsIgnorePattern: "^_" },
      ],
      eqeqeq: "error",
    },
  },
  { files: ["*.mjs"], languageOptions: { globals: { process: "readonly" } } },
);
