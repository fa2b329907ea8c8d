/** The worker of a run. */
export {};
