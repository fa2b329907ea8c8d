/** The page. */
export {};
