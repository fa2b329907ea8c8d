/** The learning rate of each step; see `CosineSchedule` of device/train/optimizer.py. */

/** Linear warm-up to `lr`, then half a cosine down to zero; `step` counts from 0. */
export function learningRate(lr: number, step: number, steps: number, warmup = 0): number {
  if (step < warmup) return (lr * (step + 1)) / warmup;
  const progress = (step - warmup) / Math.max(1, steps - warmup);
  return lr * 0.5 * (1 + Math.cos(Math.PI * Math.min(1, progress)));
}
