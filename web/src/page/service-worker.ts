/** Keeps the page for use without a network. */
export {};
